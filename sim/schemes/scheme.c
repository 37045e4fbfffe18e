#include "sim/schemes/scheme.h"

#include "sim/job/recipe/megatron_keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "sim/job/common_names.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/compiled_layer.h"
#include "sim/schemes/library_limits.h"
#include "sim/schemes/list.h"

#define ROW(name) &(name),
const spw_scheme_type *const spw_scheme_types[] = {SPW_SCHEME_LIST(ROW) NULL};
#undef ROW

spw_layer_shape spw_layer_shape_of(const spw_job *job, size_t sequences) {
    const spw_grid grid = spw_grid_of(job);
    const size_t tensor = grid.mesh_tensor, sharers = grid.expert_sharers;
    spw_layer_shape s = {.ranks = grid.expert * sharers,
                         .expert_tensor = sharers,
                         .tensor = tensor,
                         .experts = job->model.experts,
                         .top_k = job->model.top_k,
                         .hidden = spw_model_routed_width(&job->model),
                         .plain_experts = job->model.plain_experts,
                         .ffn = job->model.expert_ffn / grid.expert_tensor,
                         .sequences = sequences,
                         .sequence_length = spw_grid_sequence_tokens(job),
                         .context = grid.mesh_context,
                         .element_bytes = job->precision.activations,
                         .gpus = spw_grid_token_ranks(job),
                         .waiting_layers =
                             job->model.layers_per_turn > 1 ? job->model.layers_per_turn - 1 : 0,
                         .expert_bias = job->model.expert_bias,
                         .remat = job->remat,
                         .library_limits = job->library_limits};
    s.frozen_experts = job->finetune.frozen != SPW_FROZEN_NONE;
    s.delayed_weights = job->megatron.delay_weight_gradients;
    if (spw_finetune_adapts(&job->finetune, SPW_LORA_EXPERTS)) s.lora_rank = job->finetune.lora_rank;
    spw_fp8_facts facts;
    s.experts_per_rank = s.experts / grid.expert;
    if (job->precision.recipe != SPW_FP8_NONE && spw_state_law_of(job)->megatron && /* torchao keeps bf16 */
        spw_fp8_facts_of(job->precision.recipe, job->cluster.gpu_generation, &facts) == SPW_OK)
        s.fp8_copies = facts.both ? 2 : 1, s.fp8_scaled = facts.scaled, s.fp4_group = facts.fp4_group;
    s.offload = job->offload.modules &
                (spw_offload_stays(job) ? (unsigned)SPW_OFFLOAD_MOE_ACT : (unsigned)SPW_OFFLOAD_EXPERTS);
    s.shared_expert = job->model.shared_ffn > 0;
    s.whole_weights = s.gpus == s.ranks;
    s.node_ranks = s.ranks < job->cluster.gpus_per_node ? s.ranks : job->cluster.gpus_per_node;
    s.tokens = sequences * s.sequence_length;
    s.assignments = s.tokens * s.top_k;
    s.worst_rows = s.ranks * s.tokens * (s.experts_per_rank < s.top_k ? s.experts_per_rank : s.top_k);
    return s;
}

/* --- Reading a scheme
 * ---------------------------------------------------------------------------------------- */

enum { WORD_TEXT = 64, GUESS_TEXT = 96 };

/* "; did you mean 'gmm'?", or nothing. */
static const char *guess_text(const spw_nearest *nearest, char out[GUESS_TEXT]) {
    out[0] = '\0';
    if (nearest->best != NULL) (void)snprintf(out, GUESS_TEXT, "; did you mean '%s'?", nearest->best);
    return out;
}

static spw_status unknown_scheme(const char *name, size_t length) {
    char known[512] = "", word[WORD_TEXT], guess[GUESS_TEXT];
    (void)snprintf(word, sizeof word, "%.*s", (int)length, name);
    spw_nearest nearest = {.text = word};
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        size_t used = strlen(known);
        spw_nearest_offer(&nearest, spw_scheme_types[i]->name);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                       spw_scheme_types[i]->name);
    }
    const char *const advice = spw_common_scheme_advice(name, length);
    if (advice != NULL)
        return spw_fail(SPW_ECONFIG, "scheme '%.*s' is unknown; what may be meant: %s; known schemes: %s",
                        (int)length, name, advice, known);
    return spw_fail(SPW_ECONFIG, "scheme '%.*s' is unknown%s%s known schemes: %s", (int)length, name,
                    guess_text(&nearest, guess), nearest.best != NULL ? "" : ";", known);
}

