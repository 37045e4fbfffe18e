/* Operations that the modules of transformers are made of, each with what it keeps and what its gradient allocates; what makes them
 * (sim/memory/tensors/transformers_modules.h) says where they were read. Bytes and rows are of whole tensors. x keeps its name. */
#ifndef SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_OPERATIONS_H
#define SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_OPERATIONS_H

#include "sim/memory/tensors/transformers_modules.h"

enum { SPW_HF_FP32 = 4, SPW_HF_INDEX = 8 }; /* bytes */
enum { SPW_HF_QUARTER = 4 };                /* of a head, one part in so many */

/* Steps of a gradient: i whose it is, n its bytes, r bytes that are read, f FLOP. */
#define SPW_TO(i, n, r) \
    { SPW_GRADIENT_TO, i, n, r, 0.0 }
#define SPW_TO_PRODUCT(i, n, f) \
    { SPW_GRADIENT_TO, i, n, 0.0, f }
#define SPW_TO_TEMP(i, n, r) \
    { SPW_GRADIENT_TEMP, i, n, r, 0.0 }
#define SPW_TO_WORK(i, n) \
    { SPW_GRADIENT_WORK, i, n, 0.0, 0.0 }
#define SPW_TO_DONE \
    { SPW_GRADIENT_DONE, 0, 0, 0.0, 0.0 }
#define SPW_TO_PASS(i) \
    { SPW_GRADIENT_PASS, i, 0, 0.0, 0.0 }
/* What the sorted gradient of an index of n entries takes: indices and positions, twice, and the sort's. */
#define SPW_TO_SORTED(i, n) \
    SPW_TO_WORK(i, SPW_HF_INDEX *(n)), SPW_TO_TEMP(i, SPW_HF_INDEX *(n), 0.0), \
        SPW_TO_TEMP(i, SPW_HF_INDEX *(n), 0.0), SPW_TO_TEMP(i, SPW_HF_INDEX *(n), 0.0), \
        SPW_TO_TEMP(i, SPW_HF_INDEX *(n), 0.0), SPW_TO_WORK(i, spw_hf_sort_bytes(n))
#define SPW_HF_LEAF(m, at) ((m)->weight[at].leaf)

/* Bytes of a number of a parameter's gradient, as its first is kept. */
static inline uint64_t spw_hf_gradient_bytes(const spw_hf_model *m) {
    return spw_hf_casts_adapters(m->shape) ? spw_hf_trained_bytes(m->shape) : m->shape->element_bytes;
}
uint64_t spw_hf_sort_bytes(uint64_t n); /* what a radix sort takes for itself */

/* A parameter [rows, columns]; a matrix [out, in], with the adapter beside it where the model has them. The number of it. */
size_t spw_hf_add_weight(spw_hf_model *m, uint64_t rows, uint64_t columns, bool adapter);
size_t spw_hf_add_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts);
size_t spw_hf_add_biased_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts);

/* n numbers from one width to another; the same tensor where these are equal. */
spw_value spw_hf_cast(spw_tape *t, spw_value x, uint64_t n, size_t from, size_t to);
spw_value spw_hf_add(spw_tape *t, spw_value a, spw_value b, uint64_t bytes);
spw_value spw_hf_multiply(spw_tape *t, spw_value a, spw_value b, uint64_t bytes); /* both of as many */
spw_value spw_hf_silu(spw_tape *t, spw_value x, uint64_t bytes);
/* x w^T; w a parameter, or a tensor made of one, which is kept. of_sequences: what comes back to x is a view of the product's [rows, in]. */
spw_value spw_hf_product(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in, uint64_t out,
                         bool of_sequences);
/* x w^T + bias, a parameter. */
spw_value spw_hf_biased_product(spw_hf_model *m, spw_value x, spw_value w, size_t bias, uint64_t rows,
                                bool of_sequences);
/* The same with x and w in fp32. */
spw_value spw_hf_wide_product(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in,
                              uint64_t out);
