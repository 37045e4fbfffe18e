/* The builder of layers and what a layer answers: by hand, then what cannot be executed, then what does not fit. */
#include "base/memory.h"
#include "sim/print/formula.h"
#include "sim/schemes/layer_builder.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 300 };

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape) {
    (void)scheme, (void)shape;
    return 10;
}

typedef void (*layer_function)(const spw_scheme *, const spw_layer_shape *, spw_layer_builder *);

static const spw_layer_shape shape = {.ranks = 2,
                                      .experts = 8,
                                      .experts_per_rank = 4,
                                      .top_k = 2,
                                      .hidden = 6,
                                      .ffn = 5,
                                      .sequences = 1,
                                      .sequence_length = 4,
                                      .tokens = 4,
                                      .assignments = 8,
                                      .worst_rows = 16,
                                      .element_bytes = 2};

static spw_status build_in(const spw_layer_shape *s, layer_function function, spw_flavour flavour,
                           spw_layer *out) {
    static const spw_scheme_option options[] = {{.name = NULL}};
    const spw_scheme_type type = {.name = "hand",
                                  .options = options,
                                  .memory.layer = function,
                                  .memory.buffer_rows = buffer_rows,
                                  .memory.buffer_formula = "B"};
    const spw_scheme scheme = {.type = &type, .text = "hand"};
    return spw_layer_build(&scheme, s, flavour, out);
}

static spw_status build(layer_function function, spw_flavour flavour, spw_layer *out) {
    return build_in(&shape, function, flavour, out);
}

/* --- By hand --- */

/* x [B, H] 120 B, wide [rows held, 2 F] of fp32, 40 B a row, relaid e H F of a byte, 120 B, and the same x twice. */
static void by_hand(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    static const spw_tensor x = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
                            wide = {"wide", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2, .element_bytes = 4};
    (void)scheme;
    spw_layer_born(b, "take", x);
    spw_layer_passes(b, "temporary", wide);
    spw_layer_dies(b, "leave", "x");
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    CHECK(spw_layer_phase(b) == SPW_PHASE_RECOMPUTE);
    spw_layer_born(b, "take", x);
    spw_layer_born(b, "widen", wide);
    spw_layer_prefix(b, "second ");
    spw_layer_born(b, "take", x);
    spw_layer_dies(b, "take", "x");
    spw_layer_prefix(b, "");
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    if (spw_layer_flavour(b) == SPW_FLAVOUR_XLA) {
        spw_layer_passes(b, "re-lay",
                         (spw_tensor){"relaid", SPW_ROWS_GIVEN,
                                      .dim = {{"e", s->experts_per_rank}, {"H", s->hidden}, {"F", s->ffn}},
                                      .element_bytes = 1});
    }
    spw_layer_dies(b, "gradient", "wide");
    spw_layer_dies(b, "gradient", "x");
}

static void print_formula(const spw_layer_tensor *t, const spw_rank_rows *rows, char *out, size_t size) {
    const spw_formula words = spw_layer_formula(t, rows);
    spw_formula_print(&words, out, size);
}

