#include "sim/schemes/scheme.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/input/remat.h"
#include "sim/schemes/list.h"

#define ROW(name) &name,
const spw_scheme_type *const spw_scheme_types[] = {SPW_SCHEME_LIST(ROW) NULL};
#undef ROW

const char *spw_phase_name(spw_phase phase) {
    static const char *const names[SPW_PHASE_COUNT] = {"forward", "recompute", "backward"};
    return names[phase];
}

spw_layer_shape spw_layer_shape_of(const spw_job *job, size_t sequences) {
    spw_layer_shape s = {.ranks = job->expert,
                         .experts = job->model.experts,
                         .top_k = job->model.top_k,
                         .hidden = job->model.hidden,
                         .ffn = job->model.expert_ffn,
                         .sequences = sequences,
                         .sequence_length = job->sequence_length,
                         .element_bytes = job->precision.activations,
                         .remat = job->remat};
    s.experts_per_rank = s.experts / s.ranks;
    s.node_ranks = s.ranks < job->cluster.gpus_per_node ? s.ranks : job->cluster.gpus_per_node;
    s.tokens = sequences * s.sequence_length;
    s.assignments = s.tokens * s.top_k;
    s.worst_rows = s.ranks * s.tokens * (s.experts_per_rank < s.top_k ? s.experts_per_rank : s.top_k);
    return s;
}

/* --- Reading a scheme
 * ---------------------------------------------------------------------------------------- */

static spw_status unknown_scheme(const char *name, size_t length) {
    char known[512] = "";
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                       spw_scheme_types[i]->name);
    }
    return spw_fail(SPW_ECONFIG, "scheme '%.*s' is unknown; known schemes: %s", (int)length, name, known);
}

/* The position of `word` among the choices of an option. */
static spw_status set_choice(const spw_scheme *s, const spw_scheme_option *option, const char *word,
                             double *out) {
    char known[128] = "";
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
        if (strcmp(word, option->choices[i]) != 0) continue;
        *out = (double)i;
        return SPW_OK;
    }
    return spw_fail(SPW_ECONFIG, "scheme '%s': %s=%s must be one of: %s (%s)", s->text, option->name, word,
                    known, option->help);
}

static spw_status set_option(spw_scheme *s, const char *text, size_t length, bool *given) {
    const spw_scheme_option *options = s->type->options;
    const char *equals = memchr(text, '=', length);
    size_t key = equals != NULL ? (size_t)(equals - text) : length;
    char known[256] = "";
    for (size_t i = 0; options[i].name != NULL; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", options[i].name);
        if (equals == NULL || strlen(options[i].name) != key || strncmp(options[i].name, text, key) != 0)
            continue;
        if (given[i])
            return spw_fail(SPW_ECONFIG, "scheme '%s': %s is given twice", s->text, options[i].name);
        char number[64], *end = NULL;
        (void)snprintf(number, sizeof number, "%.*s", (int)(length - key - 1), equals + 1);
        given[i] = true;
        if (options[i].choices != NULL) return set_choice(s, &options[i], number, &s->option[i]);
        double value = number[strspn(number, "0123456789.eE+-")] == '\0' ? strtod(number, &end) : 0.0;
        if (length - key - 1 >= sizeof number || end == NULL || end == number || *end != '\0' ||
            !(value >= options[i].minimum && value <= options[i].maximum)) {
            return spw_fail(SPW_ECONFIG, "scheme '%s': %s=%s must be a number in [%g, %g] (%s)", s->text,
                            options[i].name, number, options[i].minimum, options[i].maximum, options[i].help);
        }
        s->option[i] = value;
        return SPW_OK;
    }
    return spw_fail(SPW_ECONFIG, "scheme '%s': '%.*s' is no option of %s; %s%s", s->text, (int)length, text,
                    s->type->name, known[0] != '\0' ? "write key=value with one of: " : "it has none", known);
}

spw_status spw_scheme_parse(const char *text, spw_scheme *out) {
    bool given[SPW_SCHEME_OPTIONS] = {false};
    size_t length = strcspn(text, ":");
    *out = (spw_scheme){.type = NULL};
    if (strlen(text) >= sizeof out->text)
        return spw_fail(SPW_ECONFIG, "scheme '%.40s...' is longer than %zu characters", text,
                        sizeof out->text - 1);
    (void)snprintf(out->text, sizeof out->text, "%s", text);
    for (size_t i = 0; spw_scheme_types[i] != NULL && out->type == NULL; i++) {
        const spw_scheme_type *type = spw_scheme_types[i];
        if (strlen(type->name) == length && strncmp(type->name, text, length) == 0) out->type = type;
    }
    if (out->type == NULL) return unknown_scheme(text, length);
    const spw_scheme_option *options = out->type->options;
    for (size_t i = 0; options[i].name != NULL; i++) out->option[i] = options[i].fallback;
    for (const char *next = text + length; *next != '\0';) {
        next++; /* past ':' or ',' */
        size_t part = strcspn(next, ",");
        spw_status status = set_option(out, next, part, given);
        if (status != SPW_OK) return status;
        next += part;
    }
    for (size_t i = 0; options[i].name != NULL; i++) {
        if (options[i].required && !given[i]) {
            return spw_fail(SPW_ECONFIG, "scheme '%s' needs %s, as in %s:%s=1.25 (%s)", text, options[i].name,
                            out->type->name, options[i].name, options[i].help);
        }
    }
    return SPW_OK;
}

