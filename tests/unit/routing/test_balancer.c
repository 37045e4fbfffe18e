/* Balancers: EPLB's placements against those that its published code returned (eplb_placements.txt), cloning and mapping by
 * hand, properties over seeds, texts that must be refused.
 *
 * test_balancer PLACEMENTS */
#include "sim/routing/balancer.h"
#include "sim/routing/eplb.h"
#include "tests/unit/check.h"
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };

static size_t read_numbers(char *line, double *out) {
    size_t count = 0;
    for (char *at = line, *end = NULL; count < MOST; at = end) {
        const double value = strtod(at, &end);
        if (end == at) break;
        out[count++] = value;
    }
    return count;
}

static void test_published(const char *path) {
    static char line[16384];
    static double head[MOST], load[MOST], want[MOST];
    uint32_t got[MOST];
    size_t cases = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#') continue;
        CHECK(read_numbers(line, head) == 5);
        const spw_eplb_shape shape = {(size_t)head[0], (size_t)head[1], (size_t)head[2], (size_t)head[3],
                                      (size_t)head[4]};
        CHECK(fgets(line, sizeof line, file) != NULL && read_numbers(line, load) == shape.experts);
        CHECK(fgets(line, sizeof line, file) != NULL && read_numbers(line, want) == shape.slots);
        CHECK(spw_eplb_place(&shape, load, got) == SPW_OK);
        size_t equal = 0;
        for (size_t i = 0; i < shape.slots; i++) equal += got[i] == (uint32_t)want[i];
        CHECK(equal == shape.slots);
        cases++;
    }
    CHECK(cases == 33);
    if (file != NULL) (void)fclose(file);
}

static spw_balancer *make(const char *text, size_t experts, size_t ranks, size_t layers) {
    const spw_balancer_shape shape = {experts, ranks, ranks, 1, layers};
    spw_balancer_spec spec;
    spw_balancer *b = NULL;
    CHECK(spw_balancer_parse(text, &spec) == SPW_OK);
    CHECK(spw_balancer_create(&spec, &shape, &b) == SPW_OK);
    return b;
}

static void expect(const spw_balancer *b, size_t layer, size_t slots, const uint32_t *want) {
    for (size_t i = 0; i < slots; i++) CHECK(spw_balancer_placement(b, layer)[i] == want[i]);
}

/* Four experts at home on two ranks, one copy on each. Loads 6 0 1 1: expert 0 is cloned on rank 1 (3 a copy), then expert 2
 * or 3 on rank 0 as rank 1 is full; of 1 and 1 the first. */
static void test_clones(void) {
    static const uint8_t ids[] = {0, 0, 0, 0, 0, 0, 2, 3, 255, 255};
    const spw_trace_record record = {
        .tokens = 5, .top_k = 2, .experts = 4, .id_bytes = 1, .missing = 255, .expert_id = ids};
    static const uint32_t even[] = {0, 1, 2, 2, 3, 0}, loaded[] = {0, 1, 2, 2, 3, 0};
    static const uint16_t want[] = {0, 5, 0, 5, 0, 5, 2, 4, 65535, 65535};
    spw_balancer *b = make("echo:replicas=2,every=1", 4, 2, 1);
    spw_trace_record out;
    CHECK(spw_balancer_begin(b) == SPW_OK);
    expect(b, 0, 6, even);
    CHECK(spw_balancer_map(b, 0, &record, true, &out) == SPW_OK);
    CHECK(out.tokens == 5 && out.top_k == 2 && out.experts == 6 && out.id_bytes == 2 && out.missing == 65535);
    for (size_t i = 0; i < 10; i++) CHECK(((const uint16_t *)out.expert_id)[i] == want[i]);
    CHECK(spw_balancer_begin(b) == SPW_OK);
    expect(b, 0, 6, loaded);
    const spw_balancer_moves moves = spw_balancer_moved(b);
    CHECK(moves.placements == 1 && moves.moved == 0 && moves.copies_moved == 2);
    spw_balancer_destroy(b);
}

