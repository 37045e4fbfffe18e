#include "sim/schemes/layer_builder.h"

#include "base/memory.h"
#include "base/saturate.h"
#include "sim/schemes/scheme.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_TENSORS = 48, FIRST_EVENTS = 128, FIRST_TEXTS = 16 };

struct spw_layer_builder {
    const spw_scheme *scheme;
    spw_flavour flavour;
    spw_phase phase;
    const char *prefix;
    uint64_t element_bytes;
    bool cut;                                             /* among the GPUs of a tensor group */
    spw_dim rows[SPW_ROWS_COUNT], width[SPW_WIDTH_COUNT]; /* in this shape */
    spw_layer *out;
    bool *alive;           /* [tensor_room][pieces] */
    bool *kept;            /* the same: it is dead to the layer, an attribute has it */
    size_t expert, pieces; /* 1, or 1 + experts_per_rank */
    size_t tensor_room, event_room, text_room;
    spw_status status; /* the first failure */
};

spw_flavour spw_layer_flavour(const spw_layer_builder *b) { return b->flavour; }
spw_phase spw_layer_phase(const spw_layer_builder *b) { return b->phase; }
bool spw_layer_is_cut(const spw_layer_builder *b) { return b->cut; }
void spw_layer_prefix(spw_layer_builder *b, const char *prefix) { b->prefix = prefix; }
void spw_layer_expert(spw_layer_builder *b, size_t expert) { b->expert = expert; }

/* Makes room for one more of `used`. */
static spw_status grow(void *array, size_t *room, size_t used, size_t first, size_t size) {
    void *larger = NULL, **old = array;
    const size_t count = *room == 0 ? first : 2 * *room;
    if (used < *room) return SPW_OK;
    const spw_status status = spw_alloc(count, size, &larger);
    if (status != SPW_OK) return status;
    if (used > 0) memcpy(larger, *old, used * size);
    spw_free(*old);
    *old = larger;
    *room = count;
    return SPW_OK;
}

/* --- Names --- */

/* With the prefix before it. NULL: no memory. */
static const char *text_of(spw_layer_builder *b, const char *name) {
    const size_t before = strlen(b->prefix), length = strlen(name);
    char *text = NULL;
    if (before == 0) return name;
    b->status = grow(&b->out->text, &b->text_room, b->out->texts, FIRST_TEXTS, sizeof *b->out->text);
    if (b->status == SPW_OK) b->status = SPW_ALLOC(before + length + 1, &text);
    if (b->status != SPW_OK) return NULL;
    (void)snprintf(text, before + length + 1, "%s%s", b->prefix, name);
    b->out->text[b->out->texts++] = text;
    return text;
}

static bool is_called(const spw_layer_builder *b, const char *text, const char *name) {
    const size_t before = strlen(b->prefix);
    if (before == 0 && text[0] != name[0]) return false; /* as most */
    return strncmp(text, b->prefix, before) == 0 && strcmp(text + before, name) == 0;
}

/* SIZE_MAX: none has that name. */
static size_t find(const spw_layer_builder *b, const char *name) {
    for (size_t i = 0; i < b->out->tensors; i++) {
        if (is_called(b, b->out->tensor[i].name, name)) return i;
    }
    return SIZE_MAX;
}

static void refuse(spw_layer_builder *b, const char *step, const char *name, const char *why) {
    b->status = spw_fail(SPW_EARG, "layer of scheme '%s', %s pass, step '%s%s': tensor '%s%s' %s",
                         b->scheme->text, spw_phase_name(b->phase), b->prefix, step, b->prefix, name, why);
}

/* --- Sizes --- */

static uint64_t own_rows(const spw_scheme *scheme, const spw_layer_shape *s, size_t i) {
    return scheme->type->memory.own_rows != NULL ? scheme->type->memory.own_rows(scheme, s, i) : 0;
}

