/* What the tensors of a bare Megatron stack are called, how large they are and where that was read. */
#ifndef SPW_SIM_MEMORY_MEGATRON_TENSORS_H
#define SPW_SIM_MEMORY_MEGATRON_TENSORS_H

#include "sim/memory/event_list.h"

#define SPW_SOURCE_DISPATCHER "token_dispatcher.py, MoEAlltoAllTokenDispatcher"
#define SPW_SOURCE_UTILS "moe_utils.py"
#define SPW_SOURCE_ROUTING "moe_utils.py, topk_routing_with_score_function"
#define SPW_SOURCE_EXPERTS "experts.py, TEGroupedMLP"
#define SPW_SOURCE_AUTOGRAD "autograd of the line that made it"

/* Kind, name, bytes, source. H hidden, F ffn, T tokens, K top_k, E experts, e experts of this rank, M rows received, N
 * rows sent, C capacity. */
#define SPW_BARE_KIND_LIST(X) \
    X(NORM_WEIGHT, "norm weights", "2 H a layer", "model") \
    X(ROUTER_WEIGHT, "router weights", "2 H E a layer", "model") \
    X(FC1_WEIGHT, "fc1 weights", "4 e H F a layer", "model") \
    X(FC2_WEIGHT, "fc2 weights", "2 e H F a layer", "model") \
    X(INITIAL, "an expert's fc1 in fp32 and bf16", "12 H F", "initialisation: freed, its segment stays") \
    X(DENSE_GRAD, "main_grad of norms and routers", "4 (H + H E) L", "DistributedDataParallel, fp32") \
    X(EXPERT_GRAD, "main_grad of experts", "12 e H F L", "DistributedDataParallel, fp32") \
    X(INPUT, "input and gradient of the output", "2 T H each", "the run") \
    X(CHOICES, "expert ids", "8 T K L", "the run") \
    X(WORKSPACE, "cuBLAS workspaces", "32 MiB each", "PyTorch, CUDAHooks on Hopper") \
    X(SCALAR, "a scalar", "1", "the run") \
    X(LAYER_OUTPUT, "output of the layer", "2 T H", "moe_layer.py") \
    X(NORM, "norm output", "2 T H", "saved by the router and by permute") \
    X(NORM_RSTD, "norm rstd", "4 T", "saved by RMSNorm") \
    X(NORM_FP32, "norm output in fp32", "4 T H", SPW_SOURCE_UTILS ", RouterGatingLinearFunction") \
    X(LOGITS, "logits", "4 T E", SPW_SOURCE_ROUTING ": gather saves its input") \
    X(SCORES, "chosen logits", "4 T K", SPW_SOURCE_ROUTING) \
    X(CHOSEN_PROBS, "chosen probs", "4 T K", SPW_SOURCE_ROUTING ": softmax saves its result") \
    X(ROUTE_TEMPORARY, "zeros and integer maps", "4 T E", SPW_SOURCE_ROUTING) \
    X(PROBS_NEW, "routing probs", "4 T E", SPW_SOURCE_ROUTING) \
    X(MAP_NEW, "routing map", "T E", SPW_SOURCE_ROUTING) \
    X(CAPACITY_VALUES, "top of the columns", "4 C E + 8 C E", \
      SPW_SOURCE_UTILS ", apply_router_token_dropping") \
    X(PROBS_KEPT, "routing probs, kept", "4 T E", SPW_SOURCE_DISPATCHER ".probs") \
    X(MAP_KEPT, "routing map, kept", "T E", SPW_SOURCE_DISPATCHER ".routing_map") \
    X(MAPPING_KEPT, "permutation, kept", "8 N", \
      SPW_SOURCE_DISPATCHER ".reversed_local_input_permutation_mapping") \
    X(SPLITS, "splits", "64", SPW_SOURCE_DISPATCHER ".preprocess; sizes fitted to the byte") \
    X(COUNTS, "counts", "64", SPW_SOURCE_DISPATCHER ".preprocess; sizes fitted to the byte") \
    X(MAP_COLUMNS, "routing map by columns", "T E", SPW_SOURCE_UTILS ", permute") \
    X(SORTED, "argsort of the map", "8 T E", \
      SPW_SOURCE_UTILS ", permute: the slice that is saved keeps all of it") \
    X(SORT_TEMPORARY, "sort", "8 T E and T E", "PyTorch, stable sort") \
    X(MAPPING_NEW, "permutation", "8 N", SPW_SOURCE_UTILS ", permute") \
    X(PROB_COLUMNS, "probs by columns", "4 T E", SPW_SOURCE_UTILS ", permute") \
    X(PROB_INDEX, "indices of probs", "8 N", \
      SPW_SOURCE_UTILS ", permute with padding: saved by index_select") \
    X(SENT_PROBS, "permuted probs", "4 N", SPW_SOURCE_UTILS ", permute") \
    X(SENT, "permuted rows", "2 N H", SPW_SOURCE_UTILS ", permute: held by a name until the layer ends") \
    X(RECEIVED, "received rows", "2 M H", SPW_SOURCE_DISPATCHER ".token_dispatch: held by a name") \
    X(RECEIVED_PROBS, "received probs", "4 M", SPW_SOURCE_DISPATCHER ".token_dispatch: held by a name") \
    X(FC1_INPUT, "fc1 input", "2 M H", SPW_SOURCE_DISPATCHER ".dispatch_postprocess, saved by fc1") \
    X(ROW_PROBS, "sorted probs", "4 M", \
      SPW_SOURCE_DISPATCHER ".dispatch_postprocess, saved by the activation") \
    X(FC1_OUTPUT, "fc1 output", "4 M F", SPW_SOURCE_EXPERTS ", saved by the activation") \
    X(FC2_INPUT, "fc2 input", "2 M F", SPW_SOURCE_EXPERTS ", saved by fc2") \
    X(FC2_OUTPUT, "fc2 output", "2 M H", SPW_SOURCE_EXPERTS ": held by a name while it is unsorted") \
    X(UNSORTED, "unsorted rows", "2 M H", SPW_SOURCE_DISPATCHER ".combine_preprocess") \
    X(COMBINED, "combined rows", "2 N H", SPW_SOURCE_DISPATCHER ".token_combine") \
    X(MOE_OUTPUT, "unpermuted output", "2 T H", SPW_SOURCE_UTILS ", unpermute") \
    X(D_X, "gradient of the layer's output", "2 T H", SPW_SOURCE_AUTOGRAD) \
    X(D_SENT, "gradient of sent rows", "2 N H", SPW_SOURCE_AUTOGRAD) \
    X(D_ROWS, "gradient of received rows", "2 M H", SPW_SOURCE_AUTOGRAD) \
    X(D_FC2_OUTPUT, "gradient of the fc2 output", "2 M H", SPW_SOURCE_AUTOGRAD) \
    X(D_FC2_INPUT, "gradient of the fc2 input", "2 M F", SPW_SOURCE_AUTOGRAD) \
    X(D_FC2_WEIGHT, "gradient of fc2 weights", "2 e H F", "bf16, before it is added to main_grad") \
    X(D_FC1_OUTPUT, "gradient of the fc1 output", "4 M F", SPW_SOURCE_AUTOGRAD) \
    X(D_PROBS, "gradient of probs", "4 M", SPW_SOURCE_AUTOGRAD) \
    X(D_FC1_INPUT, "gradient of the fc1 input", "2 M H", SPW_SOURCE_AUTOGRAD) \
    X(D_FC1_WEIGHT, "gradient of fc1 weights", "4 e H F", "bf16, before it is added to main_grad") \
    X(D_NORM, "gradient of the norm output", "2 T H", SPW_SOURCE_AUTOGRAD) \
    X(D_LOGITS, "gradient of logits", "4 T E", SPW_SOURCE_AUTOGRAD) \
    X(D_NORM_FP32, "router's input gradient in fp32", "4 T H", \
      SPW_SOURCE_UTILS ", RouterGatingLinearFunction") \
    X(D_NORM_ROUTER, "router's input gradient", "2 T H", SPW_SOURCE_UTILS ", RouterGatingLinearFunction") \
    X(D_NORM_INPUT, "gradient of the norm input", "2 T H", SPW_SOURCE_AUTOGRAD)

#define SPW_BARE_KIND_ENUM(kind, name, formula, source) SPW_BARE_##kind,
typedef enum spw_bare_kind { SPW_BARE_KIND_LIST(SPW_BARE_KIND_ENUM) SPW_BARE_KINDS } spw_bare_kind;
#undef SPW_BARE_KIND_ENUM
_Static_assert((int)SPW_BARE_KINDS <= (int)SPW_TENSOR_KINDS, "SPW_TENSOR_KINDS is too small");

extern const spw_tensor_kind spw_megatron_kinds[SPW_TENSOR_KINDS];

#endif
