#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "kernels/verify_device.h"
#include "kernels/verify_exchange.h"
#include "sim/command/job_options.h"
#include "sim/routing/compose.h"
#include "sim/routing/selection.h"
#include "sim/routing/trace_group.h"
#include "sim/verify/agreement.h"
#include "sim/verify/trace_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_DEVICE = 1,
    OPTION_TRACE,
    OPTION_SHRINK,
    OPTION_SCHEME,
    OPTION_EXPERT,
    OPTION_STEPS,
    OPTION_LAYERS,
    OPTION_RANDOM,
    OPTION_ALL_GROUPS,
    OPTION_TOKENS,
    OPTION_FORMAT,
    OPTION_RANKS,
    OPTION_GPUS,
    OPTION_PHASES,
    MAX_SCHEMES = 64,
    MOST_RANKS = 64,
    MOST_EXPERTS = 24 /* of a random case */
};

typedef struct verify_options {
    const char *device, *trace_path, *steps, *layers, *format_text;
    const char *scheme_text[MAX_SCHEMES];
    size_t scheme_texts;
    uint64_t shrink, expert_parallel, random_cases, tokens, ranks, gpus;
    bool all_groups, random_given, phases;
    spw_format format;
} verify_options;

static const struct argp_option own_options[] = {
    {"device", OPTION_DEVICE, "cpu|gpu", 0, "what executes (default: cpu)", 0},
    {"ranks", OPTION_RANKS, "N", 0,
     "with --device gpu: dispatch, combine, plain exchanges and whole layers between N ranks on the GPUs "
     "that are there; with a trace "
     "its first step and layer of --steps and --layers",
     0},
    {"gpus", OPTION_GPUS, "N", 0, "with --ranks: GPUs to put them on (default: as many as there are)", 0},
    {"phases", OPTION_PHASES, NULL, 0,
     "with --ranks: no kernel waits for another rank's; so it is where too many ranks share a GPU", 0},
    {"trace", OPTION_TRACE, "FILE.h5", 0, "take the routing from this trace", 0},
    {"shrink", OPTION_SHRINK, "N", 0,
     "divide hidden and ffn by N, at least 8 and 4 stay (default: 96); routing is untouched", 0},
    {"scheme", OPTION_SCHEME, "NAME[:KEY=VALUE,...]", 0,
     "may be repeated (default: every scheme, tight and ample)", 0},
    {"expert-parallel", OPTION_EXPERT, "R", 0,
     "ranks of a group (default: the most that divide the experts, up to 8)", 0},
    {"steps", OPTION_STEPS, "A:B", 0, "positions of the trace's steps (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the trace's layers (default: all)", 0},
    {"tokens", OPTION_TOKENS, "T", 0, "tokens a rank for a trace that knows no ranks (default: 64)", 0},
    {"all-groups", OPTION_ALL_GROUPS, NULL, 0,
     "every expert-parallel group of a layer instead of one, in turn", 0},
    {"random", OPTION_RANDOM, "N", 0, "random cases beside the trace (default: 8, with a trace 0)", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

#define AMPLE "ample" /* dense with a capacity that never drops */

static const char *const default_schemes[] = {
    "dense:capacity_factor=1",
    "dense:capacity_factor=1.25",
    "dense:capacity_factor=4",
    AMPLE,
    "ragged",
    "gmm",
    "gmm:buffer_factor=1",
    "gmm:buffer_factor=2",
    "gmm-deepep",
    "ring",
    "ring:buffer_factor=1",
    "megatron-alltoall",
    "megatron-alltoall:capacity_factor=1",
    "megatron-alltoall:capacity_factor=1.25,policy=position",
    "megatron-alltoall:capacity_factor=0.5,pad=true",
    "megatron-alltoall:align=16",
    "megatron-alltoall:align=32,pay=router",
    "megatron-alltoall:capacity_factor=0.7,align=128,pay=router",
    "megatron-alltoall:capacity_factor=1,pad=true,align=256",
    "megatron-allgather",
    "megatron-allgather:capacity_factor=1",
    "megatron-flex",
    "megatron-flex:capacity_factor=1,policy=position,align=16",
    "megatron-flex:backend=hybridep",
    "megatron-flex:backend=hybridep,capacity_factor=0.8,align=32",
    "primus-syncfree:level=1",
    "primus-syncfree:level=1,align=16",
    "primus-syncfree:level=2",
    "primus-syncfree:level=2,align=32",
    "primus-syncfree:level=3",
    "ragged-deepep",
    "moe-dedup:buffer_factor=1",
    "moe-dedup:buffer_factor=0.6,overflow_factor=0.5",
    "moe-dedup:buffer_factor=1,overflow_factor=1,max_shards=2",
    "deepep",
    "deepep:dtype=fp8,pad=16",
    "deepep-ll",
    "deepep-ll:dtype=bf16",
    "hybrid-ep",
    "hybrid-ep:pad=16",
    "hybrid-ep:budget=1",
    "hybrid-ep:budget=0.7,pad=4",
    "megablocks",
    "megablocks:impl=sparse",
    "megablocks:impl=memory_optimized",
    "tutel:capacity_factor=1",
    "tutel:capacity_factor=1.25,alignment=4,batch_prioritized=true",
    "tutel:capacity_factor=0,alignment=8",
    "tutel:capacity_factor=-1.5,alignment=2",
    "scattermoe",
    "scattermoe:activation=compiled",
    "sonicmoe",
    "sonicmoe:rounding=nearest,tile=4",
    "sonicmoe:rounding=up,tile=16",
    "sonicmoe:rounding=down,tile=4",
    "sonicmoe:rounding=nearest",
};

static error_t parse_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                            uint64_t most, uint64_t *out) {
    if (spw_parse_count(option, text, most, out) != SPW_OK || *out < least)
        argp_error(state, "%s %s: write a whole number from %" PRIu64 " to %" PRIu64, option, text, least,
                   most);
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state) {
    verify_options *o = state->input;
    switch (key) {
    case OPTION_DEVICE: o->device = text; return 0;
    case OPTION_TRACE: o->trace_path = text; return 0;
    case OPTION_STEPS: o->steps = text; return 0;
    case OPTION_LAYERS: o->layers = text; return 0;
    case OPTION_FORMAT: o->format_text = text; return 0;
    case OPTION_ALL_GROUPS: o->all_groups = true; return 0;
    case OPTION_SHRINK: return parse_number(state, "--shrink", text, 1, 1 << 20, &o->shrink);
    case OPTION_TOKENS: return parse_number(state, "--tokens", text, 1, 1 << 20, &o->tokens);
    case OPTION_RANKS: return parse_number(state, "--ranks", text, 1, MOST_RANKS, &o->ranks);
    case OPTION_GPUS: return parse_number(state, "--gpus", text, 1, MOST_RANKS, &o->gpus);
    case OPTION_PHASES: o->phases = true; return 0;
    case ARGP_KEY_END:
        if ((o->gpus > 0 || o->phases) && o->ranks == 0)
            argp_error(state, "--gpus and --phases belong to --ranks");
        return 0;
    case OPTION_EXPERT:
        return parse_number(state, "--expert-parallel", text, 1, MOST_RANKS, &o->expert_parallel);
    case OPTION_RANDOM:
        o->random_given = true;
        return parse_number(state, "--random", text, 0, 1000000, &o->random_cases);
    case OPTION_SCHEME:
        if (o->scheme_texts == MAX_SCHEMES) argp_error(state, "more than %d schemes", MAX_SCHEMES);
        o->scheme_text[o->scheme_texts++] = text;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = own_options,
    .parser = parse,
    .doc = "Holds the simulator against the reference that executes: rows, bytes of every pair of ranks and "
           "exchange, drops, "
           "peak bytes, and the values that come out. Exit status 1 when one comparison disagrees.",
};

/* What is verified: schemes with one tally each, and one for the gradients. */
typedef struct verification {
    const verify_options *o;
    spw_scheme scheme[MAX_SCHEMES];
    spw_verify_tally tally[MAX_SCHEMES], gradients;
    size_t schemes;
} verification;

static void finish_shape(spw_layer_shape *s) {
    s->experts_per_rank = s->experts / s->ranks;
    s->tokens = s->sequences * s->sequence_length;
    s->assignments = s->tokens * s->top_k;
    s->worst_rows = s->ranks * s->tokens * (s->experts_per_rank < s->top_k ? s->experts_per_rank : s->top_k);
}

static bool can_run(const spw_scheme *scheme, const spw_layer_shape *shape) {
    return scheme->type->check == NULL || scheme->type->check(scheme, shape) == SPW_OK;
}

static spw_layer_shape one_rank(const spw_layer_shape *group) {
    spw_layer_shape s = *group;
    s.sequences *= s.ranks;
    s.ranks = s.node_ranks = 1;
    finish_shape(&s);
    return s;
}

static spw_status run_case(verification *v, const spw_verify_case *c) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < v->schemes && status == SPW_OK; i++) {
        const spw_scheme *scheme = &v->scheme[i];
        spw_verify_case own = *c;
        if (!can_run(scheme, &own.shape)) /* without expert parallelism: the group's tokens on one rank */
            own.shape = one_rank(&c->shape);
        if (!can_run(scheme, &own.shape)) continue;
        if (scheme->type->compiled == NULL && c->seed % 2 == 1) /* every other case repeats the activation */
            own.shape.remat = SPW_REMAT_MOE_ACT;
        status = spw_verify_run(scheme, &own, &v->tally[i]);
    }
    return status;
}

