/* What Megatron-Core does to hide the host and the wire: CUDA graphs (--cuda-graph-impl) and exchanges behind another micro-batch
 * (--overlap-moe-expert-parallel-comm). What goes with what: NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py. */
#ifndef SPW_SIM_MEMORY_KEPT_LAUNCHES_H
#define SPW_SIM_MEMORY_KEPT_LAUNCHES_H

#include "base/status.h"
#include "sim/schemes/point.h"

/* Is an iteration one CUDA graph? By the scheme's option, or the job's key. */
bool spw_launches_are_one_graph(const spw_job *job, const spw_scheme *scheme);

/* ", CUDA graphs of parts (local), exchanges behind another micro-batch", for headings; "" where there is neither. Static text. */
const char *spw_launches_note(const spw_job *job);

/* What of their memory is not counted, for `outside the fit`; NULL: nothing. Static text. */
const char *spw_launches_graph_doubt(const spw_job *job);
const char *spw_launches_overlap_doubt(const spw_job *job);

#endif
