/* Steps of transformers by pencil, and beside 31 runs on one and two H100 (notebooks_data/measured/transformers_h100.csv).
 * argv: the folder of the table. */
#include "base/memory.h"
#include "sim/machine/stack_defaults.h"
#include "sim/read/csv.h"
#include "sim/time/transformers_time.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/transformers_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 31 };

static bool near(double ours, double pencil) { return fabs(ours / pencil - 1.0) < 1e-9; }
static double part(const spw_timeline *t, const char *name) {
    const spw_time_component *c = spw_timeline_find(t, name);
    return c != NULL ? c->exposed_s : NAN;
}

/* 1000 kernels at 12.1 us; 1.86 GB at 1.86 TB/s; 6.5, 6 and 4.5 TFLOP: 10 ms each; 4 GB of bf16 weights, seven times at 2.8 TB/s;
 * 4 GB gathered and 2 reduced on two GPUs, half of which arrives at 238 GB/s. */
static const spw_transformers_load load = {.work = {.kernels = 1000.0,
                                                    .bytes = 1.86e9,
                                                    .flop = {[SPW_HF_DENSE_PRODUCT] = 6.5e12,
                                                             [SPW_HF_GROUPED_PRODUCT] = 6e12,
                                                             [SPW_HF_ATTENTION_PRODUCT] = 4.5e12}},
                                           .exchange = {.gathered_bytes = 4.76e9, .reduced_bytes = 2.38e9},
                                           .adam_bytes = 4e9};

static void check_pencil(const spw_cluster *h100) {
    static spw_model model = {.hidden = 2048};
    spw_transformers_shape s = {
        .model = &model, .tokens = 4096, .layers = 4, .shards = 2, .wrapped = true, .micro_batches = 1};
    spw_timeline one, eight;
    CHECK_OK(spw_transformers_time_of(&s, &load, h100, &one));
    CHECK(near(part(&one, "kernel_starts"), 12.1e-3) && near(part(&one, "other_kernels"), 1e-3));
    CHECK(near(part(&one, "dense_products"), 10e-3) && near(part(&one, "expert_products"), 10e-3) &&
          near(part(&one, "attention"), 10e-3));
    CHECK(near(part(&one, "optimizer"), 10e-3));
    CHECK(near(part(&one, "weight_gathers"), 10e-3) && near(part(&one, "gradient_scatters"), 5e-3));
    CHECK(near(one.step_s, 68.1e-3) && near(one.tokens_per_s_per_gpu, 4096 / 68.1e-3));
    CHECK(near(one.high_s, one.step_s * exp(0.14)) && near(one.low_s, one.step_s * exp(-0.14)));
    CHECK(one.outside[0] == '\0');
    s.shards = 8; /* 7/8 arrive for 1/2; the interval has 26.25 ms hidden, and twice */
    CHECK_OK(spw_transformers_time_of(&s, &load, h100, &eight));
    CHECK(near(part(&eight, "weight_gathers"), 17.5e-3) && near(eight.step_s, 79.35e-3));
    CHECK(near(eight.low_s, 53.1e-3 * exp(-0.14)) && near(eight.high_s, 105.6e-3 * exp(0.14)));
    CHECK(strstr(eight.outside, "FSDP2 on 8 GPUs by") != NULL);
    s.shards = 16; /* two nodes: 8 NICs of 50 GB/s for a link of 450 */
    CHECK_OK(spw_transformers_time_of(&s, &load, h100, &eight));
    CHECK(near(part(&eight, "weight_gathers"), 20e-3 * 15.0 / 16.0 * 450.0 / 400.0));
    CHECK(strstr(eight.outside, "of several nodes") != NULL);
}

/* Another GPU: memory 4.8 / 3.35 times as fast, products as fast; 48 layers of 2048 tokens in 2 micro-batches. */
static void check_far(const spw_cluster *h100) {
    static spw_model model = {.hidden = 2048};
    const spw_transformers_shape s = {
        .model = &model, .tokens = 2048, .layers = 48, .shards = 1, .micro_batches = 2};
    spw_cluster h200 = *h100;
    spw_timeline t;
    (void)snprintf(h200.name, sizeof h200.name, "h200-8x8");
    h200.hbm_bytes_per_s.value = 4.8e12;
    CHECK_OK(spw_transformers_time_of(&s, &load, &h200, &t));
    CHECK(near(part(&t, "other_kernels"), 1e-3 * 3.35 / 4.8) && near(part(&t, "dense_products"), 10e-3));
    CHECK(part(&t, "weight_gathers") == 0.0 && near(t.tokens_per_s_per_gpu, 4096 / t.step_s));
    CHECK(near(t.high_s, t.step_s * exp(0.14 + 0.25 + 0.15 + 0.1)));
    CHECK(strstr(t.outside, "another GPU") != NULL && strstr(t.outside, "more than 12 layers") != NULL &&
          strstr(t.outside, "4096 to 16384") != NULL && strstr(t.outside, "micro-batches counted") != NULL);
}

