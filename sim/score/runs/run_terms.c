#include "sim/score/runs/run_terms.h"

#include "sim/replay/made_routing.h"

#include <string.h>

enum { MEGATRON = 1U << SPW_RUN_MEGATRON };

#define STEP(said, of, is) \
    { .column = "model", .word = (said), .within = true, .frameworks = MEGATRON, .key = (of), .value = (is) }
#define UNTUNED_STEP(said) STEP(said, "untuned_release", "true")
#define UNFUSED_ROUTER(said) STEP(said, "moe_router_fusion", "false")

/* `refused` of a word goes when a key of the job says it: write the key and its value in the same row. */
const spw_run_term spw_run_terms[] = {
    /* precision: a recipe of TransformerEngine; the row counts to which its products are padded */
    {.column = "precision", .word = "bf16"},
    {.column = "precision",
     .word = "mxfp8",
     .frameworks = MEGATRON,
     .key = "precision.recipe",
     .option = "align=32"},
    {.column = "precision",
     .word = NULL,
     .frameworks = MEGATRON,
     .key = "precision.recipe",
     .option = "align=16"},
    {.column = "precision", .word = NULL, .key = "precision.recipe"},
    /* CUDA graphs: see also spw_run_graph_is_full() */
    {.column = "graph", .word = ""},
    {.column = "graph", .word = "none"},
    {.column = "graph", .word = "full_iteration"},
    {.column = "graph", .word = "local"},
    {.column = "graph",
     .word = "transformer_engine",
     .frameworks = MEGATRON,
     .key = "cuda_graph_impl",
     .value = "transformer_engine"},
    {.column = "graph",
     .word = NULL,
     .refused =
         "an unknown kind of CUDA graphs; known are none, full_iteration, local and transformer_engine"},
    /* exchanges of one micro-batch behind the work of another (overlap_moe_expert_parallel_comm) */
    {.column = "ep_overlap", .word = ""},
    {.column = "ep_overlap", .word = "False"},
    {.column = "ep_overlap",
     .word = "True",
     .frameworks = MEGATRON,
     .key = "overlap_moe_expert_parallel_comm",
     .value = "true"},
    {.column = "ep_overlap", .word = NULL, .refused = "ep_overlap is neither True nor False"},
    /* what stands in words of its own */
    {.column = "model",
     .word = "tokendrop",
     .within = true,
     .scheme = "megatron-alltoall",
     .option = "capacity_factor=1,pad=true"},
    {.column = "model",
     .word = "tokendrop",
     .within = true,
     .scheme = "megatron-flex",
     .option = "capacity_factor=1"},
    {.column = "model", .word = "delay_wgrad_compute", .within = true},
    {.column = "model",
     .word = "optimizer offload 100%",
     .within = true,
     .key = "optimizer_on_host",
     .value = "1"},
    {.column = "notes",
     .word = "offload of ['expert_fc1']",
     .within = true,
     .key = "offload_modules",
     .value = "[expert_fc1]"},
    /* steps of NVIDIA's ladder of optimizations (Megatron-LM, DeepSeek-V3 on GB200) before "CPU-side optimization" */
    UNTUNED_STEP("AlltoAll: Baseline"),
    UNTUNED_STEP("Permute kernel Optimization"),
    UNFUSED_ROUTER("AlltoAll: Baseline"),
    UNFUSED_ROUTER("Permute kernel Optimization"),
    UNTUNED_STEP("AlltoAll: Router fusion"),
    UNTUNED_STEP("DeepEP: Enable DeepEP"),
    UNTUNED_STEP("DeepEP: Remove up_proj recompute"),
    {.column = "model", /* a later step begins alike */
     .word = "MXFP8 DeepEP: CUDA Graphs",
     .frameworks = MEGATRON,
     .key = "untuned_release",
     .value = "true"},
    UNTUNED_STEP("DeepEP: Tune DeepEP"),
    {.column = "notes", .word = "real routing", .within = true, .routing = SPW_PLAN_ROUTING},
    {.column = NULL}};