double spw_scheme_option_value(const spw_scheme *scheme, const char *name) {
    for (size_t i = 0; scheme->type->options[i].name != NULL; i++) {
        if (strcmp(scheme->type->options[i].name, name) == 0) return scheme->option[i];
    }
    return NAN;
}

bool spw_scheme_option_is(const spw_scheme *scheme, const char *name, const char *word) {
    for (size_t i = 0; scheme->type->options[i].name != NULL; i++) {
        const spw_scheme_option *option = &scheme->type->options[i];
        if (strcmp(option->name, name) == 0 && option->choices != NULL)
            return strcmp(option->choices[(size_t)scheme->option[i]], word) == 0;
    }
    return false;
}

/* --- Tensors
 * ------------------------------------------------------------------------------------------------- */

size_t spw_scheme_capacity(const spw_scheme *scheme, const spw_layer_shape *s) {
    double factor = spw_scheme_option_value(scheme, "capacity_factor");
    if (isnan(factor)) return 0;
    size_t even = (s->sequence_length * s->top_k + s->experts - 1) / s->experts;
    return (size_t)fmax(fmax((double)even * factor, factor), 0.0);
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

spw_status spw_scheme_check(const spw_scheme *scheme, const spw_layer_shape *shape) {
    if (scheme->type->compiled != NULL && spw_remat_is_megatron(shape->remat))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s' is a MaxText program, which knows no remat %s; none, full or another name "
            "of MaxText's would be right",
            scheme->text, spw_remat_name(shape->remat));
    return scheme->type->check != NULL ? scheme->type->check(scheme, shape) : SPW_OK;
}

spw_layer_list spw_scheme_layer(const spw_scheme *scheme, const spw_layer_shape *shape) {
    const spw_scheme_type *type = scheme->type;
    return type->layer_of != NULL ? *type->layer_of(scheme, shape) : type->layer;
}

spw_drop_rule spw_scheme_drop_rule(const spw_scheme *scheme) {
    return scheme->type->drop_rule != NULL ? scheme->type->drop_rule(scheme) : SPW_DROP_BY_LIMIT;
}

static bool sends_once(const spw_scheme *scheme) {
    return scheme->type->sends_once == NULL || scheme->type->sends_once(scheme);
}
bool spw_scheme_once_a_rank(const spw_scheme *scheme) {
    return scheme->type->once_a_rank && sends_once(scheme);
}
bool spw_scheme_by_node(const spw_scheme *scheme) { return scheme->type->by_node && sends_once(scheme); }

bool spw_schemes_need_weights(const spw_scheme *scheme, size_t schemes) {
    for (size_t i = 0; i < schemes; i++) {
        if (spw_scheme_drop_rule(&scheme[i]) == SPW_DROP_BY_WEIGHT) return true;
    }
    return false;
}

bool spw_scheme_is_dynamic(const spw_scheme *scheme, const spw_layer_shape *shape) {
    const spw_layer_list list = spw_scheme_layer(scheme, shape);
    for (size_t i = 0; i < list.tensor_count; i++) {
        const spw_rows rows = list.tensors[i].rows;
        if (rows == SPW_ROWS_HELD || rows == SPW_ROWS_RECEIVED || rows == SPW_ROWS_SENT) return true;
    }
    return false;
}

spw_rank_rows spw_flow_rows(const spw_layer_shape *s, const spw_flow *flow, size_t d) {
    spw_rank_rows rows = {.held = flow->rows[d]};
    for (size_t r = 0; r < s->ranks; r++) {
        rows.received += flow->wire[r * s->ranks + d];
        rows.sent += flow->wire[d * s->ranks + r];
    }
    return rows;
}

spw_rank_rows spw_balanced_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    spw_rank_rows rows = {s->assignments, s->assignments, s->assignments};
    if (spw_scheme_once_a_rank(scheme)) { /* all ranks but those that hold none of a token's K experts */
        double none = 1.0;
        for (size_t k = 0; k < s->top_k && none > 0.0; k++) {
            const double left = (double)s->experts - (double)s->experts_per_rank - (double)k;
            none *= left > 0.0 ? left / (double)(s->experts - k) : 0.0;
        }
        rows.received = rows.sent = (uint64_t)((double)(s->ranks * s->tokens) * (1.0 - none) + 0.5);
    }
    if (scheme->type->balance != NULL) scheme->type->balance(scheme, s, &rows);
    return rows;
}

static uint64_t own_rows(const spw_scheme *scheme, const spw_layer_shape *shape, size_t i) {
    return scheme->type->own_rows != NULL ? scheme->type->own_rows(scheme, shape, i) : 0;
}