/* Bytes of a row of a copy with scales, of elements of one byte or half of one. */
enum { OF_FP8, OF_NVFP4, OF_MXFP4, SCALED_COPIES };
static const char *const hidden_scaled[SCALED_COPIES] = {"(H + H / 32)", "(H / 2 + H / 16)",
                                                         "(H / 2 + H / 32)"},
                         *const ffn_scaled[SCALED_COPIES] = {"(F + F / 32)", "(F / 2 + F / 16)",
                                                             "(F / 2 + F / 32)"};
static spw_dim scaled(const spw_layer_shape *s, uint64_t elements, const char *const words[SCALED_COPIES]) {
    const uint64_t group = s->fp4_group > 0 ? s->fp4_group : 32, scales = (elements + group - 1) / group;
    if (s->fp4_group == 0) return (spw_dim){words[OF_FP8], elements + scales};
    return (spw_dim){words[group == 16 ? OF_NVFP4 : OF_MXFP4], (elements + 1) / 2 + scales};
}

static void measure(spw_layer_builder *b, const spw_layer_shape *s) {
    const spw_scheme *scheme = b->scheme;
    const spw_scheme_type *type = scheme->type;
    const uint64_t buffer = type->memory.buffer_rows != NULL ? type->memory.buffer_rows(scheme, s) : 0;
    const spw_dim rows[SPW_ROWS_COUNT] = {
        [SPW_ROWS_ASSIGNMENTS] = {"T K", s->assignments},
        [SPW_ROWS_GATHERED] = {"R T", s->ranks * s->tokens},
        [SPW_ROWS_BUFFER] = {type->memory.buffer_formula, buffer},
        [SPW_ROWS_EXPANDED] = {"e x rows", spw_saturated_product(s->experts_per_rank, buffer)},
        [SPW_ROWS_TOKENS] = {"T", s->tokens},
        [SPW_ROWS_HELD] = {"rows held", 0},
        [SPW_ROWS_RECEIVED] = {"rows received", 0},
        [SPW_ROWS_SENT] = {"rows sent", 0},
        [SPW_ROWS_EXPERT] = {"rows of the expert", 0},
        [SPW_ROWS_OWN_0] = {type->memory.own_rows_formula[0], own_rows(scheme, s, 0)},
        [SPW_ROWS_OWN_1] = {type->memory.own_rows_formula[1], own_rows(scheme, s, 1)},
    };
    const spw_dim width[SPW_WIDTH_COUNT] = {
        [SPW_WIDTH_HIDDEN] = {"H", s->hidden},
        [SPW_WIDTH_FFN] = {s->tensor > 1 ? "F / TP" : "F", s->ffn},
        [SPW_WIDTH_RETURNED] = {s->tensor > 1 ? "H / TP" : "H", spw_returned_width(s)},
        [SPW_WIDTH_SLOTS] = {"E C", spw_saturated_product(s->experts, spw_scheme_capacity(scheme, s))},
        [SPW_WIDTH_TOP_K] = {"K", s->top_k},
        [SPW_WIDTH_EXPERTS] = {"E", s->experts},
        [SPW_WIDTH_LOCAL_EXPERTS] = {"e", s->experts_per_rank},
        [SPW_WIDTH_ROW_IDS] = {"(2 E + 1)", 2 * s->experts + 1},
        [SPW_WIDTH_LOCAL_ROW_IDS] = {"(2 e + 1)", 2 * s->experts_per_rank + 1},
        [SPW_WIDTH_RANKS] = {"R", s->ranks},
        [SPW_WIDTH_SCALES] = {"H / 128", (s->hidden + 127) / 128},
        [SPW_WIDTH_ONE] = {"1", 1},
        [SPW_WIDTH_LORA] = {"r", s->lora_rank},
        [SPW_WIDTH_FFN_TILES] = {"F / 128", (s->ffn + 127) / 128},
        [SPW_WIDTH_HIDDEN_SCALED] = scaled(s, s->hidden, hidden_scaled),
        [SPW_WIDTH_FFN_SCALED] = scaled(s, s->ffn, ffn_scaled),
    };
    memcpy(b->rows, rows, sizeof rows);
    memcpy(b->width, width, sizeof width);
    b->element_bytes = s->element_bytes;
    b->cut = s->tensor > 1;
}

