#include "sim/command/command.h"

#include "base/memory.h"
#include "kernels/verify/plugin_report.h"
#include "kernels/verify/ranks/verify_exchange.h"
#include "kernels/verify/verify_device.h"
#include "sim/command/job_options.h"
#include "sim/verify/trace_record.h"
#include "sim/verify/verify_cases.h"

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
    OPTION_PLUGIN,
    OPTION_KERNEL,
    OPTION_CASE,
    OPTION_RECORD,
    OPTION_SMALL,
    OPTION_SECONDS,
    OPTION_SHARERS,
    MOST_RANKS = 64
};

typedef struct verify_options {
    const char *plugin, *kernel, *record; /* of one's own */
    uint64_t number, case_seconds;
    bool numbered, small;
    const char *device, *trace_path, *steps, *layers, *format_text;
    const char *scheme_text[SPW_VERIFY_SCHEMES];
    size_t scheme_texts;
    uint64_t shrink, expert_parallel, expert_tensor, random_cases, tokens, ranks, gpus;
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
    {"expert-tensor", OPTION_SHARERS, "T", 0,
     "with --trace: T consecutive ranks share each expert, so that a group has R x T ranks, for schemes that "
     "are executed so: megatron-alltoall (default: 1)",
     0},
    {"steps", OPTION_STEPS, "A:B", 0, "positions of the trace's steps (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the trace's layers (default: all)", 0},
    {"tokens", OPTION_TOKENS, "T", 0, "tokens a rank for a trace that knows no ranks (default: 64)", 0},
    {"all-groups", OPTION_ALL_GROUPS, NULL, 0,
     "every expert-parallel group of a layer instead of one, in turn", 0},
    {"plugin", OPTION_PLUGIN, "FILE.so", 0,
     "instead: kernels of your own in host memory against the reference (docs/check_your_kernel.md)", 0},
    {"kernel", OPTION_KERNEL, "NAME", 0, "with --plugin: this kernel alone, as in grouped_gemm", 0},
    {"case", OPTION_CASE, "N", 0, "with --plugin: this case alone", 0},
    {"record", OPTION_RECORD, "FILE", 0,
     "with --plugin: cases with the choices of this routing record, not made-up ones", 0},
    {"small", OPTION_SMALL, NULL, 0,
     "with --plugin: without the cases of more than 2^24 rows or 2^31 elements, which take seconds each", 0},
    {"case-seconds", OPTION_SECONDS, "S", 0,
     "with --plugin: a case that takes more processor time, or sleeps as long, fails (default: 120)", 0},
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
    "megatron-syncfree:rank_capacity=1",
    "megatron-syncfree:rank_capacity=0.7,align=16",
    "megatron-syncfree:rank_capacity=1.5,stash=1.1,page=4",
    "megatron-syncfree:rank_capacity=0.8,stash=0.9,host=0.5,align=32",
    "megatron-ncclep",
    "megatron-ncclep:align=16",
    "megatron-ncclep:rank_capacity=1",
    "megatron-ncclep:rank_capacity=0.2,align=32",
    "primus-syncfree:level=1",
    "primus-syncfree:level=1,align=16",
    "primus-syncfree:level=2",
    "primus-syncfree:level=2,align=32",
    "primus-syncfree:level=3",
    "primus-megamoe",
    "ragged-deepep",
    "ragged-ring",
    "ragged-ring:buffer_factor=1",
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
    "transformers",
    "torchtitan",
    "torchtitan-hybridep",
    "torchtitan-hybridep:capacity=0.3,pad=8",
    "torchtitan-async",
};

static error_t parse_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                            uint64_t most, uint64_t *out) {
    if (spw_parse_count(option, text, most, out) != SPW_OK || *out < least)
        argp_error(state, "%s %s: write a whole number from %" PRIu64 " to %" PRIu64, option, text, least,
                   most);
    return 0;
}

