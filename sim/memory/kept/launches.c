#include "sim/memory/kept/launches.h"

#include "sim/job/job.h"
#include "sim/schemes/list.h"

static bool option_is_full(const spw_scheme *scheme) { return spw_scheme_option_is(scheme, "graph", "full"); }

bool spw_launches_are_one_graph(const spw_job *job, const spw_scheme *scheme) {
    return job->cuda_graph == SPW_GRAPH_FULL_ITERATION || option_is_full(scheme);
}

#define OVERLAPPED ", exchanges behind another micro-batch"
const char *spw_launches_note(const spw_job *job) {
    static const char *const notes[][2] = {
        [SPW_GRAPH_NONE] = {"", OVERLAPPED},
        [SPW_GRAPH_LOCAL] = {", CUDA graphs of parts (local)", ", CUDA graphs of parts (local)" OVERLAPPED},
        [SPW_GRAPH_TRANSFORMER_ENGINE] = {", CUDA graphs of parts (transformer_engine)",
                                          ", CUDA graphs of parts (transformer_engine)" OVERLAPPED},
        [SPW_GRAPH_FULL_ITERATION] = {", a CUDA graph of an iteration",
                                      ", a CUDA graph of an iteration" OVERLAPPED}};
    return notes[job->cuda_graph][job->overlap_exchanges ? 1 : 0];
}
#undef OVERLAPPED

const char *spw_launches_graph_doubt(const spw_job *job) {
    if (job->cuda_graph == SPW_GRAPH_NONE) return NULL;
    return "CUDA graphs: their static buffers and pools are not counted";
}

const char *spw_launches_overlap_doubt(const spw_job *job) {
    return job->overlap_exchanges ? "overlap_moe_expert_parallel_comm: what the layer that runs forward "
                                    "beside it has at work is not counted"
                                  : NULL;
}
