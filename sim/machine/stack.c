#include "sim/machine/stack.h"

#include "base/file.h"
#include "sim/machine/compiled_layer.h"
#include "sim/machine/stack_settings.h"
#include "sim/read/preset.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COEFFICIENT_ROW(field, low, high, spread, help) \
    {#field, help, offsetof(spw_stack, field), low, high, spread},
const spw_stack_row spw_stack_rows[SPW_STACK_FITTED] = {SPW_STACK_COEFFICIENT_LIST(COEFFICIENT_ROW)};

size_t spw_stack_recovers(spw_program program) {
    static const size_t rows[SPW_PROGRAM_COUNT] = {
        [SPW_PROGRAM_DENSE] = 0,  [SPW_PROGRAM_DENSE_GATHERED] = 1, [SPW_PROGRAM_GMM] = 2,
        [SPW_PROGRAM_DEEPEP] = 3, [SPW_PROGRAM_RING] = 3,           [SPW_PROGRAM_RING_SORTED] = 3};
    return rows[program];
}

spw_coefficient *spw_stack_coefficient(spw_stack *stack, size_t row) {
    return (spw_coefficient *)(void *)((char *)stack + spw_stack_rows[row].offset);
}

static const spw_coefficient *recovered_of(const spw_stack *stack, spw_program program) {
    const spw_coefficient *all[SPW_STACK_FITTED] = {&stack->recovered_dense, &stack->recovered_gathered,
                                                    &stack->recovered_grouped, &stack->recovered_ring};
    return all[spw_stack_recovers(program)];
}

double spw_stack_recovered(const spw_stack *stack, spw_program program) {
    return recovered_of(stack, program)->value;
}

spw_recovered_range spw_stack_recovered_range(const spw_stack *stack, spw_program program) {
    const spw_coefficient *c = recovered_of(stack, program);
    return (spw_recovered_range){fmax(0.0, c->value - c->uncertainty), fmin(1.0, c->value + c->uncertainty)};
}

/* --- Keys --- */

#define COEFFICIENT(name, member, text) \
    SPW_STACK_COEFFICIENT(spw_stack, name, member, spw_coefficient_settings, text)
#define COEFFICIENT_SETTING(field, low, high, spread, help) COEFFICIENT(#field, field, help),

#define DEFAULT_FIELDS(field, low, high, text) \
    static const spw_setting field##_rows[] = SPW_COEFFICIENT_KEYS(low, high, high, text);
SPW_COMPILED_DEFAULT_LIST(DEFAULT_FIELDS)
#define DEFAULT_SETTING(field, low, high, help) \
    SPW_STACK_DEFAULT_COEFFICIENT(spw_stack, #field, field, field##_rows, help),

static const spw_setting rows[] = {
    SPW_STACK_LINE(spw_stack, name, SPW_STACK_NAME, "name of the stack"),
    {.key = "covers",
     .kind = SPW_SETTING_TEXTS,
     SPW_SETTING_TEXTS_OF(spw_stack, covers, SPW_STACK_NAME, SPW_STACK_COVERS, covered),
     .fallback = "",
     .help = "other names that tables give it"},
    SPW_STACK_LINE(spw_stack, tables, SPW_STACK_TEXT, "what it was fitted on"),
    SPW_STACK_LINE(spw_stack, models, SPW_STACK_TEXT, "models of those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, clusters, SPW_STACK_TEXT,
                            "clusters on which the tables' programs ran"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, expert_parallel, SPW_STACK_TEXT,
                            "expert-parallel sizes of those runs"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, sequence_lengths, SPW_STACK_TEXT,
                            "tokens of a sequence of those runs"),
    SPW_STACK_COUNT(spw_stack, sequences_min, "smallest batch of those tables"),
    SPW_STACK_COUNT(spw_stack, sequences_max, "largest batch of those tables"),
    SPW_STACK_LINE(spw_stack, tree, SPW_STACK_NAME, "tree of MaxText, which names what remat policies keep"),
    {.key = "latency_hiding",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_stack, latency_hiding, bool),
     .fallback = "false",
     .help = "does XLA's latency-hiding scheduler run?"},
    {.key = "exchange_arena",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_stack, exchange_arena, bool),
     .fallback = "false",
     .help = "do ragged all-to-alls have an arena of their own (JAX 0.11 on)?"},
    SPW_STACK_OPTIONAL_LINE(spw_stack, programs, SPW_STACK_TEXT, "kinds of programs in those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, remats, SPW_STACK_TEXT, "remat policies of those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, turns, SPW_STACK_TEXT, "layers per turn of the scans in those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, parts, SPW_STACK_TEXT,
                            "pipeline, micro_batches and fp32, where those tables have such programs"),
    SPW_STACK_OPTIONAL_LINE(spw_stack, times, SPW_STACK_NAME,
                            "time stack of its programs, where it is not of its own name; or its file, from "
                            "the stack's own folder on"),
    SPW_STACK_COEFFICIENT_LIST(COEFFICIENT_SETTING)
        COEFFICIENT("limit_share", limit_share, "share of (pool - arguments) past which XLA computes again"),
    COEFFICIENT("half_width", half_width, "half width of the interval, as a logarithm"),
    COEFFICIENT("half_width_unseen", half_width_unseen,
                "more of it for each feature that no row of the tables has"),
    SPW_COMPILED_DEFAULT_LIST(DEFAULT_SETTING){.key = NULL}};