/* nn.Linear, or PEFT's: result = base(x); result = result + B(A(x)) * scaling. */
spw_value spw_hf_linear(spw_hf_model *m, spw_value x, size_t at, uint64_t rows, bool adapts);
/* A weight that no gradient comes to; a norm's, as the model keeps it. */
size_t spw_hf_add_untrained(spw_hf_model *m, uint64_t rows, uint64_t columns);
size_t spw_hf_add_norm(spw_hf_model *m, uint64_t width);
/* x / sqrt(mean of x^2) in x's own format, of `bytes` an element. */
spw_value spw_hf_plain_norm(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, uint64_t bytes);
/* RMSNorm: in fp32 up to the weight; see spw_transformers_scale. */
spw_value spw_hf_norm(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, size_t at);
/* Its parts: x / rms of rows in fp32, and *mean, whose name goes with the norm; times the weight, in either way. */
spw_value spw_hf_normalize(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, spw_value *mean);
spw_value spw_hf_weigh_narrow(spw_hf_model *m, spw_value scaled, uint64_t rows, uint64_t width, size_t at);
spw_value spw_hf_weigh_wide(spw_hf_model *m, spw_value scaled, uint64_t rows, uint64_t width, size_t at);
/* A parameter as operations in fp32 read it: a copy where it is not in fp32. */
spw_value spw_hf_widened(spw_hf_model *m, size_t at);
/* A parameter that stays in fp32 beside bf16 ones; under FSDP2 all of a unit are alike. */
size_t spw_hf_add_wide_weight(spw_hf_model *m, uint64_t rows, uint64_t columns);
/* What is kept is the output, of `bytes`: sigmoid, exponential, relu; the input: square, logarithm, softplus. */
spw_value spw_hf_keeping_output(spw_tape *t, spw_value x, uint64_t bytes);
spw_value spw_hf_keeping_input(spw_tape *t, spw_value x, uint64_t bytes);
/* Its gradient is made of a product, which is there meanwhile [torch 2.11 aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out]. */
spw_value spw_hf_softmax(spw_tape *t, spw_value x, uint64_t bytes);
/* A copy in another order of dimensions. */
spw_value spw_hf_copy(spw_tape *t, spw_value x, uint64_t bytes);
/* a b, where b, of b_bytes, is spread over a. */
spw_value spw_hf_spread(spw_tape *t, spw_value a, spw_value b, uint64_t bytes, uint64_t b_bytes);
/* x times a constant or a tensor without a gradient, which is kept; {0}: a number. */
spw_value spw_hf_scale(spw_tape *t, spw_value x, spw_value by, uint64_t bytes);
/* A part of x, of `whole` bytes, whose gradient is of the whole. */
spw_value spw_hf_part(spw_tape *t, spw_value x, uint64_t whole);
/* a and b behind each other, of `bytes` together. */
spw_value spw_hf_join(spw_tape *t, spw_value a, spw_value b, uint64_t bytes);
/* masked_fill: a copy; in place, a view whose gradient is one. */
spw_value spw_hf_masked(spw_tape *t, spw_value x, spw_value mask, uint64_t bytes, bool in_place);
/* x[index] of n entries: its gradient of `from` bytes is added up into zeros, sorted by index. */
spw_value spw_hf_take(spw_tape *t, spw_value x, spw_value index, uint64_t n, uint64_t bytes, uint64_t from);

/* x cos + rotate_half(x) sin. */
spw_value spw_hf_rotate(spw_hf_model *m, spw_value x, uint64_t bytes);
/* Fused attention: elements a token of the queries, keys and output; what keeps the values is `v`. */
typedef struct spw_hf_scores {
    uint64_t heads, query, key, out;
    spw_value sinks; /* a parameter, or none */
} spw_hf_scores;
spw_value spw_hf_attend(spw_hf_model *m, const spw_hf_scores *s, spw_value q, spw_value k, spw_value v);

/* x cos + rotate_half(x) sin of `bytes`. */
spw_value spw_hf_rotate(spw_hf_model *m, spw_value x, uint64_t bytes);

/* What a router gives: of T K each, and its logits, which have a name as long. */
typedef struct spw_hf_routes {
    spw_value weights, choices, logits;
} spw_hf_routes;
spw_hf_routes spw_hf_route(spw_hf_model *m, const spw_hf_layer *l, spw_value x);

/* Adapters beside parameters that belong to no nn.Linear: peft 0.21.2 tuners/lora/layer.py, ParamWrapper. It adds scaling B A to the
 * parameter before each forward pass of the module, so a whole copy of the weights is there, and stays for the backward pass.
 *   experts [E, out, in]: A [r E, in], B [out, r E]; of gate and up in one r is twice the rank [utils/transformers_weight_conversion.py,
 *   _MOE_FUSED_TARGETS]; router [E, H]: A [r, H], B [E, r]. */
/* Gate and up, down, the router, with what stands beside them. */
void spw_hf_add_experts(spw_hf_model *m, spw_hf_layer *l);
/* What registering a parametrization makes once, to look at it: the weights with their adapters. */
void spw_hf_try_experts(spw_hf_model *m);
/* Gate and up (wide) or down, and the router's, each with its adapter added where it is first used; the parameter as it is where
 * nothing stands beside it. */
spw_value spw_hf_expert_weight(spw_hf_model *m, const spw_hf_layer *l, bool wide);
spw_value spw_hf_router_weight(spw_hf_model *m, size_t at);
/* act(gate) * up of `bytes` each. */
spw_value spw_hf_gated(spw_hf_model *m, spw_value gate, spw_value up, uint64_t bytes);

/* Residual streams [DeepseekV4HyperConnection]: streams become one before a mixer or FFN and several behind it. */
typedef struct spw_hf_mix {
    spw_value behind, between, collapsed;
} spw_hf_mix;
void spw_hf_stream_weights(spw_hf_model *m, size_t at[SPW_HF_STREAM_WEIGHTS], bool head);
spw_hf_mix spw_hf_collapse(spw_hf_model *m, const size_t at[SPW_HF_STREAM_WEIGHTS], spw_value streams);
/* Takes the names of `mix` and of `made`. */
spw_value spw_hf_expand(spw_hf_model *m, spw_hf_mix mix, spw_value made, spw_value streams);
spw_value spw_hf_stream_head(spw_hf_model *m, spw_value streams);

/* The dense FFN or the experts of a layer, and their weights. */
void spw_hf_ffn_weights(spw_hf_model *m, spw_hf_layer *l);
spw_value spw_hf_ffn(spw_hf_model *m, const spw_hf_layer *l, spw_value x);

#endif
