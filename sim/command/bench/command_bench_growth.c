/* How the program's own cost grows: processor time and memory of plans, replays and searches along one axis each. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/command/bench/bench_common.h"
#include "sim/command/bench/growth_axis.h"
#include "sim/command/bench/growth_case.h"
#include "sim/command/bench/process_use.h"
#include "sim/statistics/power_law.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 3, MOST_AXES = 32 };

static const double MIB = 1048576.0;

typedef struct bench_options {
    const char *name[MOST_AXES];
    size_t names;
    bool only, asked[SPW_GROWTH_COMMANDS]; /* `only`: those that are asked for, else all */
    spw_bench_common common;
} bench_options;

static const struct argp_option own_options[] = {
    {"command", 'c', "plan|replay|search", 0,
     "measure this alone, may be repeated (default: all that the axis has)", 0},
    {0},
};

static spw_status find_command(const char *text, bench_options *o) {
    for (size_t i = 0; i < SPW_GROWTH_COMMANDS; i++)
        if (strcmp(text, spw_growth_command_names[i]) == 0) {
            o->only = o->asked[i] = true;
            return SPW_OK;
        }
    return spw_fail(SPW_EARG, "--command '%s' is unknown; it is plan, replay or search", text);
}

static error_t bench_growth_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->common; return 0;
    case 'c':
        if (o->common.status == SPW_OK) o->common.status = find_command(text, o);
        return 0;
    case ARGP_KEY_ARG: spw_command_add_word(text, state, o->name, &o->names, MOST_AXES, "axes"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{.argp = &spw_bench_repeats_argp}, {0}};

static const struct argp argp = {
    .options = own_options,
    .children = children,
    .parser = bench_growth_parse,
    .args_doc = "[AXIS|FILE.yaml]...",
    .doc =
        "How processor time and peak memory of plan, replay and search grow along an axis, all else being "
        "equal (default: gpus, experts, layers, steps, micro-batches, stages, points and tokens, which takes "
        "minutes). Each value is a process of its own with one thread, three times unless --repeats says "
        "otherwise; the least time is printed. The last row of an axis has the "
        "exponents of a power law through the upper half of its values, with their standard errors, and "
        "whether one of them is above 1 by more than twice its error.",
};

/* What one command takes along an axis. */
typedef struct measured {
    double value[SPW_GROWTH_VALUES], seconds[SPW_GROWTH_VALUES], bytes[SPW_GROWTH_VALUES];
    size_t values;
} measured;

static spw_status measure(const spw_growth_axis *axis, spw_growth_command command, uint64_t repeats,
                          spw_growth_files *files, measured *out) {
    spw_growth_words words;
    spw_process_use use;
    bool good = false;
    spw_status status = SPW_OK;
    const size_t i = out->values;
    const size_t value = axis->part[command].value[i];
    SPW_TRY(spw_growth_case_make(axis, command, i, files, &words));
    SPW_TRY(
        spw_process_use_of(&(spw_process){SPW_OWN_PROGRAM, words.word, .one_thread = true, .explains = true},
                           repeats, &use, &good));
    if (!good)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: %s at %zu: its process failed", axis->part[command].words_place,
                         spw_growth_command_names[command], value));
    out->value[i] = (double)value;
    out->seconds[i] = use.least_s;
    out->bytes[i] = use.bytes;
    out->values++;

cleanup:
    return status;
}

