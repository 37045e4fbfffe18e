/* A trace that is made in memory holds what the file of the same settings holds, in any order of reading. argv[1]: scratch directory. */
#include "tests/unit/check.h"
#include "traces/generate/made_trace.h"

#include <stdio.h>
#include <string.h>

static void same_columns(spw_trace *made, spw_trace *file, size_t step) {
    spw_trace_columns a, b;
    CHECK_OK(spw_trace_read_columns(made, step, 1, &a));
    CHECK_OK(spw_trace_read_columns(file, step, 1, &b));
    CHECK(a.first == b.first && a.tokens == b.tokens && a.flagged == b.flagged);
    CHECK(memcmp(a.source_rank, b.source_rank, a.tokens * sizeof *a.source_rank) == 0);
    CHECK(memcmp(a.sequence, b.sequence, a.tokens * sizeof *a.sequence) == 0);
    CHECK(memcmp(a.position, b.position, a.tokens * sizeof *a.position) == 0);
}

static void same_record(spw_trace *made, spw_trace *file, size_t step, size_t layer) {
    spw_trace_record a, b;
    size_t differing = 0;
    CHECK_OK(spw_trace_read_record(made, step, 1, layer, false, &a));
    CHECK_OK(spw_trace_read_record(file, step, 1, layer, false, &b));
    CHECK(a.tokens == b.tokens && a.top_k == b.top_k && a.experts == b.experts && a.weight == NULL);
    for (size_t i = 0; i < a.tokens * a.top_k; i++)
        differing += spw_trace_record_id(&a, i) != spw_trace_record_id(&b, i);
    CHECK(differing == 0);
}

static void same_info(const spw_trace_info *a, const spw_trace_info *b) {
    CHECK(a->steps == b->steps && a->layers == b->layers && a->ranks == b->ranks && a->tokens == b->tokens);
    CHECK(a->groups == b->groups && a->groups_kept == b->groups_kept && a->model_layers == b->model_layers);
    CHECK(a->sequence_length == b->sequence_length && a->synthetic && b->synthetic);
    CHECK(a->has_tokens && a->has_sequences && !a->has_weights && !b->has_weights);
    CHECK(strcmp(a->model_name, b->model_name) == 0 && strcmp(a->note, b->note) == 0);
    CHECK(strcmp(a->content, b->content) == 0 && strcmp(a->order, b->order) == 0);
    for (size_t s = 0; s < a->steps; s++)
        CHECK(a->step_id[s] == b->step_id[s] && a->step_phase[s] == b->step_phase[s] &&
              a->step_offset[s + 1] == b->step_offset[s + 1]);
}

static void compare(const char *distribution, size_t experts, size_t sequence_length, const char *folder) {
    static int files = 0; /* a file that was read is not written over */
    char path[4096];
    spw_generate_settings s = {.experts = experts,
                               .top_k = 4,
                               .layers = 3,
                               .steps = 3,
                               .ranks = 5,
                               .tokens_per_rank = 96,
                               .sequence_length = sequence_length,
                               .first_layer = 2,
                               .seed = 11,
                               .distribution_text = distribution};
    spw_trace *made = NULL, *file = NULL;
    (void)snprintf(path, sizeof path, "%s/made_trace_%d.h5", folder, files++);
    CHECK_OK(spw_distribution_parse(distribution, &s.distribution));
    CHECK_OK(spw_generate_trace(&s, path));
    CHECK_OK(spw_trace_open(path, &file));
    CHECK_OK(spw_trace_make(&s, &made));
    same_info(spw_trace_get_info(made), spw_trace_get_info(file));
    CHECK(spw_trace_made_tokens(file) == 0);
    CHECK(spw_trace_made_tokens(made) == (sequence_length == 0 ? 96 : 0));
    for (size_t i = 0; i < 2 * s.steps * s.layers; i++) { /* all, and again, backwards and forwards */
        const size_t at = i % 2 == 0 ? i / 2 : s.steps * s.layers - 1 - i / 2;
        same_record(made, file, at / s.layers, at % s.layers);
        same_columns(made, file, at / s.layers);
    }
    spw_trace_close(made);
    spw_trace_close(file);
}

static void test_refusals(void) {
    spw_generate_settings s = {
        .experts = 8, .top_k = 9, .layers = 1, .steps = 1, .ranks = 1, .tokens_per_rank = 1};
    spw_trace *made = NULL;
    CHECK_STATUS(spw_trace_make(&s, &made), SPW_EARG);
    CHECK(made == NULL);
    s.top_k = 2, s.ranks = SPW_TRACE_MAX_RANKS, s.steps = 1 << 16;
    CHECK_STATUS(spw_trace_make(&s, &made), SPW_EARG);
    s.ranks = 4, s.steps = 2;
    CHECK_OK(spw_trace_make(&s, &made));
    spw_trace_record record;
    CHECK_STATUS(spw_trace_read_record(made, 0, 2, 0, false, &record), SPW_EARG);
    CHECK_STATUS(spw_trace_read_record(made, 0, 1, 1, false, &record), SPW_EARG);
    spw_trace_close(made);
}

/* 4 layers of 20 MiB: one is not kept, and is drawn at every reading. */
static void test_room(void) {
    spw_generate_settings s = {.experts = 8,
                               .top_k = 8,
                               .layers = 4,
                               .steps = 1,
                               .ranks = 20,
                               .tokens_per_rank = 1 << 17,
                               .seed = 3};
    spw_trace *made = NULL;
    spw_trace_record record;
    const void *first = NULL;
    CHECK_OK(spw_distribution_parse("uniform", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &made));
    for (size_t i = 0; i < 8; i++) {
        CHECK_OK(spw_trace_read_record(made, 0, 1, i % 4, false, &record));
        size_t count[8] = {0};
        for (size_t j = 0; j < 64; j++) count[spw_trace_record_id(&record, j)]++;
        for (size_t x = 0; x < 8; x++) CHECK(count[x] == 8); /* every token takes all eight */
        if (i == 0) first = record.expert_id;
        CHECK((i % 4 == 0) == (record.expert_id == first));
    }
    spw_trace_close(made);
}

/* 2^34 choices of a layer: nothing is drawn, or held, before it is read. */
static void test_lazy(void) {
    spw_generate_settings s = {.experts = 512,
                               .top_k = 8,
                               .layers = 4,
                               .steps = 1,
                               .ranks = SPW_TRACE_MAX_RANKS,
                               .tokens_per_rank = 1 << 15};
    spw_trace *made = NULL;
    CHECK_OK(spw_distribution_parse("uniform", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &made));
    CHECK(spw_trace_get_info(made)->tokens == (uint64_t)1 << 31 && spw_trace_made_tokens(made) == 1 << 15);
    spw_trace_close(made);
}

int main(int argc, char **argv) {
    static const char *const distributions[] = {"uniform",
                                                "reference",
                                                "group-limited:groups=8,kept=2",
                                                "collapse",
                                                "drift",
                                                "hash:vocabulary=1000",
                                                "hot-rank:rank=1,ranks=8"};
    const char *folder = argc > 1 ? argv[1] : ".";
    for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++) {
        compare(distributions[i], 64, 0, folder);
        compare(distributions[i], 256, 32, folder);
        compare(distributions[i], 320, 0, folder);
    }
    test_refusals();
    test_room();
    test_lazy();
    return check_done();
}