static void test_by_hand(void) {
    const spw_rank_rows rows = {7, 70, 700};
    spw_layer layer;
    char formula[80];
    CHECK_OK(build(by_hand, SPW_FLAVOUR_LIVE, &layer));
    check_layer(&layer);
    CHECK(layer.tensors == 3 && layer.events == 10);
    CHECK(strcmp(layer.tensor[0].name, "x") == 0 && layer.tensor[0].needed);
    CHECK(strcmp(layer.tensor[1].name, "wide") == 0 && layer.tensor[1].needed);
    CHECK(strcmp(layer.tensor[2].name, "second x") == 0 && !layer.tensor[2].needed);
    CHECK(strcmp(spw_layer_step(&layer, 6), "second take") == 0);
    CHECK(spw_layer_step(&layer, 6) == spw_layer_step(&layer, 7));
    CHECK(spw_layer_is_dynamic(&layer));
    CHECK(spw_layer_bytes(&layer.tensor[1], &rows) == 280 && spw_layer_bytes(&layer.tensor[1], NULL) == 0);
    print_formula(&layer.tensor[1], &rows, formula, sizeof formula);
    CHECK(strcmp(formula, "[rows held, 2 F] x 4 B = 7 x 10 x 4") == 0);
    print_formula(&layer.tensor[0], NULL, formula, 9);
    CHECK(strcmp(formula, "[B, H] x") == 0); /* cut where the room ends */
    const spw_live_set set = spw_layer_live_set(&layer, &rows);
    CHECK(set.forward_bytes == 400 && set.forward_event == 1 && set.saved_bytes == 400);
    CHECK(set.backward_bytes == 520 && set.backward_event == 6);
    CHECK(spw_layer_is_live(&layer, NULL, 0, 6) && spw_layer_is_live(&layer, NULL, 2, 6));
    CHECK(!spw_layer_is_live(&layer, NULL, 2, 7) && !spw_layer_is_live(&layer, NULL, 1, 4));
    CHECK(spw_layer_is_live(&layer, NULL, 0, 0) && !spw_layer_is_live(&layer, NULL, 1, 0));
    spw_layer_destroy(&layer);
    CHECK(layer.tensors == 0);
}

/* Moments and what is live at them. */
static void test_moments(void) {
    const spw_rank_rows rows = {7, 0, 0};
    spw_layer layer;
    spw_layer_moment moment[8];
    size_t tensor[8];
    char formula[80];
    CHECK_OK(build(by_hand, SPW_FLAVOUR_XLA, &layer));
    CHECK(layer.tensors == 4);
    /* forward 400; recompute 400 + 120; backward 400 + 120, later than its equal */
    CHECK(spw_layer_moments(&layer, &rows, moment, 8) == 3);
    CHECK(moment[0].bytes == 520 && strcmp(spw_layer_step(&layer, moment[0].event), "second take") == 0);
    CHECK(moment[1].bytes == 520 && strcmp(spw_layer_step(&layer, moment[1].event), "re-lay") == 0);
    CHECK(moment[2].bytes == 400 && strcmp(spw_layer_step(&layer, moment[2].event), "temporary") == 0);
    CHECK(spw_layer_moments(&layer, &rows, moment, 2) == 2 && moment[1].bytes == 520);
    CHECK(spw_layer_moments(&layer, &rows, moment, 1) == 1 && moment[0].event == 6);
    CHECK(spw_layer_moments(&layer, &rows, moment, 0) == 0);
    CHECK(spw_layer_live_tensors(&layer, &rows, 8, tensor) == 3);
    CHECK(strcmp(layer.tensor[tensor[0]].name, "wide") == 0);
    CHECK(strcmp(layer.tensor[tensor[1]].name, "x") == 0);
    CHECK(strcmp(layer.tensor[tensor[2]].name, "relaid") == 0);
    print_formula(&layer.tensor[3], &rows, formula, sizeof formula);
    CHECK(strcmp(formula, "[e, H, F] x 1 B = 4 x 6 x 5 x 1") == 0);
    spw_layer_destroy(&layer);
}

/* --- What cannot be executed --- */

static const spw_tensor y = {"y", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN},
                        larger_y = {"y", SPW_ROWS_TOKENS, SPW_WIDTH_FFN, .times = 2};

static void dies_unborn(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_dies(b, "step", "y");
    spw_layer_born(b, "step", y); /* left out */
}

static void dies_twice(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_passes(b, "step", y);
    spw_layer_dies(b, "again", "y");
}

static void born_twice(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_prefix(b, "second ");
    spw_layer_born(b, "step", y);
    spw_layer_born(b, "again", y);
}

static void grows(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_passes(b, "step", y);
    spw_layer_born(b, "again", larger_y);
}

static void outlives_forward(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_born(b, "step", y);
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_dies(b, "step", "y");
}

static void outlives_all(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_prefix(b, "second ");
    spw_layer_born(b, "step", y);
}