/* The position of `word` among the choices of an option. */
static spw_status set_choice(const spw_scheme *s, const spw_scheme_option *option, const char *word,
                             double *out) {
    char known[128] = "", guess[GUESS_TEXT];
    spw_nearest nearest = {.text = word};
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        size_t used = strlen(known);
        spw_nearest_offer(&nearest, option->choices[i]);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
        if (strcmp(word, option->choices[i]) != 0) continue;
        *out = (double)i;
        return SPW_OK;
    }
    return spw_fail(SPW_ECONFIG, "scheme '%s': %s=%s must be one of: %s (%s)%s", s->text, option->name, word,
                    known, option->help, guess_text(&nearest, guess));
}

static spw_status set_option(spw_scheme *s, const char *text, size_t length, bool *given) {
    const spw_scheme_option *options = s->type->options;
    const char *equals = memchr(text, '=', length);
    size_t key = equals != NULL ? (size_t)(equals - text) : length;
    char known[256] = "", word[WORD_TEXT], guess[GUESS_TEXT];
    (void)snprintf(word, sizeof word, "%.*s", (int)key, text);
    spw_nearest nearest = {.text = word};
    for (size_t i = 0; options[i].name != NULL; i++) {
        size_t used = strlen(known);
        spw_nearest_offer(&nearest, options[i].name);
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
    if (equals == NULL && options[0].name != NULL && word[0] != '\0' &&
        word[strspn(word, "0123456789.")] == '\0')
        return spw_fail(SPW_ECONFIG, "scheme '%s': '%s' has no name; did you mean '%s:%s=%s'?", s->text, word,
                        s->type->name, options[0].name, word);
    const spw_common_name *const common = spw_common_name_find(text, key);
    for (size_t i = 0; common != NULL && options[i].name != NULL; i++)
        if (strcmp(common->word, "cf") == 0 && strcmp(options[i].name, "capacity_factor") == 0)
            nearest.best = options[i].name;
    if (equals == NULL || strcmp(word, nearest.best != NULL ? nearest.best : "") == 0)
        nearest.best = NULL; /* its name is right, and a value is missing */
    return spw_fail(SPW_ECONFIG, "scheme '%s': '%.*s' is no option of %s%s%s %s%s", s->text, (int)length,
                    text, s->type->name, guess_text(&nearest, guess), nearest.best != NULL ? "" : ";",
                    known[0] != '\0' ? "write key=value with one of: " : "it has none", known);
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

/* NAN: not given */
static bool is_same_option(double a, double b) {
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : !(a < b || a > b);
}

bool spw_scheme_is_same(const spw_scheme *a, const spw_scheme *b) {
    bool same = a->type == b->type;
    for (size_t i = 0; i < sizeof a->option / sizeof *a->option && same; i++)
        same = is_same_option(a->option[i], b->option[i]);
    return same;
}

spw_status spw_scheme_check(const spw_scheme *scheme, const spw_layer_shape *shape) {
    if (spw_scheme_trainer(scheme)->takes_policies && spw_remat_is_megatron(shape->remat))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s' is a MaxText program, which knows no remat %s; none, full or another name "
            "of MaxText's would be right",
            scheme->text, spw_remat_name(shape->remat));
    spw_status status = scheme->type->check != NULL ? scheme->type->check(scheme, shape) : SPW_OK;
    if (status == SPW_OK) status = spw_library_check(scheme, shape);
    if (status != SPW_OK || scheme->type->check_kernels == NULL) return status;
    return scheme->type->check_kernels(scheme, shape);
}

const spw_trainer *spw_scheme_trainer(const spw_scheme *scheme) {
    return spw_trainer_row(scheme->type->trainer);
}

const spw_compiled_layer *spw_scheme_program(const spw_scheme *scheme) {
    return spw_scheme_trainer(scheme)->memory == SPW_MEMORY_MODEL_ARENA ? scheme->type->compiled.list(scheme)
                                                                        : NULL;
}

bool spw_scheme_needs_stack(const spw_scheme_type *type) {
    return spw_trainer_row(type->trainer)->memory == SPW_MEMORY_MODEL_ARENA || type->compiled.mesh;
}

bool spw_schemes_have_programs(const spw_scheme *scheme, size_t schemes) {
    for (size_t i = 0; i < schemes; i++)
        if (spw_scheme_program(&scheme[i]) != NULL) return true;
    return false;
}

const char *spw_compiled_kind(const spw_scheme *scheme) {
#define KIND(name, text, help) text,
    static const char *const kinds[] = {SPW_PROGRAM_LIST(KIND)};
#undef KIND
    const spw_compiled_layer *list = spw_scheme_program(scheme);
    if (list->masked_operands) return "ragged_dot";
    return list->whole_dispatch ? "dense_peeled" : kinds[list->program];
}

spw_drop_rule spw_scheme_drop_rule(const spw_scheme *scheme) {
    return scheme->type->routing.drop_rule != NULL ? scheme->type->routing.drop_rule(scheme)
                                                   : SPW_DROP_BY_LIMIT;
}

static bool sends_once(const spw_scheme *scheme) {
    return scheme->type->traffic.sends_once == NULL || scheme->type->traffic.sends_once(scheme);
}
bool spw_scheme_once_a_rank(const spw_scheme *scheme) {
    return scheme->type->traffic.once_a_rank && sends_once(scheme);
}
bool spw_scheme_by_node(const spw_scheme *scheme) {
    return scheme->type->traffic.by_node && sends_once(scheme);
}

double spw_scheme_factor(const spw_scheme *scheme) {
    const char *name = scheme->type->routing.factor;
    return name != NULL ? spw_scheme_option_value(scheme, name) : NAN;
}

bool spw_scheme_drops_nothing(const spw_scheme *scheme) {
    const double factor = spw_scheme_factor(scheme);
    return spw_scheme_drop_rule(scheme) == SPW_DROP_BY_LIMIT && (isnan(factor) || !(fabs(factor) > 0.0));
}

bool spw_scheme_fills_slots(const spw_scheme *scheme) {
    return scheme->type->megatron.fills_slots != NULL && scheme->type->megatron.fills_slots(scheme);
}

bool spw_scheme_arrives_sorted(const spw_scheme *scheme) {
    const spw_scheme_megatron *m = &scheme->type->megatron;
    return m->arrives_sorted != NULL && m->arrives_sorted(scheme);
}

bool spw_scheme_is_timed_megatron(const spw_scheme *scheme) {
    const spw_scheme_megatron *m = &scheme->type->megatron;
    return m->timed && (m->as_timed == NULL || m->as_timed(scheme));
}

bool spw_scheme_asks_megatron(const spw_scheme_type *type) {
    return type->megatron.timed || type->megatron.by_parts;
}

bool spw_scheme_is_bare_megatron(const spw_scheme *scheme) {
    return scheme->type->megatron.as_bare != NULL && scheme->type->megatron.as_bare(scheme);
}

bool spw_scheme_is_unknown_alone(const spw_scheme *scheme, const spw_layer_shape *shape) {
    const spw_scheme_type *type = scheme->type;
    if (shape->ranks > 1) return false;
    const spw_compiled_layer *program = spw_scheme_program(scheme);
    if (program != NULL) return program->exchange == SPW_COMPILED_EXCHANGE_LIBRARY;
    return spw_scheme_is_timed_megatron(scheme) && type->megatron.dispatcher == SPW_MEGATRON_TOKENS;
}

size_t spw_scheme_limits(const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_scheme_routing *routing = &scheme->type->routing;
    return routing->limits ? s->ranks * (routing->limit_per_sequence ? s->sequences : 1) * s->experts : 0;
}

bool spw_schemes_need_weights(const spw_scheme *scheme, size_t schemes) {
    for (size_t i = 0; i < schemes; i++) {
        if (spw_scheme_drop_rule(&scheme[i]) == SPW_DROP_BY_WEIGHT || scheme[i].type->routing.by_choice_rank)
            return true;
    }
    return false;
}

size_t spw_flow_lines(const spw_routed_group *routed) {
    const spw_scheme_routing *routing = &routed->scheme->type->routing;
    return routing->lines != NULL ? routing->lines(routed) : routed->shape->ranks;
}

size_t spw_no_lines(const spw_routed_group *routed) {
    (void)routed;
    return 0;
}

size_t spw_one_line(const spw_routed_group *routed) {
    (void)routed;
    return 1;
}

spw_status spw_flow_check(const spw_scheme *scheme, const spw_flow *flow) {
    if (!flow->too_many) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': a GPU sends another more than %u rows of a layer at once; fewer sequences a "
        "GPU, or more micro-batches, would be right",
        scheme->text, UINT32_MAX);
}

spw_rank_rows spw_flow_rows(const spw_layer_shape *s, const spw_flow *flow, size_t d) {
    spw_rank_rows rows = {.held = flow->rows[d]};
    for (size_t r = 0; r < s->ranks; r++) {
        rows.received += flow->wire[r][d];
        rows.sent += flow->wire[d][r];
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
    if (s->expert_tensor > 1) rows.held *= s->expert_tensor;
    if (scheme->type->routing.balance != NULL) scheme->type->routing.balance(scheme, s, &rows);
    return rows;
}
