/* The plan of a dispatch: by hand, against the executed scheme's fabric, and there and back again. */
#include "kernels/record/choices.h"
#include "reference/dispatch.h"
#include "reference/schemes/execution.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdbool.h>
#include <string.h>

/* Two ranks with two experts each, three tokens a rank, top-2. */
static void test_by_hand(void) {
    static const int32_t expert[] = {0, 1, 2, 0, -1, -1, 3, 2, 1, 2, 0, -1};
    static const size_t sent[] = {2, 1, 2, 2}, first[] = {0, 2, 4, 0, 1, 3}, choices[] = {3, 2, 3, 1};
    static const int32_t place[] = {0, -1, 1, 0, -1, -1, -1, 0, 0, 1, 1, -1};
    static const int32_t item[] = {0, 1, 4, 5, -1, -1, 1, 3, 4, -1, -1, -1};
    spw_dispatch_plan p;
    CHECK_OK(spw_ref_dispatch_create(2, 3, 2, 4, expert, &p));
    CHECK(memcmp(p.sent, sent, sizeof sent) == 0 && memcmp(p.first, first, sizeof first) == 0);
    CHECK(memcmp(p.place, place, sizeof place) == 0 && memcmp(p.item, item, sizeof item) == 0);
    CHECK(memcmp(p.choices, choices, sizeof choices) == 0);
    float rows[2][6] = {{1, 2, 4, 8, 0, 0}, {16, 32, 64, 0, 0, 0}}, y[3], scale[3];
    const float *of[2] = {rows[0], rows[1]};
    spw_ref_dispatch_combine(&p, 0, 1, of, y, scale);
    CHECK(y[0] == 1 && y[1] == 2 + 16 && y[2] == 0 && scale[1] == 18);
    spw_ref_dispatch_combine(&p, 1, 1, of, y, NULL);
    CHECK(y[0] == 32 && y[1] == 4 + 64 && y[2] == 8);
    spw_ref_dispatch_destroy(&p);
    CHECK_STATUS(spw_ref_dispatch_create(3, 3, 2, 4, expert, &p), SPW_EARG);
    CHECK(p.place == NULL);
    CHECK_STATUS(spw_ref_dispatch_create(2, 3, 2, 2, expert, &p), SPW_EARG);
    for (int i = 0; i < 5; i++) {
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_ref_dispatch_create(2, 3, 2, 4, expert, &p), SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
}

/* Rows of every pair are those that the executed scheme put on its fabric; ids are distinct and in range. */
static void check_case(spw_choice_kind kind, size_t ranks, size_t tokens, size_t top_k, size_t experts) {
    enum { WIDTH = 4 };
    const size_t all = ranks * tokens, matrix = experts * WIDTH * WIDTH;
    const uint64_t row = WIDTH * 2 + 8 * top_k + 4;
    int32_t *expert = NULL;
    float *in = NULL, *out = NULL;
    uint64_t *counts = NULL;
    spw_arena *arena = NULL;
    spw_fabric *fabric = NULL;
    spw_dispatch_plan p;
    CHECK_OK(SPW_ALLOC(all * top_k, &expert));
    CHECK_OK(SPW_ALLOC(2 * all * WIDTH + all * top_k + 3 * matrix, &in));
    CHECK_OK(SPW_ALLOC(2 * all * WIDTH + all * top_k + 3 * matrix, &out));
    CHECK_OK(SPW_ALLOC(2 * ranks, &counts));
    CHECK_OK(spw_arena_create(ranks, &arena));
    CHECK_OK(spw_fabric_create(ranks, &fabric));
    for (size_t s = 0; s < ranks; s++)
        spw_choices_fill(kind, tokens, top_k, experts, ranks, 5 + s, expert + s * tokens * top_k);
    for (size_t i = 0; i < all * top_k; i++) {
        CHECK(expert[i] < (int32_t)experts && expert[i] >= (kind == SPW_CHOICES_FEW ? -1 : 0));
        for (size_t j = i / top_k * top_k; j < i; j++) CHECK(expert[i] < 0 || expert[i] != expert[j]);
    }
    const spw_execution_shape shape = {.ranks = ranks,
                                       .experts = experts,
                                       .top_k = top_k,
                                       .hidden = WIDTH,
                                       .ffn = WIDTH,
                                       .sequences = 1,
                                       .sequence_length = tokens,
                                       .element_bytes = 2};
    float *w = in + 2 * all * WIDTH + all * top_k, *dw = out + 2 * all * WIDTH + all * top_k;
    const spw_execution_input input = {.expert = expert,
                                       .weight = in + 2 * all * WIDTH,
                                       .x = in,
                                       .dy = in + all * WIDTH,
                                       .weights = {w, w + matrix, w + 2 * matrix}};
    const spw_execution_output output = {.y = out,
                                         .dx = out + all * WIDTH,
                                         .d_weight = out + 2 * all * WIDTH,
                                         .gradients = {dw, dw + matrix, dw + 2 * matrix},
                                         .rows = counts,
                                         .dropped = counts + ranks};
    CHECK_OK(spw_execute(spw_executor_find("gmm-deepep"), &shape, &input, &output, arena, fabric));
    CHECK_OK(spw_ref_dispatch_create(ranks, tokens, top_k, experts, expert, &p));
    bool same = true;
    for (size_t i = 0; i < ranks * ranks; i++)
        same = same && p.sent[i] * row == spw_fabric_bytes(fabric, "dispatch", i / ranks, i % ranks);
    for (size_t d = 0; d < ranks; d++) {
        size_t choices = 0;
        for (size_t x = 0; x < experts / ranks; x++) choices += p.choices[d * (experts / ranks) + x];
        same = same && choices == counts[d];
    }
    CHECK(same);
    spw_ref_dispatch_destroy(&p);
    spw_fabric_destroy(fabric), spw_arena_destroy(arena);
    spw_free(counts), spw_free(out), spw_free(in), spw_free(expert);
}

int main(void) {
    test_by_hand();
    for (int kind = 0; kind < SPW_CHOICES_KINDS; kind++) {
        check_case((spw_choice_kind)kind, 4, 37, 3, 12);
        check_case((spw_choice_kind)kind, 3, 20, 6, 6);
        check_case((spw_choice_kind)kind, 1, 5, 1, 1);
    }
    return check_done();
}