/* Loads 1 1 1 8 of four experts without copies: rank 0 gets the 8 and, as nothing else has room, the last of the ones. */
static void test_moves(void) {
    static const uint8_t ids[] = {3, 3, 3, 3, 3, 3, 3, 3, 0, 1, 2};
    const spw_trace_record record = {
        .tokens = 11, .top_k = 1, .experts = 4, .id_bytes = 1, .missing = 255, .expert_id = ids};
    static const uint32_t even[] = {0, 2, 1, 3}, loaded[] = {3, 2, 0, 1}, idle[] = {0, 1, 2, 3};
    spw_balancer *b = make("eplb:replicas=0,every=2", 4, 2, 2);
    spw_trace_record out;
    for (size_t step = 0; step < 2; step++) {
        CHECK(spw_balancer_begin(b) == SPW_OK);
        expect(b, 0, 4, even);
        CHECK(spw_balancer_map(b, 0, &record, true, &out) == SPW_OK);
        CHECK(spw_balancer_map(b, 1, &record, false, &out) == SPW_OK);
    }
    CHECK(spw_balancer_begin(b) == SPW_OK);
    expect(b, 0, 4, loaded);
    expect(b, 1, 4, idle); /* nothing was counted there: every rank is the lightest until it is full */
    const spw_balancer_moves moves = spw_balancer_moved(b);
    CHECK(moves.placements == 1 && moves.moved == 4 && moves.moved_most == 2 && moves.copies_moved == 4);
    spw_balancer_destroy(b);
}

/* Every expert has a slot, every choice goes to a slot of its expert, and copies of an expert differ by one choice at most. */
static void test_properties(void) {
    static uint16_t ids[4096];
    static const char *const texts[] = {"eplb:replicas=16,every=2",
                                        "eplb:replicas=8,every=1,hierarchical,groups=8",
                                        "echo:replicas=8,every=3", "echo:replicas=0,every=1"};
    const spw_trace_record record = {
        .tokens = 1024, .top_k = 4, .experts = 32, .id_bytes = 2, .missing = 65535, .expert_id = ids};
    for (size_t t = 0; t < 4; t++) {
        spw_balancer_spec spec;
        spw_balancer *b = NULL;
        const spw_balancer_shape shape = {32, 8, 4, 1, 1};
        CHECK(spw_balancer_parse(texts[t], &spec) == SPW_OK &&
              spw_balancer_create(&spec, &shape, &b) == SPW_OK);
        for (size_t step = 0; step < 8; step++) {
            uint32_t count[64] = {0};
            bool there[32] = {false};
            spw_trace_record out;
            for (size_t i = 0; i < 4096; i++) ids[i] = (uint16_t)((i * i * (step + 3) + i) % 977 % 32);
            CHECK(spw_balancer_begin(b) == SPW_OK);
            CHECK(spw_balancer_map(b, 0, &record, true, &out) == SPW_OK);
            const uint32_t *expert = spw_balancer_placement(b, 0);
            bool own = true, even = true;
            for (size_t i = 0; i < 4096; i++) {
                const uint16_t slot = ((const uint16_t *)out.expert_id)[i];
                own = own && slot < out.experts && expert[slot] == ids[i];
                if (slot < out.experts) count[slot]++;
            }
            for (size_t i = 0; i < out.experts; i++) {
                there[expert[i]] = true;
                for (size_t j = 0; j < i; j++)
                    even = even && (expert[i] != expert[j] || count[i] - count[j] + 1 <= 2);
            }
            for (size_t x = 0; x < 32; x++) CHECK(there[x]);
            CHECK(own && even);
        }
        spw_balancer_destroy(b);
    }
}

static void test_refusals(void) {
    static const char *const texts[] = {"",
                                        "eplb",
                                        "eplb:",
                                        "eplb:replicas=8",
                                        "eplb:every=1",
                                        "other:replicas=8,every=1",
                                        "eplb:replicas=8,every=0",
                                        "eplb:replicas=-8,every=1",
                                        "eplb:replicas=8,every=1,groups=4",
                                        "echo:replicas=8,every=1,hierarchical",
                                        "eplb:replicas=8x,every=1",
                                        "eplb:replicas=99999999999999999999,every=1"};
    spw_balancer_spec spec;
    spw_balancer *b = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(spw_balancer_parse(texts[i], &spec) == SPW_ECONFIG);
    static const struct {
        const char *text;
        spw_balancer_shape shape;
    } jobs[] = {{"eplb:replicas=5,every=1", {32, 8, 8, 1, 1}},
                {"echo:replicas=240,every=1", {32, 8, 8, 1, 1}},
                {"eplb:replicas=8,every=1,hierarchical,groups=3", {32, 8, 4, 1, 1}},
                {"eplb:replicas=8,every=1,hierarchical,groups=1", {32, 8, 4, 1, 1}},
                {"eplb:replicas=8,every=1,hierarchical", {32, 8, 3, 1, 1}}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        CHECK(spw_balancer_parse(jobs[i].text, &spec) == SPW_OK);
        CHECK(spw_balancer_create(&spec, &jobs[i].shape, &b) == SPW_ECONFIG && b == NULL);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (argc == 2) test_published(argv[1]);
    test_clones();
    test_moves();
    test_properties();
    test_refusals();
    return check_done();
}