static void add_rows(const char *axis, const char *command, const measured *m, spw_table *table) {
    const size_t half = spw_power_law_half(m->values), first = m->values - half;
    const spw_power_law none = {NAN, NAN},
                        time = spw_power_law_of(m->value + first, m->seconds + first, half),
                        memory = spw_power_law_of(m->value + first, m->bytes + first, half);
    for (size_t i = 0; i < m->values; i++) {
        const bool last = i + 1 == m->values;
        const spw_power_law of_time = last ? time : none, of_memory = last ? memory : none;
        spw_table_text(spw_table_in(table, "command", "command"), command);
        spw_table_text(spw_table_in(table, "axis", "axis"), axis);
        spw_table_count(spw_table_in(table, "value", "value"), (uint64_t)m->value[i]);
        spw_table_scaled(spw_table_in(table, "process_s", "ms"), m->seconds[i], 1e-3, "%.0f");
        spw_table_count_of(spw_table_in(table, "process_bytes", "MiB"), true, (uint64_t)m->bytes[i], MIB,
                           "%.0f");
        spw_table_real(spw_table_in(table, "time_exponent", "time as value^"), of_time.exponent, "%.2f");
        spw_table_real(spw_table_in(table, "time_error", "+-"), of_time.error, "%.2f");
        spw_table_real(spw_table_in(table, "memory_exponent", "memory as value^"), of_memory.exponent,
                       "%.2f");
        spw_table_real(spw_table_in(table, "memory_error", "+-"), of_memory.error, "%.2f");
        spw_table_in(table, "above_linear", "above linear");
        if (last)
            spw_table_flag(table,
                           spw_power_law_is_above_linear(time) || spw_power_law_is_above_linear(memory));
        else
            spw_table_none(table);
    }
}

static bool is_measured(const spw_growth_axis *axis, const bench_options *o, size_t command) {
    return axis->part[command].values > 0 && (!o->only || o->asked[command]);
}

/* No two axes' rows have one name. */
static spw_status check_name(const bench_options *o, const spw_growth_axis *axis, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(axis[i].name, axis[count].name) == 0)
            return spw_fail(SPW_EARG, "axis %s is given twice, as %s and as %s; keep one, or rename its file",
                            axis[i].name, o->name[i], o->name[count]);
    return SPW_OK;
}

/* All axes are read, and all their values looked at, before the first is measured. */
static spw_status read_axes(const bench_options *o, spw_growth_axis *axis, size_t *values) {
    spw_status status = SPW_OK;
    *values = 0;
    for (size_t i = 0; i < o->names; i++) {
        SPW_TRY(spw_growth_axis_read(o->name[i], &axis[i]));
        SPW_TRY(check_name(o, axis, i));
        SPW_TRY(spw_growth_case_check(&axis[i]));
        for (size_t command = 0; command < SPW_GROWTH_COMMANDS; command++)
            if (is_measured(&axis[i], o, command)) *values += axis[i].part[command].values;
    }
    if (*values == 0) SPW_TRY(spw_fail(SPW_EARG, "no axis of these has what --command asks for"));

cleanup:
    return status;
}

static spw_status measure_all(const bench_options *o, spw_table *table) {
    spw_growth_axis *axis = NULL;
    spw_growth_files files = {.made = ""};
    size_t values = 0, done = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(o->names, &axis));
    SPW_TRY(read_axes(o, axis, &values));
    SPW_TRY(spw_growth_files_begin(&files));
    spw_progress progress = spw_progress_begin("bench growth", "values", values);
    for (size_t i = 0; i < o->names; i++)
        for (size_t command = 0; command < SPW_GROWTH_COMMANDS; command++) {
            measured m = {.values = 0};
            if (!is_measured(&axis[i], o, command)) continue;
            while (m.values < axis[i].part[command].values) {
                SPW_TRY(measure(&axis[i], (spw_growth_command)command, o->common.repeats, &files, &m));
                spw_progress_update(&progress, ++done);
            }
            add_rows(axis[i].name, spw_growth_command_names[command], &m, table);
        }
    spw_progress_end(&progress);

cleanup:
    spw_growth_files_end(&files);
    spw_free(axis);
    return status;
}

spw_status spw_command_bench_growth(int argc, char **argv) {
    bench_options o = {.common.repeats = REPEATS};
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(o.common.status);
    if (o.names == 0)
        while (spw_growth_names[o.names] != NULL) o.name[o.names] = spw_growth_names[o.names], o.names++;
    SPW_TRY(spw_table_create(NULL, &table));
    SPW_TRY(measure_all(&o, table));
    SPW_TRY(spw_table_print(table, o.common.format, stdout));

cleanup:
    spw_table_destroy(table);
    return status;
}
