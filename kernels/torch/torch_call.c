#include "kernels/torch/torch_call.h"

const char *spw_torch_run(const spw_experts_call *call) {
    return spw_experts_run(call) == SPW_OK ? NULL : spw_last_error();
}