static spw_layer_tensor sized(const spw_layer_builder *b, const spw_tensor *tensor) {
    spw_layer_tensor t = {.rows = tensor->rows,
                          .width = tensor->width,
                          .times = tensor->times > 0 ? tensor->times : 1,
                          .by_rank = tensor->by_rank,
                          .element_bytes =
                              tensor->element_bytes > 0 ? tensor->element_bytes : b->element_bytes};
    if (tensor->rows == SPW_ROWS_GIVEN) {
        while (t.dims < SPW_TENSOR_DIMS && tensor->dim[t.dims].symbol != NULL) {
            t.dim[t.dims] = tensor->dim[t.dims];
            t.dims++;
        }
    } else {
        t.dim[t.dims++] = b->rows[tensor->rows];
        t.dim[t.dims++] = b->width[tensor->width];
    }
    t.bytes = spw_saturated_product(t.times, t.element_bytes);
    for (size_t i = spw_rows_follow_routing(t.rows) ? 1 : 0; i < t.dims; i++)
        t.bytes = spw_saturated_product(t.bytes, t.dim[i].count);
    return t;
}

/* --- Events --- */

static const char *step_of(spw_layer_builder *b, const char *step) {
    const size_t events = b->out->events;
    const char *last = events > 0 ? b->out->event[events - 1].step : NULL;
    return last != NULL && is_called(b, last, step) ? last : text_of(b, step);
}

static size_t piece_of(const spw_layer_builder *b, size_t tensor) { return tensor * b->pieces + b->expert; }

/* What is left out of small tensors, and what the host has of them. */
typedef struct move {
    uint64_t least_bytes;
    bool to_host;
} move;

static void note(spw_layer_builder *b, const char *step, size_t tensor, int sign, move m) {
    spw_layer *out = b->out;
    const char *text = step_of(b, step);
    if (text == NULL) return;
    b->status = grow(&out->event, &b->event_room, out->events, FIRST_EVENTS, sizeof *out->event);
    if (b->status != SPW_OK) return;
    out->event[out->events++] =
        (spw_event){b->phase, text, tensor, sign, b->expert, m.least_bytes, m.to_host};
    if (b->phase == SPW_PHASE_RECOMPUTE) out->tensor[tensor].needed = sign >= 0;
    b->alive[piece_of(b, tensor)] = sign > 0;
    b->kept[piece_of(b, tensor)] = sign == 0;
}

static bool same_size(const spw_layer_tensor *a, const spw_layer_tensor *b) {
    return a->rows == b->rows && a->bytes == b->bytes;
}

/* The position of a tensor that is met for the first time, or SIZE_MAX. */
static size_t append(spw_layer_builder *b, const char *name, spw_layer_tensor tensor) {
    spw_layer *out = b->out;
    size_t room = b->tensor_room, same_room = room;
    tensor.name = text_of(b, name);
    if (tensor.name == NULL) return SIZE_MAX;
    b->status = grow(&b->alive, &room, out->tensors, FIRST_TENSORS, b->pieces * sizeof *b->alive);
    if (b->status == SPW_OK)
        b->status = grow(&b->kept, &same_room, out->tensors, FIRST_TENSORS, b->pieces * sizeof *b->kept);
    if (b->status == SPW_OK)
        b->status = grow(&out->tensor, &b->tensor_room, out->tensors, FIRST_TENSORS, sizeof *out->tensor);
    if (b->status != SPW_OK) return SIZE_MAX;
    out->tensor[out->tensors] = tensor;
    return out->tensors++;
}

static void born(spw_layer_builder *b, const char *step, spw_tensor tensor, move m) {
    if (b->status != SPW_OK) return;
    const spw_layer_tensor t = sized(b, &tensor);
    size_t i = find(b, tensor.name);
    if (i == SIZE_MAX) {
        i = append(b, tensor.name, t);
        if (i == SIZE_MAX) return;
    } else if (b->alive[piece_of(b, i)]) {
        refuse(b, step, tensor.name, "is born while it lives; it should die first, or have another name");
        return;
    } else if (!same_size(&b->out->tensor[i], &t)) {
        refuse(b, step, tensor.name, "had another size before; another size needs another name");
        return;
    }
    note(b, step, i, 1, m);
}

