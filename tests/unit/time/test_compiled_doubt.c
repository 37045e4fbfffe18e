/* Intervals of compiled programs with pencil and paper, and the law of exchanges over nodes against published rates. */
#include "sim/time/compiled/compiled_doubt.h"

#include "sim/read/csv.h"
#include "sim/time/exchange_rate.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near(double value, double want, const char *what) {
    const bool good = fabs(value - want) <= 1e-9 * fabs(want);
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.12g, want %.12g\n", what, value, want);
}

/* --- Intervals --- */

/* Ten seconds, one of them by the NIC at 0.9 of its rate, two behind DeepEP, the shorter leg 0.5. */
static double step(const void *problem, const spw_time_stack *s) {
    (void)problem;
    return 6.35 + 0.9 / s->alltoall_share.value + 2.0 * 0.5 / s->library_share.value +
           0.5 * s->serial_share.value + 0.1 * s->memory_share.value / 0.2;
}

static spw_time_stack stack_of(void) {
    spw_time_stack s = {
        .half_width.value = 0.03, .half_width_unseen.value = 0.04, .half_width_elsewhere.value = 0.12};
    s.alltoall_share = (spw_coefficient){.value = 0.9, .uncertainty = 0.09, .evidence = SPW_EVIDENCE_FITTED};
    s.library_share = (spw_coefficient){.value = 0.5, .evidence = SPW_EVIDENCE_PUBLISHED};
    s.serial_share = (spw_coefficient){.value = 0.5, .uncertainty = 0.25, .evidence = SPW_EVIDENCE_PUBLISHED};
    s.memory_share = (spw_coefficient){.value = 0.6, .uncertainty = 0.2, .evidence = SPW_EVIDENCE_FITTED};
    return s;
}

static spw_timeline interval(const spw_time_stack *s, spw_compiled_far far) {
    spw_timeline t = {.step_s = step(NULL, s)};
    spw_compiled_doubt(s, &far, step, NULL, &t);
    return t;
}

static void test_widths(void) {
    const spw_time_stack s = stack_of();
    near(step(NULL, &s), 10.0 - 0.1, "the step");
    spw_timeline t = interval(&s, (spw_compiled_far){0, 0, false});
    near(t.low_s, 9.9 * exp(-0.03), "seen: what was fitted does not move");
    near(t.high_s, 9.9 * exp(0.03), "seen");
    t = interval(&s, (spw_compiled_far){1, 0, false});
    near(t.high_s, 9.9 * exp(0.05), "3, 4, 5");
    t = interval(&s, (spw_compiled_far){1, 1, false});
    near(t.low_s, 9.9 * exp(-0.13), "5, 12, 13");
    t = interval(&s, (spw_compiled_far){.seen_ring_s = 9.9 * exp(-0.04)});
    near(t.low_s, 9.9 * exp(-0.05), "3, 4, 5 where a ring is longer than any that was seen");
    near(t.high_s, 9.9 * exp(0.03), "which makes nothing slower");
    t = interval(&s, (spw_compiled_far){4, 0, false});
    near(t.high_s, 9.9 * exp(sqrt(9.0 + 4 * 16.0) / 100.0), "four things unseen");
}

static void test_moves(void) {
    spw_time_stack s = stack_of();
    s.library_share.uncertainty = 0.05; /* a tenth: 2 s become 2 exp(-+0.2) */
    spw_timeline t = interval(&s, (spw_compiled_far){0, 0, false});
    near(t.high_s, 9.9 * exp(hypot(0.03, log((7.9 + 2.0 * exp(0.2)) / 9.9))), "slower");
    near(t.low_s, 9.9 * exp(-hypot(0.03, log((7.9 + 2.0 * exp(-0.2)) / 9.9))), "faster");
    s = stack_of();
    s.memory_share.evidence = SPW_EVIDENCE_ASSUMED; /* a third: 0.6 exp(2/3) is above 1, where it ends */
    t = interval(&s, (spw_compiled_far){0, 0, false});
    near(t.high_s, 9.9 * exp(hypot(0.03, log((9.6 + 0.5) / 9.9))), "a share ends at 1");
    /* the network's part of an exchange: only where its size or cluster was not seen */
    s = stack_of();
    t = interval(&s, (spw_compiled_far){0, 0, true});
    const double doubt = 0.12; /* of the published rates, above the fit's tenth */
    const double slow = log((8.9 + exp(2 * doubt)) / 9.9), serial = log((9.65 + 0.5) / 9.9);
    near(t.high_s, 9.9 * exp(sqrt(9e-4 + slow * slow + serial * serial)),
         "NIC slower, legs one after the other");
    const double fast = log((8.9 + 0.9) / 9.9), beside = log((9.65 + 0.25 * exp(-1.0)) / 9.9);
    near(t.low_s, 9.9 * exp(-sqrt(9e-4 + fast * fast + beside * beside)),
         "NIC at its rate, legs side by side");
}

