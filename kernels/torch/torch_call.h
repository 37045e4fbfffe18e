/* The entry of PyTorch's operators (spillway_torch.py, docs/torch.md). */
#ifndef SPW_KERNELS_TORCH_TORCH_CALL_H
#define SPW_KERNELS_TORCH_TORCH_CALL_H

#include "kernels/experts/experts_call.h"

/* spw_experts_run for a program of Python: NULL, or what was wrong, until this thread's next call. */
const char *spw_torch_run(const spw_experts_call *call);

#endif