/* --- Routing from a trace --------------------------------------------------------------------------------------- */

static spw_status verify_layer(verification *v, spw_composer *composer, const spw_job *job, size_t step,
                               size_t layer) {
    spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    spw_trace_record record;
    const spw_layout *layout = NULL;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_layer(composer, layer, 0, &record, &layout));
    SPW_TRY(SPW_ALLOC(shape.ranks * shape.assignments, &expert));
    for (size_t group = 0; group < job->fsdp; group++) {
        if (!v->o->all_groups && group != (step + layer) % job->fsdp) continue;
        spw_group_choices(&record, layout, group * shape.ranks, &shape, expert, NULL);
        const spw_verify_case c = {shape, expert, step * 1000 + layer};
        SPW_TRY(run_case(v, &c));
    }

cleanup:
    spw_free(expert);
    return status;
}

static spw_status verify_trace(verification *v, spw_trace *trace) {
    spw_composer *composer = NULL;
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    spw_composer_request request = {.seed = 1, .batches = 1};
    if (v->o->steps != NULL)
        SPW_TRY(spw_parse_range("--steps", v->o->steps, &request.step_begin, &request.step_end));
    if (v->o->layers != NULL)
        SPW_TRY(spw_parse_range("--layers", v->o->layers, &request.layer_begin, &request.layer_end));
    SPW_TRY(SPW_ALLOC(1, &job));
    const spw_trace_group_settings group = {v->o->expert_parallel, v->o->tokens, v->o->shrink};
    SPW_TRY(spw_trace_group_job(spw_trace_get_info(trace), &group, job));
    request.trace = trace;
    request.job = job;
    request.sequences = job->sequences_per_gpu;
    SPW_TRY(spw_composer_create(&request, &composer));
    const size_t steps = spw_composer_steps(composer), layers = spw_composer_layers(composer);
    spw_progress progress = spw_progress_begin("verify", steps * layers);
    for (size_t step = 0; step < steps && status == SPW_OK; step++) {
        status = spw_composer_begin(composer, step);
        for (size_t layer = 0; layer < layers && status == SPW_OK; layer++) {
            status = verify_layer(v, composer, job, step, layer);
            spw_progress_update(&progress, step * layers + layer + 1);
        }
    }
    spw_progress_end(&progress);

cleanup:
    spw_composer_destroy(composer);
    spw_free(job);
    return status;
}

