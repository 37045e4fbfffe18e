#include "sim/job/recipe/fp8_recipe.h"

#include "sim/machine/stack_defaults.h"

static const double TILE = 128.0 * 128.0;

typedef struct recipe {
    const char *name;
    bool hopper, blackwell, cdna3, cdna4; /* does it run there, as it was read? */
    spw_fp8_facts facts;                  /* without what depends on the GPU */
} recipe;

#define MEASURED "measured on one H200 at expert shapes (notebooks_data/kernels/h200_fp8_products.csv)"
#define STATED "stated, not measured"
/* What products take: transformer_engine/pytorch/utils.py assert_dim_for_fp8_exec. */
#define OPERANDS \
    .copy_bytes = 1.0, .written_bytes = 1.0, .row_multiple = 8, .width_multiple = 16, .gather_tile = 1
static const recipe recipes[SPW_FP8_RECIPES] = {
    [SPW_FP8_NONE] = {.name = "none"},
    [SPW_FP8_DELAYED] = {"delayed",
                         true,
                         true,
                         true,
                         true,
                         {.cast_bytes = 2.0, .align = 16, OPERANDS, .products_are = MEASURED}},
    [SPW_FP8_TENSORWISE] =
        {"tensorwise",
         true,
         true,
         true,
         true,
         {.cast_bytes = 4.0, .align = 16, OPERANDS, .from_original = true, .products_are = MEASURED}},
    [SPW_FP8_BLOCKWISE] = {"blockwise",
                           true,
                           false,
                           true,
                           true,
                           {.cast_bytes = 2.0,
                            .align = 16,
                            .row_multiple = 8,
                            .width_multiple = 16,
                            .gather_tile = 128,
                            .from_original = true,
                            .settle_bytes = 2.0,
                            .apart_bytes = 1.0,
                            .copy_bytes = 1.0 + 1.0 / 32.0,
                            .written_bytes = 1.0,
                            .both = true,
                            .scaled = true,
                            .products_are = MEASURED}},
    [SPW_FP8_MXFP8] = {"mxfp8",
                       false,
                       true,
                       false,
                       true,
                       {.cast_bytes = 2.0,
                        .align = 32,
                        .row_multiple = 32,
                        .width_multiple = 32,
                        .gather_tile = 1,
                        .from_original = true,
                        .copy_bytes = 1.0 + 1.0 / 32.0,
                        .written_bytes = 1.0,
                        .both = true,
                        .scaled = true,
                        .products_are = "assumed as of tensorwise"}},
    [SPW_FP4_NVFP4] =
        {"nvfp4",
         false,
         true,
         false,
         false,
         /* read once for the greatest element, once to cast; gathered columns are laid out anew */
         {.cast_bytes = 4.0,
          .align = 128,
          .row_multiple = 32,
          .width_multiple = 32,
          .gather_tile = 16,
          .from_original = true,
          .settle_bytes = 2.0 * (0.5 + 1.0 / 16.0),
          .apart_bytes = 0.5 + 1.0 / 16.0,
          .copy_bytes = 0.5 + 1.0 / 16.0,
          .written_bytes = 0.5 + 1.0 / 16.0,
          .fp4_group = 16,
          .both = true,
          .scaled = true,
          .products_are = STATED}},
    [SPW_FP4_MXFP4] = {"mxfp4",
                       false,
                       false,
                       false,
                       true,
                       {.cast_bytes = 2.0,
                        .align = 128,
                        .row_multiple = 32,
                        .width_multiple = 32,
                        .gather_tile = 1,
                        .from_original = true,
                        .copy_bytes = 0.5 + 1.0 / 32.0,
                        .written_bytes = 0.5 + 1.0 / 32.0,
                        .fp4_group = 32,
                        .both = true,
                        .scaled = true,
                        .products_are = STATED}},
};

#undef OPERANDS
#undef STATED

static const struct {
    const spw_coefficient *share, *width;
} products[SPW_FP8_RECIPES] = {
    [SPW_FP8_DELAYED] = {&spw_default_fp8_delayed_share, &spw_default_fp8_delayed_width},
    [SPW_FP8_TENSORWISE] = {&spw_default_fp8_tensorwise_share, &spw_default_fp8_tensorwise_width},
    [SPW_FP8_BLOCKWISE] = {&spw_default_fp8_blockwise_share, &spw_default_fp8_blockwise_width},
    [SPW_FP8_MXFP8] = {&spw_default_fp8_mxfp8_share, &spw_default_fp8_mxfp8_width},
    [SPW_FP4_NVFP4] = {&spw_default_fp4_nvfp4_share, &spw_default_fp4_nvfp4_width},
    [SPW_FP4_MXFP4] = {&spw_default_fp4_mxfp4_share, &spw_default_fp4_mxfp4_width},
};