void spw_layer_born(spw_layer_builder *b, const char *step, spw_tensor tensor) {
    born(b, step, tensor, (move){0, false});
}

void spw_layer_returns(spw_layer_builder *b, const char *step, spw_tensor tensor, uint64_t least_bytes) {
    born(b, step, tensor, (move){least_bytes, false});
}

static void dies(spw_layer_builder *b, const char *step, const char *tensor, move m) {
    if (b->status != SPW_OK) return;
    const size_t i = find(b, tensor);
    if (i != SIZE_MAX && b->kept[piece_of(b, i)]) return;
    if (i == SIZE_MAX || !b->alive[piece_of(b, i)]) {
        refuse(b, step, tensor, "dies without living; it should be born in an earlier step");
        return;
    }
    note(b, step, i, -1, m);
}

void spw_layer_dies(spw_layer_builder *b, const char *step, const char *tensor) {
    dies(b, step, tensor, (move){0, false});
}

void spw_layer_leaves(spw_layer_builder *b, const char *step, const char *tensor, uint64_t least_bytes,
                      bool moves) {
    dies(b, step, tensor, (move){least_bytes, moves});
}

void spw_layer_keeps(spw_layer_builder *b, const char *step, const char *tensor) {
    if (b->status != SPW_OK || b->flavour != SPW_FLAVOUR_TORCH) return;
    const size_t i = find(b, tensor);
    if (i == SIZE_MAX || !b->alive[piece_of(b, i)]) {
        refuse(b, step, tensor, "is kept without living; it should be born in an earlier step");
        return;
    }
    note(b, step, i, 0, (move){0, false});
}

void spw_layer_passes(spw_layer_builder *b, const char *step, spw_tensor tensor) {
    spw_layer_born(b, step, tensor);
    spw_layer_dies(b, step, tensor.name);
}

static void expect_nothing(spw_layer_builder *b) {
    b->prefix = "";
    for (size_t i = 0; i < b->out->tensors * b->pieces && b->status == SPW_OK; i++) {
        if (b->alive[i])
            refuse(b, "end of the pass", b->out->tensor[i / b->pieces].name,
                   "is left over; it should die before");
    }
}

void spw_layer_pass(spw_layer_builder *b, spw_phase phase) {
    if (b->status != SPW_OK || phase == b->phase) return;
    if (phase < b->phase) {
        b->status = spw_fail(
            SPW_EARG, "layer of scheme '%s': the %s pass begins after the %s pass; it should come before",
            b->scheme->text, spw_phase_name(phase), spw_phase_name(b->phase));
        return;
    }
    if (b->phase == SPW_PHASE_FORWARD) expect_nothing(b);
    b->phase = phase;
}

spw_status spw_layer_build(const spw_scheme *scheme, const spw_layer_shape *shape, spw_flavour flavour,
                           spw_layer *out) {
    spw_layer_builder b = {.scheme = scheme, .flavour = flavour, .prefix = "", .out = out, .pieces = 1};
    if (shape->sequential_experts) b.pieces += shape->experts_per_rank;
    *out = (spw_layer){.tensors = 0};
    measure(&b, shape);
    const bool xla = flavour >= SPW_FLAVOUR_XLA && flavour <= SPW_FLAVOUR_XLA_APART;
    if (xla && scheme->type->compiled.layer != NULL) {
        scheme->type->compiled.layer(scheme, shape, &b);
    } else {
        scheme->type->memory.layer(scheme, shape, &b);
    }
    if (b.status == SPW_OK) expect_nothing(&b);
    spw_free(b.alive);
    spw_free(b.kept);
    if (b.status != SPW_OK) spw_layer_destroy(out);
    return b.status;
}