/* Sizes at the ends of what was measured and beyond each: 4096 to 16384 tokens, hidden 2048 to 4096, 12 layers. */
static void check_ends(const spw_cluster *h100) {
    static const struct {
        size_t tokens, hidden, layers;
        bool beyond;
    } rows[] = {{4096, 2048, 1, false}, {16384, 4096, 12, false}, {4095, 2048, 1, true},
                {16385, 2048, 1, true}, {4096, 2047, 1, true},    {4096, 4097, 1, true},
                {4096, 2048, 13, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const spw_model model = {.hidden = rows[i].hidden};
        const spw_transformers_shape s = {.model = &model,
                                          .tokens = rows[i].tokens,
                                          .layers = rows[i].layers,
                                          .shards = 1,
                                          .micro_batches = 1};
        spw_timeline t;
        CHECK_OK(spw_transformers_time_of(&s, &load, h100, &t));
        CHECK(near(t.high_s, t.step_s * exp(rows[i].beyond ? 0.14 + 0.15 : 0.14)));
        CHECK((t.outside[0] != '\0') == rows[i].beyond);
    }
}

/* 1.5 TFLOP of scans at 150 TFLOP/s and 0.5 of an indexer's at 50: 10 ms each. Modules whose kernels were not timed have a wider
 * interval, scans one of their own: a third of their time to three times. */
static void check_untimed(const spw_cluster *h100) {
    static spw_model plain = {.hidden = 2048}, mixed = {.hidden = 2048};
    spw_transformers_load more = load;
    spw_timeline t;
    mixed.mixer[1].layers = 2;
    mixed.mixer[1].recurrence.kind = SPW_RECURRENCE_MAMBA2;
    spw_transformers_shape s = {
        .model = &plain, .tokens = 4096, .layers = 4, .shards = 1, .micro_batches = 1};
    CHECK_OK(spw_transformers_time_of(&s, &load, h100, &t));
    const double plain_s = t.step_s;
    CHECK(spw_timeline_find(&t, "scans") == NULL && spw_timeline_find(&t, "indexers") == NULL);
    more.work.flop[SPW_HF_FP32_PRODUCT] = 0.5e12;
    s.blocks = true;
    CHECK_OK(spw_transformers_time_of(&s, &more, h100, &t));
    CHECK(near(part(&t, "indexers"), 10e-3) && near(t.step_s, plain_s + 10e-3));
    CHECK(near(t.high_s, t.step_s * exp(0.14 + 0.3)) && strstr(t.outside, "MiniMax-M3") != NULL);
    s.blocks = false;
    s.compressed = true;
    CHECK_OK(spw_transformers_time_of(&s, &more, h100, &t));
    CHECK(near(t.low_s, t.step_s * exp(-0.14 - 0.3)) && strstr(t.outside, "DeepSeek-V4") != NULL);
    more.work.flop[SPW_HF_FP32_PRODUCT] = 0.0;
    more.work.flop[SPW_HF_SCAN_PRODUCT] = 1.5e12;
    s.compressed = false;
    s.model = &mixed;
    CHECK_OK(spw_transformers_time_of(&s, &more, h100, &t));
    CHECK(near(part(&t, "scans"), 10e-3) && near(t.step_s, plain_s + 10e-3));
    CHECK(near(t.high_s, (t.step_s + 20e-3) * exp(0.14 + 0.3)) &&
          near(t.low_s, (t.step_s - 20e-3 / 3.0) * exp(-0.14 - 0.3)));
    CHECK(strstr(t.outside, "a recurrence") != NULL);
}

typedef struct errors {
    double sum, worst;
    size_t runs, inside;
} errors;

static void check_run(const spw_csv *csv, size_t row, const spw_cluster *h100, errors *e) {
    spw_model *model = NULL;
    spw_transformers_shape shape;
    spw_transformers_load counted;
    spw_timeline t;
    const double measured_s = atof(spw_csv_field(csv, row, "step_ms")) / 1e3;
    CHECK_OK(SPW_ALLOC(1, &model));
    transformers_run_shape(csv, row, model, &shape);
    CHECK_OK(spw_transformers_load_of(&shape, &counted));
    CHECK_OK(spw_transformers_time_of(&shape, &counted, h100, &t));
    const double off = t.step_s / measured_s - 1.0;
    CHECK(fabs(off) < 0.15 && t.outside[0] == '\0');
    e->sum += fabs(off);
    e->worst = fmax(e->worst, fabs(off));
    e->inside += t.low_s <= measured_s && measured_s <= t.high_s;
    e->runs++;
    if (getenv("SHOW") != NULL)
        printf("%s,%g,%g,%g,%g,%g,%g,%g,%g,%g,%g,%d\n", spw_csv_field(csv, row, "run"), t.step_s * 1e3,
               measured_s * 1e3, off, counted.work.kernels, counted.work.bytes, counted.work.flop[0],
               counted.work.flop[1], counted.work.flop[2], counted.adam_bytes,
               counted.exchange.gathered_bytes + counted.exchange.reduced_bytes, (int)shape.shards);
    spw_free(model);
}

int main(int count, char **argument) {
    char path[4096];
    spw_csv *csv = NULL;
    static spw_cluster h100;
    errors e = {.runs = 0};
    CHECK_OK(spw_cluster_read("h100-8x8", NULL, &h100));
    check_pencil(&h100);
    check_far(&h100);
    check_ends(&h100);
    check_untimed(&h100);
    CHECK(count == 2);
    (void)snprintf(path, sizeof path, "%s/transformers_h100.csv", count > 1 ? argument[1] : ".");
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t row = 0; csv != NULL && row < spw_csv_rows(csv); row++)
        if (strncmp(spw_csv_field(csv, row, "seen"), "not ", 4) != 0) check_run(csv, row, &h100, &e);
    CHECK(e.runs == RUNS && e.sum / RUNS < 0.06 && e.worst < 0.14);
    CHECK(e.inside == RUNS);
    spw_csv_close(csv);
    return check_done();
}