/* --- Published rates --- */

/* Of `parts` equal parts of 256 experts, how many eight different ones reach. */
static double reached(double parts) {
    const double part = 256.0 / parts;
    double missed = 1.0;
    for (int j = 0; j < 8; j++) missed *= fmax(0.0, (256.0 - part - j) / (256.0 - j));
    return parts * (1.0 - missed);
}

static size_t nodes_of(const char *ranks) {
    if (strcmp(ranks, "EP 8 x 2") == 0 || strcmp(ranks, "16") == 0) return 2;
    if (strcmp(ranks, "EP 8 x 4") == 0 || strcmp(ranks, "32") == 0) return 4;
    return strcmp(ranks, "24") == 0 ? 3 : strcmp(ranks, "64") == 0 ? 8 : 0;
}

/* GB/s inside a node of the same library and hardware; what the links have where it publishes none. */
static double inside_node(const char *library, const char *hardware) {
    static const struct {
        const char *library, *hardware;
        double rate;
    } known[] = {{"UCCL-EP", "MI355X", 299}, {"UCCL-EP", "MI300X", 260}, {"UCCL-EP", "B200", 280},
                 {"UCCL-EP", "H200", 319},   {"MORI-EP", "MI355X", 345}, {"MORI-EP", "MI300X", 307},
                 {"DeepEP V1", "H800", 153}, {"DeepEP V2", "SM90", 400}, {"DeepEP V2", "SM100", 726},
                 {"HybridEP", "H100", 400}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].library, library) == 0 && strcmp(known[i].hardware, hardware) == 0)
            return known[i].rate;
    return NAN;
}

/* A token's row goes once to every node that it wants, by a NIC of 50 GB/s unless it stays, and from there to every GPU that
 * wants it. Published: copies to nodes, its own included, over the time. */
static void test_published(const char *path) {
    spw_csv *csv = NULL;
    size_t figures = 0, above = 0, below = 0, near_law = 0;
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) {
        const char *kind = spw_csv_field(csv, i, "bw_kind"),
                   *tokens = spw_csv_field(csv, i, "tokens_per_rank");
        const size_t nodes = nodes_of(spw_csv_field(csv, i, "ep_ranks"));
        const bool network =
            strstr(kind, "RDMA") != NULL || strstr(kind, "IB algorithm bandwidth; kernel") != NULL;
        const double link = inside_node(spw_csv_field(csv, i, "library"), spw_csv_field(csv, i, "hardware"));
        if (nodes == 0 || !network || strlen(tokens) != 4 || isnan(link)) continue; /* 4096 or 8192 tokens */
        const double n = (double)nodes, copies = reached(n);
        const double seconds = copies / atof(spw_csv_field(csv, i, "bandwidth_gbs"));
        const double by_nic = copies * (n - 1.0) / n / (0.9 * 50.0), by_link = reached(8.0 * n) / link;
        figures++;
        above += seconds >= 0.95 * spw_exchange_legs(by_link, by_nic, 0.0);
        below += seconds <= spw_exchange_legs(by_link, by_nic, 1.0);
        near_law += fabs(log(seconds / spw_exchange_legs(by_link, by_nic, 0.15))) <= 2 * 0.12;
    }
    fprintf(
        stderr,
        "published: %zu figures, %zu not faster than side by side, %zu not slower than one after the other, "
        "%zu within the doubt of the law\n",
        figures, above, below, near_law);
    CHECK(figures >= 80 && above == figures && below * 10 >= figures * 9);
    spw_csv_close(csv);
}

/* --- What is outside the fit --- */

/* Another cluster or another group has rates of its network that nobody fitted; another model, batch or length has not. */
static void test_outside(void) {
    const spw_fit_range range = {"own", "h100-8x8", "8 16", "4096", 1, 8};
    const struct {
        spw_fit_point point;
        size_t sizes, places;
        bool network;
    } cases[] = {{{"own", "h100-8x8", 8, 4, 4096, true}, 0, 0, false},
                 {{"own", "h100-8x8", 32, 4, 4096, true}, 1, 0, true},
                 {{"own", "h200-8x8", 8, 4, 4096, true}, 0, 1, true},
                 {{"own", "h100-8x8", 8, 9, 4096, true}, 1, 0, false},
                 {{"other", "h100-8x8", 16, 4, 2048, false}, 0, 3, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char note[SPW_OUTSIDE_TEXT] = "";
        const spw_outside_count got = spw_outside_ranges(note, &range, &cases[i].point);
        CHECK(got.sizes == cases[i].sizes && got.places == cases[i].places &&
              got.network == cases[i].network);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    test_widths();
    test_moves();
    test_outside();
    if (argc == 2) test_published(argv[1]);
    return check_done();
}
