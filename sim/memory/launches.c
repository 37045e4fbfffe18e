#include "sim/memory/launches.h"

#include "sim/input/job.h"
#include "sim/input/remat.h"
#include "sim/input/trainer.h"
#include "sim/memory/pipeline.h"
#include "sim/schemes/list.h"

static const char GRAPHS[] = "cuda_graph_impl", OVERLAP[] = "overlap_moe_expert_parallel_comm";

static bool option_is_full(const spw_scheme *scheme) { return spw_scheme_option_is(scheme, "graph", "full"); }

bool spw_launches_are_one_graph(const spw_job *job, const spw_scheme *scheme) {
    return job->cuda_graph == SPW_GRAPH_FULL_ITERATION || option_is_full(scheme);
}

/* A graph of an iteration replays launches whose sizes are known. */
static spw_status check_whole(const spw_job *job, const spw_scheme *scheme) {
    const char *graph = spw_cuda_graph_name(job->cuda_graph);
    if (option_is_full(scheme)) {
        if (job->cuda_graph == SPW_GRAPH_FULL_ITERATION || job->cuda_graph == SPW_GRAPH_NONE) return SPW_OK;
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': graph=full is a graph of a whole iteration, and %s is %s; leave the "
                        "key out, or write graph=none",
                        scheme->text, GRAPHS, graph);
    }
    if (job->cuda_graph != SPW_GRAPH_FULL_ITERATION || spw_scheme_fills_slots(scheme)) return SPW_OK;
    if (scheme->type->megatron.unread)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': %s: full_iteration; write graph=full among the scheme's options, by "
                        "which its buffers are counted",
                        scheme->text, GRAPHS);
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': %s: full_iteration needs rows whose number the host does not read; use "
        "megatron-syncfree:graph=full, or capacity_factor=C,pad=true, or transformer_engine for graphs of "
        "parts of a layer",
        scheme->text, GRAPHS);
}

static spw_status check_parts(const spw_job *job, const spw_scheme *scheme) {
    const bool parts = job->cuda_graph == SPW_GRAPH_LOCAL || job->cuda_graph == SPW_GRAPH_TRANSFORMER_ENGINE;
    if (!parts || !spw_remat_runs_again(job->remat, 0)) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s': %s: %s does not go with remat %s: Megatron-Core takes full recompute with "
                    "full_iteration alone; use --remat none or a list of modules, or %s: none",
                    scheme->text, GRAPHS, spw_cuda_graph_name(job->cuda_graph), spw_remat_name(job->remat),
                    GRAPHS);
}

static spw_status check_overlap(const spw_job *job, const spw_scheme *scheme) {
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const char *why = NULL;
    if (!job->overlap_exchanges) return SPW_OK;
    if (spw_remat_runs_again(job->remat, SPW_MODULE_MOE))
        why = "does not go with recompute of whole layers or of moe; use --remat none or other modules";
    else if (scheme->type->megatron.dispatcher == SPW_MEGATRON_ALL_GATHER)
        why = "takes megatron-alltoall, -flex and -syncfree, not all-gathers";
    else if (job->expert <= 1)
        why = "needs expert parallelism; use --expert-parallel 2 or more, or leave it out";
    else if (pipeline.stages > 1 && pipeline.chunks <= 1)
        why = "with pipeline stages needs virtual stages; use --virtual-stages 2 or more";
    if (why == NULL) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "scheme '%s': %s %s", scheme->text, OVERLAP, why);
}

spw_status spw_launches_check(const spw_job *job, const spw_scheme *scheme) {
    const bool said = job->cuda_graph != SPW_GRAPH_NONE || job->overlap_exchanges;
    spw_status status = SPW_OK;
    if (said && !spw_scheme_trainer(scheme)->takes_splits)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': %s is a key of Megatron-Core's schemes; leave it out, or use one of "
                        "them, as --scheme megatron-alltoall",
                        scheme->text, job->overlap_exchanges ? OVERLAP : GRAPHS);
    SPW_TRY(check_whole(job, scheme));
    SPW_TRY(check_parts(job, scheme));
    SPW_TRY(check_overlap(job, scheme));

cleanup:
    return status;
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