/* --- Random routing --------------------------------------------------------------------------------------------- */

static size_t below(uint64_t *state, size_t limit) { /* splitmix64 */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (size_t)((z ^ (z >> 31)) % limit);
}

/* Odd shapes and odd routing: even, all to the first experts, a few without a choice, one token. */
static spw_status verify_random(verification *v, uint64_t seed) {
    uint64_t state = seed * 77777;
    const size_t kind = below(&state, 4);
    spw_layer_shape s = {.ranks = 1 + below(&state, 6), .sequences = 1 + below(&state, 3)};
    s.experts = s.ranks * (1 + below(&state, 4));
    s.top_k = 1 + below(&state, s.experts < 6 ? s.experts : 6);
    s.sequence_length = kind == 3 ? 1 : 1 + below(&state, 24);
    s.hidden = 1 + below(&state, 12);
    s.ffn = 1 + below(&state, 12);
    s.element_bytes = 2;
    finish_shape(&s);
    s.node_ranks = seed % 3 == 0 ? 1 + seed / 3 % s.ranks : s.ranks; /* every third case spans nodes */
    int32_t *expert = NULL;
    spw_status status = SPW_ALLOC(s.ranks * s.assignments, &expert);
    for (size_t t = 0; t < s.ranks * s.tokens && status == SPW_OK; t++) {
        const size_t first = kind == 1 ? 0 : below(&state, s.experts),
                     stride = 1 + below(&state, 2) * (s.experts % 2);
        for (size_t k = 0; k < s.top_k; k++) {
            const size_t x = (first + k * (kind == 1 ? 1 : stride)) % s.experts;
            expert[t * s.top_k + k] = kind == 2 && below(&state, 5) == 0 ? -1 : (int32_t)x;
        }
    }
    const spw_verify_case c = {s, expert, seed};
    if (status == SPW_OK) status = run_case(v, &c);
    spw_free(expert);
    return status;
}