static void turns_back(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
}

static void test_refusals(void) {
    static const struct {
        layer_function function;
        const char *message;
    } cases[] = {
        {dies_unborn, "forward pass, step 'step': tensor 'y' dies without living; it should be born in an "
                      "earlier step"},
        {dies_twice, "forward pass, step 'again': tensor 'y' dies without living; it should be born in an "
                     "earlier step"},
        {born_twice, "forward pass, step 'second again': tensor 'second y' is born while it lives; it should "
                     "die first, or have another name"},
        {grows, "forward pass, step 'again': tensor 'y' had another size before; another size needs another "
                "name"},
        {outlives_forward, "forward pass, step 'end of the pass': tensor 'y' is left over; it should die "
                           "before"},
        {outlives_all, "backward pass, step 'end of the pass': tensor 'second y' is left over; it should die "
                       "before"},
        {turns_back, "the recompute pass begins after the backward pass; it should come before"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_layer layer;
        CHECK_STATUS(build(cases[i].function, SPW_FLAVOUR_LIVE, &layer), SPW_EARG);
        CHECK(strstr(spw_last_error(), "layer of scheme 'hand'") != NULL);
        CHECK(strstr(spw_last_error(), cases[i].message) != NULL);
        CHECK(layer.tensors == 0 && layer.events == 0 && layer.tensor == NULL);
    }
}

/* --- Many tensors, and no memory --- */

static void many(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    static char name[MANY][8];
    (void)scheme, (void)s;
    spw_layer_prefix(b, "a ");
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name[i], sizeof name[i], "t%d", i);
        spw_layer_born(b, name[i], (spw_tensor){name[i], SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    }
    for (int i = 0; i < MANY; i++) spw_layer_dies(b, "end", name[i]);
}

static void test_many(void) {
    spw_layer layer;
    CHECK_OK(build(many, SPW_FLAVOUR_LIVE, &layer));
    CHECK(layer.tensors == MANY && layer.events == 2 * MANY);
    CHECK(spw_layer_live_set(&layer, NULL).forward_bytes == MANY * 48);
    CHECK(strcmp(layer.tensor[MANY - 1].name, "a t299") == 0);
    spw_layer_destroy(&layer);
    int refused = 0;
    for (int n = 0; n < 2000; n++) {
        spw_alloc_fail_after(n);
        const spw_status status = build(many, SPW_FLAVOUR_LIVE, &layer);
        spw_alloc_fail_after(-1);
        if (status == SPW_OK) break;
        CHECK_STATUS(status, SPW_ENOMEM);
        CHECK(layer.tensors == 0 && layer.texts == 0);
        refused++;
    }
    CHECK(refused > MANY && refused < 2000);
    spw_layer_destroy(&layer);
}

/* --- What is kept, and experts one after the other --- */

/* `map` of 12 B goes to an attribute in every pass; two experts have a tensor `part` each. */
static void kept_and_parts(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        spw_layer_born(b, "route",
                       (spw_tensor){"map", SPW_ROWS_GIVEN, .dim = {{"n", 3}}, .element_bytes = 4});
        spw_layer_keeps(b, "route", "map");
        for (size_t x = 1; x <= s->experts_per_rank; x++) {
            spw_layer_expert(b, x);
            spw_layer_born(b, "experts",
                           (spw_tensor){"part", SPW_ROWS_EXPERT, SPW_WIDTH_ONE, .element_bytes = 8});
        }
        spw_layer_expert(b, 0);
        for (size_t x = 1; x <= s->experts_per_rank && phase == SPW_PHASE_FORWARD; x++) {
            spw_layer_expert(b, x);
            spw_layer_dies(b, "experts", "part");
        }
        spw_layer_expert(b, 0);
        if (phase == SPW_PHASE_FORWARD) spw_layer_dies(b, "end", "map");
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    for (size_t x = s->experts_per_rank; x > 0; x--) {
        spw_layer_expert(b, x);
        spw_layer_dies(b, "experts", "part");
    }
    spw_layer_expert(b, 0);
    spw_layer_dies(b, "end", "map");
}

static void test_kept(void) {
    spw_layer_shape s = shape;
    spw_layer live, torch;
    s.sequential_experts = true;
    s.experts_per_rank = 2;
    CHECK_OK(build_in(&s, kept_and_parts, SPW_FLAVOUR_LIVE, &live));
    CHECK_OK(build_in(&s, kept_and_parts, SPW_FLAVOUR_TORCH, &torch));
    check_layer(&live);
    check_layer(&torch);
    CHECK(live.tensors == 2 && live.events == 2 * (1 + 2 + 1) + 4);
    CHECK(torch.tensors == 2 && torch.events == 2 * (2 + 2) + 4); /* kept twice instead of dying twice */
    CHECK(torch.event[1].sign == 0 && torch.event[1].tensor == 0 && torch.tensor[0].needed);
    CHECK(spw_layer_is_live(&torch, NULL, 0, 5));
    CHECK(torch.event[2].expert == 1 && torch.event[3].expert == 2 && torch.event[1].expert == 0);
    const size_t part = spw_layer_find(&torch, "part");
    const spw_rank_rows rows = {100, 100, 100};
    CHECK(part == 1 && spw_layer_find(&torch, "parts") == SIZE_MAX);
    CHECK(spw_layer_bytes(&torch.tensor[part], &rows) == 0 && spw_layer_is_dynamic(&torch));
    CHECK(spw_layer_row_bytes(&torch.tensor[part], 5) == 40 &&
          spw_layer_row_bytes(&torch.tensor[0], 5) == 12);
    spw_layer_destroy(&live);
    spw_layer_destroy(&torch);
}

/* --- Every scheme --- */

/* With each word of each option in turn, one expert a rank or several, one choice or several. */
static void check_scheme(const spw_scheme *scheme) {
    for (size_t i = 0; i < 8; i++) {
        spw_layer_shape s = shape;
        s.experts_per_rank = i % 2 == 0 ? 1 : 4;
        s.ranks = s.experts / s.experts_per_rank;
        s.top_k = i / 2 % 2 == 0 ? 1 : 3;
        s.assignments = s.tokens * s.top_k;
        s.worst_rows = s.ranks * s.tokens * (s.experts_per_rank < s.top_k ? s.experts_per_rank : s.top_k);
        s.remat = i / 4 == 0 ? SPW_REMAT_FULL : SPW_REMAT_MOE_ACT;
        for (int flavour = 0; flavour < SPW_FLAVOUR_COUNT; flavour++) {
            spw_layer layer = {.tensors = 0};
            CHECK_OK(spw_layer_build(scheme, &s, (spw_flavour)flavour, &layer));
            check_layer(&layer);
            spw_layer_destroy(&layer);
        }
    }
}

static void test_schemes(void) {
    size_t layers = 0;
    for (size_t t = 0; spw_scheme_types[t] != NULL; t++) {
        const spw_scheme_type *type = spw_scheme_types[t];
        spw_scheme scheme = {.type = type};
        for (size_t i = 0; type->options[i].name != NULL; i++)
            scheme.option[i] = type->options[i].required ? 1.0 : type->options[i].fallback;
        (void)snprintf(scheme.text, sizeof scheme.text, "%s", type->name);
        check_scheme(&scheme);
        for (size_t i = 0; type->options[i].name != NULL; i++) {
            const double before = scheme.option[i];
            const char *const *choices = type->options[i].choices;
            for (size_t c = 0; choices == NULL ? c < 2 : choices[c] != NULL; c++, layers++) {
                scheme.option[i] = choices != NULL || type->options[i].minimum <= 0.0 ? (double)c : 1.0;
                check_scheme(&scheme);
            }
            scheme.option[i] = before;
        }
    }
    CHECK(layers > 40);
}

int main(void) {
    test_by_hand();
    test_moments();
    test_refusals();
    test_many();
    test_kept();
    test_schemes();
    return check_done();
}
