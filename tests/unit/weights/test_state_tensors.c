/* Tensors of the optimizer's state under FSDP2 with pencil and paper, in the order of torchtitan's parameters: the embedding, layer by
 * layer attention, experts and router, the head. Qwen3-30B-A3B, 16 of 128 experts a GPU over 8, all else over 64. DeepSeek-V3 has three
 * layers without experts. */
#include "sim/weights/state_tensors.h"

#include "sim/job/job.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <string.h>

static void read_state(const char *model, spw_state_tensors *out) {
    static spw_job job, room;
    const spw_scheme scheme = scheme_of("torchtitan");
    char text[512];
    (void)snprintf(
        text, sizeof text,
        "model: %s\ncluster: h100-8x8\ngpus: 64\noptimizer: sharded\nparallel: {expert: 8, fsdp: 8}\n"
        "batch: {sequence_length: 4096, sequences_per_gpu: 1}\n",
        model);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
    const spw_job *as_run = spw_fsdp2_job(&job, &scheme, &room);
    const spw_pipeline one = spw_pipeline_of(as_run);
    const spw_stage stage = spw_pipeline_stage(&one, &as_run->model, 0);
    CHECK_OK(spw_state_tensors_create(as_run, &stage, out));
}

static void test_order(void) {
    enum { LAYERS = 48, EACH = 6 };
    const double table = 151936.0 * 2048.0 / 64.0, matrix = 16.0 * 768.0 * 2048.0 / 8.0,
                 layer[EACH] = {5120.0 * 2048.0 / 64.0, /* queries, keys and values are one */
                                4096.0 * 2048.0 / 64.0, matrix, matrix, matrix, 128.0 * 2048.0 / 64.0};
    spw_state_tensors t;
    read_state("qwen3-30b-a3b", &t);
    CHECK(t.count == 2 + LAYERS * EACH);
    CHECK(t.elements[0] == table && t.elements[t.count - 1] == table);
    for (size_t i = 0; i + 2 < t.count; i++) CHECK(t.elements[1 + i] == layer[i % EACH]);
    spw_state_tensors_destroy(&t);
}

/* Dense layers come first: the first of the experts' matrices stands behind three dense FFNs, one router a layer behind them. */
static void test_dense_first(void) {
    const double matrix = 32.0 * 2048.0 * 7168.0 / 8.0, dense = 18432.0 * 7168.0 / 64.0,
                 router = 256.0 * 7168.0 / 64.0;
    size_t before = 0, matrices = 0, routers = 0, late = 0;
    spw_state_tensors t;
    read_state("deepseek-v3", &t);
    for (size_t i = 0; i < t.count; i++) {
        if (t.elements[i] == matrix) matrices++;
        if (t.elements[i] == router) {
            routers++;
            CHECK(matrices == 3 * routers);
        }
        if (t.elements[i] != dense) continue;
        if (matrices == 0)
            before++;
        else
            late++;
    }
    CHECK(before == 3 * 3 && late == 0);
    CHECK(matrices == 3 * 58 && routers == 58);
    spw_state_tensors_destroy(&t);
}

int main(void) {
    test_order();
    test_dense_first();
    return check_done();
}