/* --- The report --------------------------------------------------------------------------------------------------- */

static const spw_column columns[] = {
    {"scheme", "scheme"},
    {"cases", "cases"},
    {"rows_predicted", "rows predicted"},
    {"rows_executed", "executed"},
    {"bytes_predicted", "MB predicted"},
    {"bytes_executed", "executed"},
    {"dropped_predicted", "drops predicted"},
    {"dropped_executed", "executed"},
    {"peak_bytes_predicted", "peak kB predicted"},
    {"peak_bytes_executed", "executed"},
    {"values", "values"},
    {"comparisons", "comparisons"},
    {"agreed", "agreed"},
    {NULL, NULL},
};

static void add_row(spw_table *t, const char *name, const spw_verify_tally *y) {
    static const char *const agreement[] = {"bit for bit", "within the bound", "DIFFER"};
    char values[64];
    spw_table_text(t, name);
    spw_table_count(t, y->cases);
    for (int i = 0; i < 2; i++) spw_table_count(t, y->rows[i]);
    for (int i = 0; i < 2; i++) spw_table_scaled(t, (double)y->bytes[i], 1e6, "%.3f");
    for (int i = 0; i < 2; i++) spw_table_count(t, y->dropped[i]);
    for (int i = 0; i < 2; i++) spw_table_scaled(t, (double)y->peak_bytes[i], 1e3, "%.1f");
    (void)snprintf(values, sizeof values, y->values == SPW_AGREE_BOUND ? "%s (%.2f of it)" : "%s",
                   agreement[y->values], y->worst_share);
    spw_table_text(t, values);
    spw_table_count(t, y->comparisons);
    spw_table_count(t, y->agreed);
}

static spw_status report(const verification *v, spw_table *t) {
    size_t comparisons = v->gradients.comparisons, agreed = v->gradients.agreed;
    const char *miss = v->gradients.first_miss;
    for (size_t i = 0; i < v->schemes; i++) {
        add_row(t, v->scheme[i].text, &v->tally[i]);
        comparisons += v->tally[i].comparisons;
        agreed += v->tally[i].agreed;
        if (miss[0] == '\0') miss = v->tally[i].first_miss;
    }
    spw_status status = spw_table_print(t, v->o->format, stdout);
    if (status != SPW_OK) return status;
    if (v->o->format == SPW_FORMAT_TABLE) {
        printf("\ngradients of the plain layer against fp64 differences: %zu comparisons, %zu agreed, worst "
               "error %.2f of the bound\n",
               v->gradients.comparisons, v->gradients.agreed, v->gradients.worst_share);
        printf("%zu comparisons, %zu agreed\n", comparisons, agreed);
    }
    if (comparisons == 0) return spw_fail(SPW_EMISMATCH, "nothing was compared");
    return agreed == comparisons ? SPW_OK
                                 : spw_fail(SPW_EMISMATCH, "%zu of %zu comparisons disagree, first: %s",
                                            comparisons - agreed, comparisons, miss);
}

