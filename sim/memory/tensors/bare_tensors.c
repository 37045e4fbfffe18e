#include "sim/memory/tensors/bare_tensors.h"

#include <string.h>

#define DISPATCHER "token_dispatcher.py, MoEAlltoAllTokenDispatcher"
#define UTILS "moe_utils.py"
#define ROUTING "moe_utils.py, topk_routing_with_score_function"
#define EXPERTS "experts.py, TEGroupedMLP"
#define AUTOGRAD "autograd of the line that made it"

/* A kind and the tensors that are of it: those of the layer (sim/schemes/megatron/megatron_alltoall.c), and those around it. */
static const struct {
    spw_tensor_kind kind;
    const char *tensor[8];
} kinds[] = {
    {{"norm weights", "2 H a layer", "model"}, {"norm_weight"}},
    {{"router weights", "2 H E a layer", "model"}, {"router_weight"}},
    {{"fc1 weights", "4 e H F a layer", "model"}, {"fc1_weight"}},
    {{"fc2 weights", "2 e H F a layer", "model"}, {"fc2_weight"}},
    {{"an expert's fc1 in fp32 and bf16", "12 H F", "initialisation: freed, its segment stays"},
     {"initial_weight"}},
    {{"main_grad of norms and routers", "4 (H + H E) L", "DistributedDataParallel, fp32"}, {"dense_grad"}},
    {{"main_grad of experts", "12 e H F L", "DistributedDataParallel, fp32"}, {"expert_grad"}},
    {{"input and gradient of the output", "2 T H each", "the run"}, {"input", "d_output"}},
    {{"expert ids", "8 T K L", "the run"}, {"expert_ids"}},
    {{"cuBLAS workspaces", "32 MiB each", "PyTorch, CUDAHooks on Hopper"}, {"workspace", "other_workspace"}},
    {{"a scalar", "1", "the run"}, {"scalar"}},
    {{"output of the layer", "2 T H", "moe_layer.py"}, {"layer_output"}},
    {{"norm output", "2 T H", "saved by the router and by permute"}, {"norm"}},
    {{"norm rstd", "4 T", "saved by RMSNorm"}, {"norm_rstd"}},
    {{"norm output in fp32", "4 T H", UTILS ", RouterGatingLinearFunction"}, {"router_input"}},
    {{"logits", "4 T E", ROUTING ": gather saves its input"}, {"logits"}},
    {{"chosen logits", "4 T K", ROUTING}, {"chosen_logits"}},
    {{"chosen probs", "4 T K", ROUTING ": softmax saves its result"}, {"chosen_probs"}},
    {{"zeros and integer maps", "4 T E", ROUTING},
     {"zero_probs", "zero_map", "int_map", "chosen_map", "kept_map", "d_probs", "d_chosen_map"}},
    {{"top of the columns", "4 C E + 8 C E", UTILS ", apply_router_token_dropping"},
     {"top_values", "top_indices"}},
    {{"routing probs, kept", "4 T E", DISPATCHER ".probs"}, {"probs"}},
    {{"routing map, kept", "T E", DISPATCHER ".routing_map"}, {"routing_map"}},
    {{"permutation, kept", "8 N", DISPATCHER ".reversed_local_input_permutation_mapping"}, {"permutation"}},
    {{"splits", "64", DISPATCHER ".preprocess; sizes fitted to the byte"}, {"splits"}},
    {{"counts", "64", DISPATCHER ".preprocess; sizes fitted to the byte"}, {"counts"}},
    {{"routing map by columns", "T E", UTILS ", permute"}, {"map_by_expert"}},
    {{"argsort of the map", "8 T E", UTILS ", permute: the slice that is saved keeps all of it"},
     {"argsort"}},
    {{"sort", "8 T E and T E", "PyTorch, stable sort"}, {"sorted_map", "sort_indices"}},
    {{"probs by columns", "4 T E", UTILS ", permute"}, {"probs_by_expert"}},
    {{"indices of probs", "8 N", UTILS ", permute with padding: saved by index_select"}, {"prob_index"}},
    {{"permuted probs", "4 N", UTILS ", permute"}, {"sent_probs"}},
    {{"permuted rows", "2 N H", UTILS ", permute: held by a name until the layer ends"}, {"sent_rows"}},
    {{"received rows", "2 M H", DISPATCHER ".token_dispatch: held by a name"}, {"received_rows"}},
    {{"received probs", "4 M", DISPATCHER ".token_dispatch: held by a name"}, {"received_probs"}},
    {{"gathered rows", "2 M H",
      DISPATCHER ".dispatch_postprocess: all-gather among those who share the experts"},
     {"gathered_rows"}},
    {{"gathered probs", "4 M", DISPATCHER ".dispatch_postprocess"}, {"gathered_probs"}},
    {{"flat copy", "of a gather or scatter", "PyTorch, ProcessGroupNCCL: joins pieces of one size"},
     {"flat_rows", "flat_fp32"}},
    {{"fc1 input", "2 M H", DISPATCHER ".dispatch_postprocess, saved by fc1"}, {"fc1_input"}},
    {{"sorted probs", "4 M", DISPATCHER ".dispatch_postprocess, saved by the activation"},
     {"row_probs", "d_received_probs", "d_gathered_probs"}},
    {{"fc1 output", "4 M F", EXPERTS ", saved by the activation"}, {"fc1_output", "expert_fc1_output"}},
    {{"fc2 input", "2 M F", EXPERTS ", saved by fc2"}, {"fc2_input", "expert_fc2_input"}},
    {{"fc2 output", "2 M H", EXPERTS ": held by a name while it is unsorted"},
     {"fc2_output", "expert_fc2_output"}},
    {{"unsorted rows", "2 M H", DISPATCHER ".combine_preprocess"}, {"unsorted_rows"}},
    {{"scatter input in fp32", "4 M H", DISPATCHER ".combine_preprocess: cast to the type of probs"},
     {"scatter_input_fp32"}},
    {{"scattered rows in fp32", "4 R H", DISPATCHER ".combine_preprocess"}, {"scattered_fp32"}},
    {{"scattered rows", "2 R H", DISPATCHER ".combine_preprocess"}, {"scattered_rows"}},
    {{"combined rows", "2 N H", DISPATCHER ".token_combine"}, {"combined_rows"}},
    {{"unpermuted output", "2 T H", UTILS ", unpermute"}, {"output"}},
    {{"gradient of the layer's output", "2 T H", AUTOGRAD}, {"d_layer_output"}},
    {{"gradient of sent rows", "2 N H", AUTOGRAD}, {"d_combined_rows", "d_sent_rows"}},
    {{"gradient of received rows", "2 M H", AUTOGRAD}, {"d_unsorted_rows", "d_received_rows"}},
    {{"gradient of scattered rows", "2 R H and 4 R H", AUTOGRAD}, {"d_scattered_rows", "d_scattered_fp32"}},
    {{"gradient of the scatter input", "4 M H", AUTOGRAD}, {"d_scatter_input_fp32"}},
    {{"gradient of gathered rows", "2 M H", AUTOGRAD}, {"d_gathered_rows"}},
    {{"gradient of the fc2 output", "2 M H", AUTOGRAD}, {"d_fc2_output"}},
    {{"gradient of the fc2 input", "2 M F", AUTOGRAD}, {"d_fc2_input", "d_expert_fc2_input"}},
    {{"gradient of fc2 weights", "2 e H F", "bf16, before it is added to main_grad"},
     {"d_fc2_weight", "d_expert_fc2_weight"}},
    {{"gradient of the fc1 output", "4 M F", AUTOGRAD}, {"d_fc1_output", "d_expert_fc1_output"}},
    {{"gradient of probs", "4 M", AUTOGRAD}, {"d_row_probs", "d_expert_probs"}},
    {{"gradient of the fc1 input", "2 M H", AUTOGRAD}, {"d_fc1_input", "d_expert_fc1_input"}},
    {{"gradient of fc1 weights", "4 e H F", "bf16, before it is added to main_grad"},
     {"d_fc1_weight", "d_expert_fc1_weight"}},
    {{"gradient of the norm output", "2 T H", AUTOGRAD}, {"dx"}},
    {{"gradient of logits", "4 T E", AUTOGRAD}, {"d_logits"}},
    {{"router's input gradient in fp32", "4 T H", UTILS ", RouterGatingLinearFunction"},
     {"d_router_input_fp32"}},
    {{"router's input gradient", "2 T H", UTILS ", RouterGatingLinearFunction"}, {"d_router_input"}},
    {{"gradient of the norm input", "2 T H", AUTOGRAD}, {"d_norm_input"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, NAMES = sizeof kinds[0].tensor / sizeof *kinds[0].tensor };
_Static_assert((int)KINDS <= (int)SPW_TENSOR_KINDS, "SPW_TENSOR_KINDS is too small");

const spw_tensor_kind *spw_bare_kind(size_t kind) { return kind < KINDS ? &kinds[kind].kind : NULL; }

bool spw_bare_kind_is_weight(size_t kind) { return strcmp(kinds[kind].kind.source, "model") == 0; }

spw_status spw_bare_kind_of(const char *tensor, uint16_t *out) {
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < NAMES && kinds[k].tensor[i] != NULL; i++) {
            if (strcmp(kinds[k].tensor[i], tensor) != 0) continue;
            *out = (uint16_t)k;
            return SPW_OK;
        }
    }
    return spw_fail(
        SPW_EARG,
        "tensor '%s' of a Megatron layer has no kind; sim/memory/tensors/bare_tensors.c should list it",
        tensor);
}