/* --- Reading and writing --- */

spw_status spw_stack_parse(const char *where, const char *text, size_t length, spw_stack *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
#define FILL(field, ...) out->field = spw_default_##field;
    SPW_COMPILED_DEFAULT_LIST(FILL)
#undef FILL
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    spw_settings_close(settings);
    return status;
}

static spw_status parse_any(const char *where, const char *text, size_t length, void *out) {
    return spw_stack_parse(where, text, length, out);
}

/* The preset that covers a name; the name itself where none does. */
static const char *covering(const char *name) {
    for (const spw_preset *file = spw_stack_files; file->name != NULL; file++) {
        if (strcmp(file->name, name) == 0) return name;
    }
    for (const spw_preset *file = spw_stack_files; file->name != NULL; file++) {
        const spw_preset_text text = {.where = file->name, .text = file->text, .length = file->length};
        spw_stack preset;
        if (spw_preset_parse(&text, parse_any, sizeof preset, &preset) == SPW_OK &&
            spw_stack_covers(&preset, name))
            return file->name;
    }
    return name;
}

spw_status spw_stack_read(const char *name, const char *folder, spw_stack *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"stack", "a stack's YAML file", spw_stack_files, suffixes, 0};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, covering(name), folder, &text);
    if (status != SPW_OK) return status;
    status = spw_preset_parse(&text, parse_any, sizeof *out, out);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_stack_presets(void) { return spw_stack_names; }

bool spw_stack_covers(const spw_stack *stack, const char *name) {
    if (strcmp(stack->name, name) == 0) return true;
    for (size_t i = 0; i < stack->covered; i++) {
        if (strcmp(stack->covers[i], name) == 0) return true;
    }
    return false;
}

bool spw_has_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    }
    return false;
}

void spw_outside_add(char note[SPW_OUTSIDE_TEXT], const char *format, ...) {
    const size_t used = strlen(note), start = used > 0 && used + 2 < SPW_OUTSIDE_TEXT ? used + 2 : used;
    va_list args;
    if (start > used) memcpy(note + used, "; ", 3);
    va_start(args, format);
    (void)vsnprintf(note + start, SPW_OUTSIDE_TEXT - start, format, args);
    va_end(args);
}