uint64_t spw_tensor_bytes(const spw_scheme *scheme, const spw_layer_shape *s, const spw_rank_rows *routed,
                          const spw_tensor *tensor, char *formula, size_t formula_size) {
    const spw_rank_rows given = routed != NULL ? *routed : (spw_rank_rows){0, 0, 0};
    const uint64_t buffer = scheme->type->buffer_rows != NULL ? scheme->type->buffer_rows(scheme, s) : 0;
    const struct {
        uint64_t count;
        const char *symbol;
    } rows[SPW_ROWS_COUNT] =
        {
            [SPW_ROWS_ASSIGNMENTS] = {s->assignments, "T K"},
            [SPW_ROWS_GATHERED] = {s->ranks * s->tokens, "R T"},
            [SPW_ROWS_BUFFER] = {buffer, scheme->type->buffer_formula},
            [SPW_ROWS_EXPANDED] = {multiply(s->experts_per_rank, buffer), "e x rows"},
            [SPW_ROWS_TOKENS] = {s->tokens, "T"},
            [SPW_ROWS_HELD] = {given.held, "rows held"},
            [SPW_ROWS_RECEIVED] = {given.received, "rows received"},
            [SPW_ROWS_SENT] = {given.sent, "rows sent"},
            [SPW_ROWS_OWN_0] = {own_rows(scheme, s, 0), scheme->type->own_rows_formula[0]},
            [SPW_ROWS_OWN_1] = {own_rows(scheme, s, 1), scheme->type->own_rows_formula[1]},
        },
      width[SPW_WIDTH_COUNT] = {
          [SPW_WIDTH_HIDDEN] = {s->hidden, "H"},
          [SPW_WIDTH_FFN] = {s->ffn, "F"},
          [SPW_WIDTH_SLOTS] = {multiply(s->experts, spw_scheme_capacity(scheme, s)), "E C"},
          [SPW_WIDTH_TOP_K] = {s->top_k, "K"},
          [SPW_WIDTH_EXPERTS] = {s->experts, "E"},
          [SPW_WIDTH_LOCAL_EXPERTS] = {s->experts_per_rank, "e"},
          [SPW_WIDTH_ROW_IDS] = {add(multiply(2, s->experts), 1), "(2 E + 1)"},
          [SPW_WIDTH_LOCAL_ROW_IDS] = {add(multiply(2, s->experts_per_rank), 1), "(2 e + 1)"},
          [SPW_WIDTH_RANKS] = {s->ranks, "R"},
          [SPW_WIDTH_SCALES] = {(s->hidden + 127) / 128, "H / 128"},
          [SPW_WIDTH_ONE] = {1, "1"},
          [SPW_WIDTH_FFN_TILES] = {(s->ffn + 127) / 128, "F / 128"},
      };
    const uint64_t times = tensor->times > 0 ? tensor->times : 1,
                   element = tensor->element_bytes > 0 ? tensor->element_bytes : s->element_bytes,
                   columns = multiply(times, width[tensor->width].count);
    if (formula != NULL) {
        char factor[8] = "";
        if (times > 1) (void)snprintf(factor, sizeof factor, "%u ", (unsigned)tensor->times);
        (void)snprintf(formula, formula_size, "[%s, %s%s] x %llu B = %llu x %llu x %llu",
                       rows[tensor->rows].symbol, factor, width[tensor->width].symbol,
                       (unsigned long long)element, (unsigned long long)rows[tensor->rows].count,
                       (unsigned long long)columns, (unsigned long long)element);
    }
    return multiply(multiply(rows[tensor->rows].count, columns), element);
}

spw_live_set spw_scheme_live_set(const spw_scheme *scheme, const spw_layer_shape *shape,
                                 const spw_rank_rows *rows) {
    const spw_layer_list list = spw_scheme_layer(scheme, shape);
    spw_live_set set = {.forward_step = "", .backward_step = ""};
    uint64_t bytes[SPW_SCHEME_TENSORS], live = 0;
    bool alive[SPW_SCHEME_TENSORS] = {false};
    spw_phase phase = SPW_PHASE_FORWARD;
    for (size_t i = 0; i < list.tensor_count; i++)
        bytes[i] = spw_tensor_bytes(scheme, shape, rows, &list.tensors[i], NULL, 0);
    for (size_t i = 0; i < list.event_count; i++) {
        const spw_event *event = &list.events[i];
        if (phase == SPW_PHASE_FORWARD && event->phase != phase) { /* the layer's own tensors are gone */
            memset(alive, 0, sizeof alive);
            live = 0;
        }
        if (phase != SPW_PHASE_BACKWARD && event->phase == SPW_PHASE_BACKWARD) set.saved_bytes = live;
        phase = event->phase;
        alive[event->tensor] = event->sign > 0;
        live = event->sign > 0 ? add(live, bytes[event->tensor]) : live - bytes[event->tensor];
        if (phase == SPW_PHASE_FORWARD && live > set.forward_bytes) {
            set.forward_bytes = live;
            set.forward_step = event->step;
        } else if (phase != SPW_PHASE_FORWARD && live > set.backward_bytes) {
            set.backward_bytes = live;
            set.backward_step = event->step;
            memcpy(set.peak_live, alive, sizeof alive);
        }
    }
    return set;
}
