/* fp8 and fp4 as TransformerEngine's recipes run them under Megatron-Core (--fp8-recipe, --fp4-recipe): the inputs of linear layers, their weights
 * and the gradients of their outputs are cast to one byte or half of one an element before each product, which gives bf16; weights
 * stay in bf16, or with --fp8-param-gather are fp8 themselves, and master weights stay in fp32. All else (router, norms, core attention,
 * embedding, head, activations between products, exchanges) stays as `precision` says. Read in NVIDIA/TransformerEngine
 * d0067d0d (transformer_engine/pytorch: module/base.py quantize_weight, module/grouped_linear.py, csrc/quantizer.cpp;
 * common/recipe/__init__.py) and NVIDIA/Megatron-LM d98e8a64 (megatron/core/fp8_utils.py, extensions/transformer_engine.py,
 * transformer/moe/experts.py, distributed/param_and_grad_buffer.py, fp4_utils.py); mxfp4 in ROCm's TransformerEngine (MXFP4BlockScaling)
 * and AMD-AGI/Primus fd1eeabb (primus/backends/megatron/core/fp4_utils.py). docs/schemes.md, section 7.12.
 *
 *   recipe      scale of                                    copies of an operand                       rows of an expert
 *   delayed     a tensor, fp32, from an amax history        fp8, and its transpose on Hopper           multiples of 16
 *   tensorwise  a tensor, fp32, from the tensor's amax      the same                                   16
 *   blockwise   1 x 128, weights 128 x 128, fp32; Hopper    row by row and column by column            16
 *   mxfp8       32 elements, one byte (E8M0); Blackwell     the same                                   32
 *   nvfp4       16 elements, one byte (E4M3), and a tensor, the same, of half a byte an element         128
 *               fp32; of weights 16 x 16, written out for
 *               every 16 of a row; Blackwell
 *   mxfp4       32 elements, one byte (E8M0); CDNA 4        the same                                   128
 * Hopper multiplies fp8 in one layout alone (TN), so that a product with the other operand order reads a transposed copy;
 * Blackwell reads one copy for both (quantizer.cpp, nvte_is_non_tn_fp8_gemm_supported). The others scale along the
 * contracted dimension, which differs between products, so they hold both. nvfp4 rotates what is read column by column (random
 * Hadamard transform of 16) and rounds gradients at random, neither of which keeps anything. */
#ifndef SPW_SIM_JOB_RECIPE_FP8_RECIPE_H
#define SPW_SIM_JOB_RECIPE_FP8_RECIPE_H

#include "base/status.h"
#include "sim/machine/cluster.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum spw_fp8_recipe {
    SPW_FP8_NONE,
    SPW_FP8_DELAYED,
    SPW_FP8_TENSORWISE,
    SPW_FP8_BLOCKWISE,
    SPW_FP8_MXFP8,
    SPW_FP4_NVFP4,
    SPW_FP4_MXFP4,
    SPW_FP8_RECIPES
} spw_fp8_recipe;
const char *spw_fp8_recipe_name(spw_fp8_recipe recipe); /* none, delayed, ... */
bool spw_fp8_recipe_is_fp4(spw_fp8_recipe recipe);      /* nvfp4, mxfp4 */

/* What it does on one kind of GPU. */
typedef struct spw_fp8_facts {
    double weight_bytes; /* of one element of a weight, all its copies and their scales */
    bool both;           /* an operand has two copies: row by row, and column by column or transposed */
    bool scaled;         /* a copy has a scale for every so many elements */
    double
        copy_bytes; /* of one element of one copy, its scale included: 1, 1 + 1/32, fp4 1/2 + 1/16 or 1/2 + 1/32 */
    size_t fp4_group;     /* fp4: elements that share a scale of one byte; else 0 */
    double written_bytes; /* of one copy, as a cast is counted: fp8 1 */
    double cast_bytes;    /* read and written to cast one bf16 element */
    size_t align;         /* rows of an expert are padded to a multiple */
    bool
        from_original; /* attention's output projection and the shared experts' first product keep their bf16 input,
                              which others keep too, and cast it again in the backward pass (set_save_original_input) */
    double
        settle_bytes; /* read and written, of an element gathered over a tensor group, until a product reads it */
    double apart_bytes;    /* ... of which so many an element are a second copy */
    size_t gather_tile;    /* tokens and widths that are no multiple are gathered in bf16 */
    size_t row_multiple;   /* of the tokens of an operand */
    size_t width_multiple; /* of its width */
    double
        products_share; /* of fp8_flops (fp4_flops) over bf16_flops, what is won beside bf16's own share of its peak */
    double products_width;    /* half width of that, as a logarithm */
    const char *products_are; /* where that comes from */
} spw_fp8_facts;

/* SPW_ECONFIG: the recipe does not run on such GPUs, or not as it was read; says what would be right. */
SPW_MUST_CHECK spw_status spw_fp8_facts_of(spw_fp8_recipe recipe, spw_gpu_generation gpu, spw_fp8_facts *out);
/* Of a job that was checked: the same, where nothing can be refused. */
spw_fp8_facts spw_fp8_facts_known(spw_fp8_recipe recipe, spw_gpu_generation gpu);

#endif