spw_outside_count spw_outside_ranges(char note[SPW_OUTSIDE_TEXT], const spw_fit_range *range,
                                     const spw_fit_point *point) {
    char expert[24], length[24];
    (void)snprintf(expert, sizeof expert, "%zu", point->expert);
    (void)snprintf(length, sizeof length, "%zu", point->sequence_length);
    const bool model = !spw_has_word(range->models, point->model);
    const bool cluster = range->clusters[0] != '\0' && !spw_has_word(range->clusters, point->cluster);
    const bool group = range->expert_parallel[0] != '\0' && !spw_has_word(range->expert_parallel, expert);
    const bool tokens = range->sequence_lengths[0] != '\0' && !spw_has_word(range->sequence_lengths, length);
    const bool batch = point->sequences < range->sequences_min || point->sequences > range->sequences_max;
    if (model) spw_outside_add(note, "model not in the fitted tables");
    if (cluster) spw_outside_add(note, "cluster not in the fitted tables");
    if (group) spw_outside_add(note, "expert-parallel sizes other than %s", range->expert_parallel);
    if (tokens) spw_outside_add(note, "sequences of other than %s tokens", range->sequence_lengths);
    if (!point->bf16) spw_outside_add(note, "precision other than bf16 throughout");
    if (batch)
        spw_outside_add(note, "sequences other than %zu to %zu", range->sequences_min, range->sequences_max);
    return (spw_outside_count){.sizes = (size_t)group + batch,
                               .places = (size_t)model + cluster + tokens + !point->bf16,
                               .network = cluster || group};
}

static spw_status print(FILE *out, const void *what) {
    spw_stack stack = *(const spw_stack *)what;
    fprintf(out, "# Written by spillway calibrate memory.\nname: %s\ncovers: [", stack.name);
    for (size_t i = 0; i < stack.covered; i++) fprintf(out, "%s\"%s\"", i == 0 ? "" : ", ", stack.covers[i]);
    fprintf(out, "]\ntables: \"%s\"\nmodels: \"%s\"\n", stack.tables, stack.models);
    if (stack.clusters[0] != '\0') fprintf(out, "clusters: \"%s\"\n", stack.clusters);
    if (stack.expert_parallel[0] != '\0') fprintf(out, "expert_parallel: \"%s\"\n", stack.expert_parallel);
    if (stack.sequence_lengths[0] != '\0') fprintf(out, "sequence_lengths: \"%s\"\n", stack.sequence_lengths);
    fprintf(out, "sequences_min: %zu\nsequences_max: %zu\n", stack.sequences_min, stack.sequences_max);
    fprintf(out, "tree: \"%s\"\nlatency_hiding: %s\n", stack.tree, stack.latency_hiding ? "true" : "false");
    fprintf(out, "programs: \"%s\"\nremats: \"%s\"\nturns: \"%s\"\n", stack.programs, stack.remats,
            stack.turns);
    if (stack.exchange_arena) fprintf(out, "exchange_arena: true\n");
    if (stack.times[0] != '\0') fprintf(out, "times: \"%s\"\n", stack.times);
    if (stack.parts[0] != '\0') fprintf(out, "parts: \"%s\"\n", stack.parts);
    for (size_t i = 0; i < SPW_STACK_FITTED; i++)
        spw_coefficient_write(out, spw_stack_rows[i].key, spw_stack_coefficient(&stack, i));
    spw_coefficient_write(out, "limit_share", &stack.limit_share);
    spw_coefficient_write(out, "half_width", &stack.half_width);
    spw_coefficient_write(out, "half_width_unseen", &stack.half_width_unseen);
#define PUT(field, ...) \
    if (!spw_coefficient_is(&stack.field, &spw_default_##field)) \
        spw_coefficient_write(out, #field, &stack.field);
    SPW_COMPILED_DEFAULT_LIST(PUT)
#undef PUT
    return SPW_OK;
}

spw_status spw_stack_write(const spw_stack *stack, const char *path) {
    return spw_file_print(path, print, stack);
}