static error_t verify_parse(int key, char *text, struct argp_state *state) {
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
    case OPTION_PLUGIN: o->plugin = text; return 0;
    case OPTION_RECORD: o->record = text; return 0;
    case OPTION_KERNEL: o->kernel = text; return 0;
    case OPTION_SMALL: o->small = true; return 0;
    case OPTION_SECONDS: return parse_number(state, "--case-seconds", text, 1, 86400, &o->case_seconds);
    case OPTION_CASE: o->numbered = true; return parse_number(state, "--case", text, 0, 1 << 20, &o->number);
    case ARGP_KEY_END:
        if (o->expert_tensor > 1 && o->trace_path == NULL)
            argp_error(state, "--expert-tensor belongs to --trace");
        if ((o->gpus > 0 || o->phases) && o->ranks == 0)
            argp_error(state, "--gpus and --phases belong to --ranks");
        if ((o->kernel != NULL || o->numbered || o->record != NULL) && o->plugin == NULL)
            argp_error(state, "--kernel, --case and --record belong to --plugin");
        if ((o->small || o->case_seconds > 0) && o->plugin == NULL)
            argp_error(state, "--small and --case-seconds belong to --plugin");
        return 0;
    case OPTION_EXPERT:
        return parse_number(state, "--expert-parallel", text, 1, MOST_RANKS, &o->expert_parallel);
    case OPTION_SHARERS:
        return parse_number(state, "--expert-tensor", text, 1, MOST_RANKS, &o->expert_tensor);
    case OPTION_RANDOM:
        o->random_given = true;
        return parse_number(state, "--random", text, 0, 1000000, &o->random_cases);
    case OPTION_SCHEME:
        spw_command_add_word(text, state, o->scheme_text, &o->scheme_texts, SPW_VERIFY_SCHEMES, "schemes");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = own_options,
    .parser = verify_parse,
    .doc = "Holds the simulator against the reference that executes: rows, bytes of every pair of ranks and "
           "exchange, drops, "
           "peak bytes, and the values that come out. Exit status 1 when one comparison disagrees.",
};

/* --- The report --- */

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

static spw_status report(const spw_verification *v, const spw_verify_tally *gradients, spw_format format,
                         spw_table *t) {
    size_t comparisons = gradients->comparisons, agreed = gradients->agreed;
    const char *miss = gradients->first_miss;
    for (size_t i = 0; i < v->schemes; i++) {
        add_row(t, v->scheme[i].text, &v->tally[i]);
        comparisons += v->tally[i].comparisons;
        agreed += v->tally[i].agreed;
        if (miss[0] == '\0') miss = v->tally[i].first_miss;
    }
    spw_status status = spw_table_print(t, format, spw_command_out());
    if (status != SPW_OK) return status;
    if (format == SPW_FORMAT_TABLE) {
        printf("\ngradients of the plain layer against fp64 differences: %zu comparisons, %zu agreed, worst "
               "error %.2f of the bound\n",
               gradients->comparisons, gradients->agreed, gradients->worst_share);
        printf("%zu comparisons, %zu agreed\n", comparisons, agreed);
    }
    if (comparisons == 0) return spw_fail(SPW_EMISMATCH, "nothing was compared");
    return agreed == comparisons ? SPW_OK
                                 : spw_fail(SPW_EMISMATCH, "%zu of %zu comparisons disagree, first: %s",
                                            comparisons - agreed, comparisons, miss);
}

/* The default list runs dense once with room for every choice: capacity >= sequence length. `experts_per_choice` is the
 * greatest experts / top_k of the cases. */
static spw_status read_schemes(const verify_options *o, size_t experts_per_choice, spw_verification *v) {
    const size_t defaults = sizeof default_schemes / sizeof default_schemes[0];
    const char *const *text = o->scheme_texts > 0 ? o->scheme_text : default_schemes;
    char ample[SPW_SCHEME_TEXT];
    spw_status status = SPW_OK;
    (void)snprintf(ample, sizeof ample, "dense:capacity_factor=%zu", experts_per_choice);
    v->schemes = o->scheme_texts > 0 ? o->scheme_texts : defaults;
    for (size_t i = 0; i < v->schemes && status == SPW_OK; i++) {
        status = spw_scheme_parse(strcmp(text[i], AMPLE) == 0 ? ample : text[i], &v->scheme[i]);
        if (status == SPW_OK && o->expert_tensor > 1 && !spw_verify_shares(&v->scheme[i]))
            status =
                spw_fail(SPW_EARG,
                         "--expert-tensor %" PRIu64 " with scheme '%s', which is not executed where ranks "
                         "share experts; use --scheme megatron-alltoall, or --expert-tensor 1",
                         o->expert_tensor, v->scheme[i].text);
    }
    return status;
}

