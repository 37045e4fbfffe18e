/* The table of what goes with what, by itself: every pair has two features with words, stands once, and its sentence has no word that
 * nobody fills in. argv: docs/goes_with.md, which must be what this prints with a second argument. */
#include "sim/job/goes_with.h"
#include "sim/job/job.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

/* Words of a scheme (sim/memory/live/footprint_check.c), each with a text that no sentence has. */
static const struct spw_side_word words[] = {
    {"scheme", "SCHEME"},       {"name", "NAME"},           {"said", "SAID"},
    {"splits_words", "SPLITS"}, {"stages_words", "STAGES"}, {"loss", "LOSS"},
    {"loss_owner", "OWNER"},    {"loss_words", "LOSSES"},   {NULL, NULL}};

static bool is_word(const char *at, const char *end) {
    for (; at < end; at++)
        if (!((*at >= 'a' && *at <= 'z') || *at == '_')) return false;
    return true;
}

/* Is there a word in braces, or what stands for one that nobody knows? */
static bool is_open(const char *text) {
    for (const char *at = strchr(text, '{'); at != NULL; at = strchr(at + 1, '{')) {
        const char *end = strchr(at, '}');
        if (end != NULL && end > at + 1 && is_word(at + 1, end)) return true;
    }
    return strchr(text, '?') != NULL;
}

static bool is_alike(const spw_pair *a, const spw_pair *b) {
    return (a->key == NULL) == (b->key == NULL) &&
           ((a->one == b->one && a->other == b->other) || (a->one == b->other && a->other == b->one));
}

static void test_rows(void) {
    static spw_job job;
    bool used[SPW_FEATURES] = {false};
    const char *text =
        "model: olmoe-1b-7b\ncluster: h100-1x1\nparallel: {expert: 1, fsdp: 1}\noptimizer: distributed\n"
        "precision: mixed\nbatch: {sequences_per_gpu: 1, sequence_length: 64}\n";
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    for (size_t i = 0; i < spw_pairs_count; i++) {
        const spw_pair *pair = &spw_pairs[i];
        spw_scheme_side side = {{{0}}, words};
        used[pair->one] = used[pair->other] = true;
        CHECK(pair->one != pair->other && strlen(pair->sentence) > 20);
        for (size_t k = 0; k < i; k++) CHECK(!is_alike(pair, &spw_pairs[k]));
        if (pair->key != NULL) continue;
        spw_features_set(&side.has, pair->one, true);
        spw_features_set(&side.has, pair->other, true);
        CHECK_STATUS(spw_goes_with_check(&job, &side, NULL), SPW_ECONFIG);
        CHECK(!is_open(spw_last_error()));
        if (is_open(spw_last_error())) fprintf(stderr, "%s\n", spw_last_error());
    }
    for (int f = 0; f < SPW_FEATURES; f++) {
        CHECK(used[f] && strlen(spw_feature_words((spw_feature)f)) > 2);
        if (!used[f]) fprintf(stderr, "no pair has %s\n", spw_feature_words((spw_feature)f));
        for (int k = 0; k < f; k++)
            CHECK(strcmp(spw_feature_words((spw_feature)f), spw_feature_words((spw_feature)k)) != 0);
    }
    /* features alone refuse nothing */
    CHECK_OK(spw_goes_with_check(&job, &(spw_scheme_side){{{0}}, words}, NULL));
}

/* A row a feature: what it does not go with, in the order of the table. */
static void print(FILE *out) {
    fprintf(out, "# What does not go with what\n\n"
                 "Pairs of features that are refused, each with a sentence that says what to use. All other "
                 "pairs are answered.\n"
                 "Made from the table in the sources; whether the answer is a bound stands in the answer.\n\n"
                 "| feature | does not go with |\n|---|---|\n");
    for (int f = 0; f < SPW_FEATURES; f++) {
        bool first = true;
        for (size_t i = 0; i < spw_pairs_count; i++) {
            const spw_pair *pair = &spw_pairs[i];
            if (pair->one != (spw_feature)f) continue;
            if (first) fprintf(out, "| %s |", spw_feature_words(pair->one));
            fprintf(out, "%s %s", first ? "" : ";", spw_feature_words(pair->other));
            first = false;
        }
        if (!first) fprintf(out, " |\n");
    }
}

static void test_page(const char *path) {
    static char ours[1 << 16], theirs[1 << 16];
    FILE *made = fmemopen(ours, sizeof ours, "w"), *page = fopen(path, "r");
    CHECK(made != NULL && page != NULL);
    if (made == NULL || page == NULL) return;
    print(made);
    (void)fclose(made);
    theirs[fread(theirs, 1, sizeof theirs - 1, page)] = '\0';
    (void)fclose(page);
    CHECK(strcmp(ours, theirs) == 0);
}

int main(int count, char **argument) {
    test_rows();
    if (count > 2) print(stdout);
    if (count == 2) test_page(argument[1]);
    return count > 2 ? 0 : check_done();
}