/* The default list runs dense once with room for every choice: capacity >= sequence length. `experts_per_choice` is the
 * greatest experts / top_k of the cases. */
static spw_status read_schemes(verification *v, size_t experts_per_choice) {
    const size_t defaults = sizeof default_schemes / sizeof default_schemes[0];
    const char *const *text = v->o->scheme_texts > 0 ? v->o->scheme_text : default_schemes;
    char ample[SPW_SCHEME_TEXT];
    spw_status status = SPW_OK;
    (void)snprintf(ample, sizeof ample, "dense:capacity_factor=%zu", experts_per_choice);
    v->schemes = v->o->scheme_texts > 0 ? v->o->scheme_texts : defaults;
    for (size_t i = 0; i < v->schemes && status == SPW_OK; i++)
        status = spw_scheme_parse(strcmp(text[i], AMPLE) == 0 ? ample : text[i], &v->scheme[i]);
    return status;
}

/* --- On GPUs ---------------------------------------------------------------------------------------------------- */

static spw_status verify_gpu(const verify_options *o) {
    spw_trace_record_settings settings = {.expert_parallel = o->ranks};
    spw_exchange_request request = {.ranks = o->ranks, .gpus = o->gpus, .phases = o->phases};
    spw_record *record = NULL;
    size_t end = 0, first = 0;
    spw_status status = SPW_OK;
    if (o->ranks == 0) return spw_verify_device("small", NULL);
    if (o->trace_path != NULL) {
        if (o->steps != NULL) SPW_TRY(spw_parse_range("--steps", o->steps, &first, &end));
        settings.step = first, first = 0;
        if (o->layers != NULL) SPW_TRY(spw_parse_range("--layers", o->layers, &first, &end));
        settings.layer = first;
        SPW_TRY(SPW_ALLOC(1, &record));
        SPW_TRY(spw_trace_record_make(o->trace_path, &settings, record));
        request.record = record;
    }
    SPW_TRY(spw_verify_exchange(&request));
cleanup:
    if (record != NULL) spw_record_destroy(record);
    spw_free(record);
    return status;
}

spw_status spw_command_verify(int argc, char **argv) {
    verify_options o = {.device = "cpu", .shrink = 96, .random_cases = 8, .tokens = 64};
    verification *v = NULL;
    spw_table *table = NULL;
    spw_trace *trace = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format_text != NULL) SPW_TRY(spw_format_parse(o.format_text, &o.format));
    if (strcmp(o.device, "cpu") != 0) {
        if (strcmp(o.device, "gpu") != 0)
            SPW_TRY(spw_fail(SPW_EARG, "--device '%s' is unknown; use cpu or gpu", o.device));
        status = verify_gpu(&o);
        return status == SPW_OK ? SPW_OK : spw_fail_within(status, "--device gpu");
    }
    SPW_TRY(SPW_ALLOC(1, &v));
    v->o = &o;
    SPW_TRY(spw_table_create(columns, &table));
    if (o.trace_path != NULL && !o.random_given) o.random_cases = 0;
    if (o.trace_path != NULL) SPW_TRY(spw_trace_open(o.trace_path, &trace));
    const spw_trace_info *info = trace != NULL ? spw_trace_get_info(trace) : NULL;
    const size_t of_trace = info != NULL ? (info->experts + info->top_k - 1) / info->top_k : 0;
    if (trace == NULL && o.random_cases == 0)
        SPW_TRY(spw_fail(SPW_EARG, "nothing to verify: name a trace with --trace, or cases with --random N"));
    SPW_TRY(read_schemes(v, o.random_cases > 0 && of_trace < MOST_EXPERTS ? MOST_EXPERTS : of_trace));
    if (trace != NULL) SPW_TRY(verify_trace(v, trace));
    for (uint64_t i = 0; i < o.random_cases; i++) SPW_TRY(verify_random(v, i + 1));
    for (uint64_t seed = 1; seed <= 4; seed++) SPW_TRY(spw_verify_gradients(seed, &v->gradients));
    SPW_TRY(report(v, table));

cleanup:
    spw_table_destroy(table);
    spw_trace_close(trace);
    spw_free(v);
    return status;
}
