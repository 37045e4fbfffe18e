#include "sim/memory/megatron_tensors.h"

#define KIND_ROW(kind, name, formula, source) {name, formula, source},
const spw_tensor_kind spw_megatron_kinds[SPW_TENSOR_KINDS] = {SPW_BARE_KIND_LIST(KIND_ROW)};
