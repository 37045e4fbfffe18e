/* Expected rows, copies and drops of a point, against sums over the hypergeometric and binomial laws where all experts are alike, and
 * against a scheme that drops of drawn counts. */
#include "sim/job/job.h"
#include "sim/schemes/expected_routing.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"
#include "traces/generate/made_trace.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>

enum { EXPERTS = 64, TOP_K = 4, RANKS = 16, NODE = 4, LENGTH = 256, SOURCES = 6, LAYERS = 5 };

static spw_trace *trace_of(const char *text, size_t layers, uint64_t seed) {
    spw_generate_settings s = {.experts = EXPERTS,
                               .top_k = TOP_K,
                               .layers = layers,
                               .steps = 1,
                               .ranks = 1,
                               .tokens_per_rank = LENGTH,
                               .seed = seed,
                               .distribution_text = text};
    spw_trace *trace = NULL;
    CHECK_OK(spw_distribution_parse(text, &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    return trace;
}

static spw_point point_of(const spw_scheme *scheme, spw_job *job, size_t sequences) {
    job->cluster.gpus_per_node = NODE;
    job->model.moe_layers = LAYERS;
    spw_point point = {job, scheme, sequences, shape_of(RANKS, EXPERTS, TOP_K, 64, 64, sequences, LENGTH)};
    point.shape.expert_tensor = 1;
    return point;
}

static spw_expected_routing ask(spw_trace *trace, const spw_point *point, size_t layers) {
    spw_expected_routing out;
    const spw_expected_request request = {
        .trace = trace, .layers = layers, .point = point, .sources = SOURCES};
    CHECK_OK(spw_expected_routing_of(&request, &out));
    return out;
}

/* Of `block` experts that are alike: how often a token chooses none. */
static double missed(size_t block) {
    return gsl_ran_hypergeometric_pdf(0, (unsigned)block, (unsigned)(EXPERTS - block), TOP_K);
}

/* An expert has B of the tokens of a unit; the share that is over the capacity, and its variance for two experts that are as good as
 * independent. */
static void binomial(unsigned tokens, unsigned capacity, double *mean, double *variance) {
    double square = 0.0;
    *mean = 0.0;
    for (unsigned b = capacity + 1; b <= tokens; b++) {
        const double p = gsl_ran_binomial_pdf(b, (double)TOP_K / EXPERTS, tokens),
                     over = b - (double)capacity;
        *mean += p * over, square += p * over * over;
    }
    *variance = square - *mean * *mean;
}

static void check_uniform(spw_job *job, const char *text, size_t sequences, size_t unit, double units) {
    const spw_scheme scheme = scheme_of(text);
    const spw_point point = point_of(&scheme, job, sequences);
    spw_trace *trace = trace_of("uniform", 2, 3);
    const spw_expected_routing e = ask(trace, &point, 2);
    const double tokens = (double)(RANKS * sequences * LENGTH);
    double mean, variance;
    CHECK(e.there);
    CHECK(fabs(e.rows_mean - tokens * TOP_K / RANKS) < 1e-9);
    /* hypergeometric: 4 of 64, 4 of a rank */
    CHECK(fabs(e.rows_deviation / sqrt(tokens * 4.0 * (1.0 / 16.0) * (15.0 / 16.0) * (60.0 / 63.0)) - 1.0) <
          1e-9);
    CHECK(e.rows_fullest > e.rows_mean + 1.5 * e.rows_deviation &&
          e.rows_fullest < e.rows_mean + 2.0 * e.rows_deviation);
    CHECK(fabs(e.other_ranks - 15.0 * (1.0 - missed(4))) < 1e-9);
    CHECK(fabs(e.other_nodes - 3.0 * (1.0 - missed(16))) < 1e-9);
    if (unit == 0) {
        CHECK(isnan(e.drop_fraction) && isnan(e.drop_deviation));
    } else {
        const double choices = (double)unit * TOP_K;
        binomial((unsigned)unit, (unsigned)ceil(choices / EXPERTS * 1.25), &mean, &variance);
        CHECK(fabs(e.drop_fraction / (EXPERTS * mean / choices) - 1.0) < 1e-9);
        /* experts that have more leave less to others */
        const double apart = sqrt(EXPERTS * variance / (units * LAYERS)) / choices;
        CHECK(e.drop_deviation < apart && e.drop_deviation > 0.7 * apart);
    }
    spw_trace_close(trace);
}

/* Many draws of what one source drops, layer by layer. */
static void check_drawn(spw_job *job) {
    enum { DRAWS = 2000 };
    const spw_scheme scheme = scheme_of("megatron-alltoall:capacity_factor=1.5");
    const spw_point point = point_of(&scheme, job, 1);
    spw_trace *trace = trace_of("reference", 4, 7);
    const spw_expected_routing e = ask(trace, &point, 4);
    const size_t capacity = scheme.type->routing.expert_capacity(&scheme, &point.shape);
    double sum = 0.0, squares = 0.0;
    for (size_t l = 0; l < 4; l++) {
        spw_trace_record law;
        double own = 0.0, own_squares = 0.0;
        CHECK_OK(spw_trace_read_law(trace, 0, l, (spw_expert_blocks){4, 16}, &law));
        void *scratch = calloc(1, spw_piece_law_bytes(law.law));
        for (size_t d = 0; d < DRAWS; d++) {
            uint32_t expert[EXPERTS], rank[RANKS], node[NODE];
            double dropped = 0.0;
            spw_piece_law_draw(law.law, scratch, &(uint64_t){d * LENGTH}, 1, LENGTH,
                               &(spw_token_counts){expert, rank, node, 1});
            for (size_t x = 0; x < EXPERTS; x++)
                dropped += expert[x] > capacity ? (double)(expert[x] - capacity) : 0.0;
            own += dropped, own_squares += dropped * dropped;
        }
        sum += own / DRAWS / 4.0;
        squares += (own_squares / DRAWS - own * own / DRAWS / DRAWS) / 4.0;
        free(scratch);
    }
    const double choices = LENGTH * TOP_K, drawn = sum / choices,
                 deviation = sqrt(squares / (SOURCES * LAYERS)) / choices;
    CHECK(fabs(e.drop_fraction - drawn) < 5.0 * sqrt(squares / (4.0 * DRAWS)) / choices);
    CHECK(fabs(e.drop_deviation / deviation - 1.0) < 0.05);
    spw_trace_close(trace);
}

/* Experts that nearly every token chooses: no rank has more rows than there are tokens. */
static void check_most(spw_job *job) {
    static const char *const routing[] = {"zipf:exponent=1.5", "zipf:exponent=2", "zipf:exponent=3"};
    const spw_scheme scheme = scheme_of("gmm");
    spw_point point = point_of(&scheme, job, 1);
    point.shape = shape_of(EXPERTS, EXPERTS, TOP_K, 64, 64, 1, LENGTH);
    for (size_t i = 0; i < sizeof routing / sizeof *routing; i++) {
        spw_trace *trace = trace_of(routing[i], 1, 5);
        const double fullest = ask(trace, &point, 1).rows_fullest;
        CHECK(fullest > 0.9 * EXPERTS * LENGTH && fullest <= EXPERTS * LENGTH);
        spw_trace_close(trace);
    }
}

static void check_absent(spw_job *job) {
    const spw_scheme scheme = scheme_of("gmm");
    spw_point point = point_of(&scheme, job, 1);
    spw_trace *trace = trace_of("hash:hash=1", 2, 1);
    CHECK(!ask(trace, &point, 2).there);
    spw_trace_close(trace);
    trace = trace_of("megatron-w0", 2, 1);
    CHECK(!ask(trace, &point, 2).there);
    spw_trace_close(trace);
    /* groups of 16 on nodes of 6 straddle these; on nodes of 32 no token leaves its node */
    trace = trace_of("uniform", 1, 1);
    job->cluster.gpus_per_node = 6;
    CHECK(isnan(ask(trace, &point, 1).other_nodes));
    job->cluster.gpus_per_node = 32;
    CHECK(ask(trace, &point, 1).other_nodes == 0.0);
    spw_trace_close(trace);
}

int main(void) {
    spw_job *job = calloc(1, sizeof *job);
    check_most(job);
    check_uniform(job, "gmm", 2, 0, 0.0);
    check_uniform(job, "megatron-alltoall", 2, 0, 0.0);
    check_uniform(job, "megatron-alltoall:capacity_factor=1.25", 2, 2 * LENGTH, SOURCES);
    check_uniform(job, "dense:capacity_factor=1.25", 2, LENGTH, 2.0 * SOURCES);
    check_drawn(job);
    check_absent(job);
    free(job);
    return check_done();
}