static const spw_run_dispatcher dispatchers[] = {
    {"alltoall", SPW_RUN_MEGATRON, "megatron-alltoall", NULL},
    {"allgather", SPW_RUN_MEGATRON, "megatron-allgather", NULL},
    {"DeepEP", SPW_RUN_MEGATRON, "megatron-flex", NULL},
    {"HybridEP", SPW_RUN_MEGATRON, "megatron-flex:backend=hybridep",
     "megatron-syncfree:rank_capacity=1.5,graph=full"},
    {"torchtitan", SPW_RUN_TORCHTITAN, "torchtitan", NULL},
    {"dense", SPW_RUN_COMPILED, "dense", NULL},
};
enum { DISPATCHERS = sizeof dispatchers / sizeof *dispatchers };

/* Dispatchers that a release's container has not, whatever its recipes name, and what its runs take. Megatron-Bridge,
 * docs/releases/known-issues.md: no DeepEP in 26.02; its next patch names the all-to-all in the recipes of x86 nodes. */
static const struct {
    const char *source, *word, *instead;
} missing[] = {{"megatron_bridge 26.02", "DeepEP", "alltoall"}};

const spw_run_dispatcher *spw_run_dispatcher_find(const char *source, const char *word) {
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (strcmp(missing[i].source, source) == 0 && strcmp(missing[i].word, word) == 0)
            word = missing[i].instead;
    for (int i = 0; i < DISPATCHERS; i++)
        if (strcmp(dispatchers[i].word, word) == 0) return &dispatchers[i];
    return NULL;
}

const char *spw_run_dispatcher_words(void) {
    return "alltoall, allgather, DeepEP, HybridEP, torchtitan, dense";
}

/* Megatron-Core's cuda_graph_impl local is what its recipes with a paged stash use, of the full iteration. */
bool spw_run_graph_is_full(const char *graph) {
    return strcmp(graph, "full_iteration") == 0 || strcmp(graph, "local") == 0;
}

/* Megatron-Bridge: its recipes (src/megatron/bridge/recipes, perf_recipes; grad_reduce_in_fp32 false, cross_entropy_fusion_impl te,
 * fp8_param_gather true). Megatron-LM: arguments.py. Primus: examples/megatron/configs. */
const spw_run_default spw_run_defaults[] = {
    {"megatron_bridge", "precision.gradients", "bf16", false},
    {"megatron_bridge", "cross_entropy", "te_in_place", false},
    {"megatron_bridge", "precision.fp8_param_gather", "true", true},
    {"megatron-bridge", "precision.gradients", "bf16", false},
    {"megatron-bridge", "cross_entropy", "te_in_place", false},
    {"megatron-bridge", "precision.fp8_param_gather", "true", true},
    {"megatron-lm functional-test", "cross_entropy", "native", false},
    {"megatron-lm functional-test", "moe_router_fusion", "false", false},
    {"megatron-lm functional-test", "untuned_release", "true", false},
    {"megatron-lm", "precision.gradients", "fp32", false},
    {"megatron-lm", "cross_entropy", "te_in_place", false},
    {"primus", "precision.gradients", "fp32", false},
    {"primus", "cross_entropy", "unfused", false},
    {NULL, NULL, NULL, false}};

const spw_run_always spw_run_always_set[] = {{SPW_RUN_MEGATRON, "optimizer", "distributed"},
                                             {SPW_RUN_MEGATRON, "precision.optimizer", "fp32"},
                                             {SPW_RUN_MEGATRON, "precision.master", "fp32"},
                                             {SPW_RUN_TORCHTITAN, "optimizer", "sharded"},
                                             {SPW_RUN_TORCHTITAN, "precision.gradients", "bf16"},
                                             {SPW_RUN_TORCHTITAN, "precision.optimizer", "fp32"},
                                             {SPW_RUN_TORCHTITAN, "precision.master", "fp32"},
                                             {SPW_RUN_TORCHTITAN, "cross_entropy", "chunked"},
                                             {SPW_RUN_FRAMEWORKS, NULL, NULL}};