/* --- Devices --- */

static spw_status verify_gpu(const verify_options *o) {
    spw_trace_record_settings settings = {.expert_parallel = o->ranks};
    spw_exchange_request request = {.ranks = o->ranks, .gpus = o->gpus, .phases = o->phases};
    spw_record *record = NULL;
    size_t end = 0, first = 0;
    spw_status status = SPW_OK;
    if (o->ranks == 0) return spw_verify_device("small", NULL, NULL);
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

static spw_status verify_cpu(verify_options *o) {
    spw_verify_trace_settings settings = {
        .group = {o->expert_parallel, o->tokens, o->shrink, o->expert_tensor}, .all_groups = o->all_groups};
    spw_verify_tally gradients = {.cases = 0};
    spw_verification *v = NULL;
    spw_table *table = NULL;
    spw_trace *trace = NULL;
    size_t experts_per_choice = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &v));
    SPW_TRY(spw_table_create(columns, &table));
    if (o->trace_path != NULL) {
        if (!o->random_given) o->random_cases = 0;
        SPW_TRY(spw_trace_open(o->trace_path, &trace));
        const spw_trace_info *info = spw_trace_get_info(trace);
        experts_per_choice = (info->experts + info->top_k - 1) / info->top_k;
    }
    if (trace == NULL && o->random_cases == 0)
        SPW_TRY(spw_fail(SPW_EARG, "nothing to verify: name a trace with --trace, or cases with --random N"));
    if (o->random_cases > 0 && experts_per_choice < SPW_VERIFY_EXPERTS)
        experts_per_choice = SPW_VERIFY_EXPERTS;
    SPW_TRY(read_schemes(o, experts_per_choice, v));
    if (o->steps != NULL)
        SPW_TRY(spw_parse_range("--steps", o->steps, &settings.step_begin, &settings.step_end));
    if (o->layers != NULL)
        SPW_TRY(spw_parse_range("--layers", o->layers, &settings.layer_begin, &settings.layer_end));
    if (trace != NULL) SPW_TRY(spw_verify_trace(v, trace, &settings));
    for (uint64_t i = 0; i < o->random_cases; i++) SPW_TRY(spw_verify_random(v, i + 1));
    for (uint64_t seed = 1; seed <= 4; seed++) SPW_TRY(spw_verify_gradients(seed, &gradients));
    SPW_TRY(report(v, &gradients, o->format, table));

cleanup:
    spw_table_destroy(table);
    spw_trace_close(trace);
    spw_free(v);
    return status;
}

spw_status spw_command_verify(int argc, char **argv) {
    verify_options o = {.device = "cpu", .shrink = 96, .random_cases = 8, .tokens = 64};
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format_text != NULL) SPW_TRY(spw_command_format(o.format_text, &o.format));
    if (spw_command_out() != stdout && (o.plugin != NULL || strcmp(o.device, "gpu") == 0))
        return spw_fail(SPW_EARG, "--plugin and --device gpu print as they go; the program spillway verify "
                                  "has them, and spw_case_create is for a kernel of your own");
    if (o.plugin != NULL) {
        const spw_plugin_request request = {.path = o.plugin,
                                            .kernel = o.kernel,
                                            .record = o.record,
                                            .small = o.small,
                                            .case_seconds = o.case_seconds > 0 ? (unsigned)o.case_seconds
                                                                               : SPW_PLUGIN_CASE_SECONDS,
                                            .number = o.numbered ? (long)o.number : -1};
        return spw_plugin_report(&request, "spillway verify", spw_command_out());
    }
    if (strcmp(o.device, "cpu") == 0) return verify_cpu(&o);
    if (strcmp(o.device, "gpu") != 0)
        return spw_fail(SPW_EARG, "--device '%s' is unknown; use cpu or gpu", o.device);
    status = verify_gpu(&o);
    if (status != SPW_OK) return spw_fail_within(status, "--device gpu");

cleanup:
    return status;
}