const char *spw_fp8_recipe_name(spw_fp8_recipe r) { return recipes[r].name; }
bool spw_fp8_recipe_is_fp4(spw_fp8_recipe r) { return recipes[r].facts.fp4_group > 0; }

static bool runs_on(spw_fp8_recipe r, spw_gpu_generation gpu) {
    switch (gpu) {
    case SPW_GPU_HOPPER: return recipes[r].hopper;
    case SPW_GPU_BLACKWELL: return recipes[r].blackwell;
    case SPW_GPU_CDNA3: return recipes[r].cdna3;
    case SPW_GPU_CDNA4: return recipes[r].cdna4;
    default: return false;
    }
}

static spw_status refuse(spw_fp8_recipe r, spw_gpu_generation gpu) {
    if (gpu == SPW_GPU_NONE)
        return spw_fail(SPW_ECONFIG,
                        "recipe %s is TransformerEngine's, and the cluster has no GPUs (gpu_generation: "
                        "none); take recipe: "
                        "none",
                        recipes[r].name);
    if (gpu == SPW_GPU_OTHER)
        return spw_fail(SPW_ECONFIG,
                        "recipe %s: TransformerEngine's copies and layouts were read for Hopper, Blackwell, "
                        "CDNA 3 and 4; the cluster's gpu_generation is other: set it to hopper, blackwell, "
                        "cdna3 or cdna4, or take recipe: none",
                        recipes[r].name);
    static const char *const ways_out[SPW_FP8_RECIPES] = {
        [SPW_FP8_BLOCKWISE] =
            "recipe blockwise is made of mxfp8's products on Blackwell, which is not modelled; use mxfp8",
        [SPW_FP8_MXFP8] =
            "recipe mxfp8 needs products of Blackwell or CDNA 4; elsewhere use blockwise, tensorwise or "
            "delayed",
        [SPW_FP4_NVFP4] =
            "recipe nvfp4 needs FP4 products of Blackwell (B200, GB200, B300, GB300); on CDNA 4 use mxfp4, "
            "elsewhere blockwise, tensorwise or delayed",
        [SPW_FP4_MXFP4] =
            "recipe mxfp4 is of AMD's TransformerEngine and needs FP4 products of CDNA 4 (MI355X); on "
            "Blackwell use nvfp4 or mxfp8, elsewhere blockwise, tensorwise or delayed"};
    return spw_fail(SPW_ECONFIG, "%s", ways_out[r]);
}

spw_status spw_fp8_facts_of(spw_fp8_recipe r, spw_gpu_generation gpu, spw_fp8_facts *out) {
    const bool hopper = gpu == SPW_GPU_HOPPER;
    *out = (spw_fp8_facts){.align = 1};
    if (r == SPW_FP8_NONE) return SPW_OK;
    if (!runs_on(r, gpu)) return refuse(r, gpu);
    *out = recipes[r].facts;
    out->products_share = products[r].share->value;
    out->products_width = products[r].width->value;
    if (!out->both && hopper) out->settle_bytes = 2.0, out->apart_bytes = 1.0; /* transposed */
    out->both = out->both || hopper;
    const double copies = out->both ? 2.0 : 1.0;
    out->weight_bytes = copies * out->copy_bytes;
    if (r == SPW_FP8_BLOCKWISE) out->weight_bytes = copies * (1.0 + (double)sizeof(float) / TILE);
    out->cast_bytes += copies * out->written_bytes;
    if ((gpu == SPW_GPU_CDNA3 || gpu == SPW_GPU_CDNA4) && !spw_fp8_recipe_is_fp4(r))
        out->products_width = spw_default_fp8_amd_width.value,
        out->products_are = "assumed as on NVIDIA's GPUs";
    return SPW_OK;
}

spw_fp8_facts spw_fp8_facts_known(spw_fp8_recipe r, spw_gpu_generation gpu) {
    spw_fp8_facts facts;
    return spw_fp8_facts_of(r, gpu, &facts) == SPW_OK ? facts : (spw_fp8_facts){.align = 1};
}
