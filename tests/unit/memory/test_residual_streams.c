/* What residual streams keep, and what the recompute module mhc frees and makes again, beside what autograd held of stacks of
 * Megatron-Core's own layers (notebooks_data/measured/megatron_cpu_streams.csv). argv: the folder of the tables. */
#include "sim/memory/kept/residual_streams.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/read/csv.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of one stack at one moment: tensors as wide as a token's hidden numbers, and all others. */
typedef struct held {
    double wide, small;
} held;

static bool same(const spw_csv *csv, size_t row, size_t other) {
    static const char *const columns[] = {"sequences", "length", "hidden", "streams", "layers",
                                          "fused",     "mhc",    "group",  "when"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(spw_csv_field(csv, row, columns[i]), spw_csv_field(csv, other, columns[i])) != 0)
            return false;
    return true;
}

static held sum(const spw_csv *csv, size_t row, size_t *end) {
    const double least = 2.0 * (double)(number(csv, row, "sequences") * number(csv, row, "length") *
                                        number(csv, row, "hidden"));
    held out = {0.0, 0.0};
    for (*end = row; *end < spw_csv_rows(csv) && same(csv, *end, row); (*end)++) {
        const double one = (double)number(csv, *end, "bytes");
        *(one >= least ? &out.wide : &out.small) += one * (double)number(csv, *end, "tensors");
    }
    return out;
}

static void near(const char *what, size_t row, double got, double want) {
    CHECK(fabs(got - want) < 1.0);
    if (fabs(got - want) >= 1.0) fprintf(stderr, "row %zu, %s: %.0f for %.0f\n", row, what, got, want);
}

/* Norms of the table are modules of their own, as they are where attention is unfused. */
static void set(const spw_csv *csv, size_t row, spw_job *job) {
    const size_t layers = number(csv, row, "layers");
    memset(job, 0, sizeof *job);
    job->model.streams = number(csv, row, "streams");
    job->model.hidden = number(csv, row, "hidden");
    job->model.layers = job->model.moe_layers = layers;
    memset(job->model.is_moe, 1, layers);
    job->pipeline = job->expert = job->fsdp = job->tensor = 1;
    job->precision.activations = 2;
    job->attention = SPW_ATTENTION_UNFUSED;
    job->megatron.streams = number(csv, row, "fused") > 0 ? SPW_FUSION_ON : SPW_FUSION_OFF;
    job->megatron.streams_group = number(csv, row, "group");
    job->remat = number(csv, row, "mhc") > 0 ? (spw_remat)spw_remat_join(SPW_MODULE_MHC) : SPW_REMAT_NONE;
}

/* A stack keeps the inputs of its layers, what the streams keep, and of each layer both norms' outputs and one norm's input. */
static void check_stack(const spw_csv *csv, size_t row, size_t *end, spw_job *job) {
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    set(csv, row, job);
    const double layers = (double)job->model.layers, h = (double)job->model.hidden,
                 tokens = (double)(number(csv, row, "sequences") * number(csv, row, "length")),
                 row_bytes = tokens * h * 2.0, n = (double)job->model.streams;
    const spw_layer_shape shape = {.tokens = (size_t)tokens, .hidden = job->model.hidden, .element_bytes = 2};
    const spw_stage stage = {.stages = 1, .layers = job->model.layers, .moe_layers = job->model.layers};
    const spw_streams_again again = spw_streams_again_of(job, &stage, &shape);
    const double mixing = tokens * spw_streams_mixing_bytes(&job->model, 2),
                 each = tokens * spw_streams_kept_bytes(job, &scheme) - mixing,
                 whole = n * row_bytes + each + 3.0 * row_bytes;
    const held forward = sum(csv, row, end);
    size_t behind = *end;
    const held backward = sum(csv, behind, end);
    const size_t group = job->megatron.streams_group,
                 last = group > 0 ? (job->model.layers - 1) % group + 1 : 0;
    near("kept", row, layers * (whole - again.layer[1] - again.input), forward.wide);
    if (group == 0 || last == group)
        near("made again", row, again.group + again.layer[1], backward.wide - forward.wide);
    CHECK(again.share == 1.0 &&
          (group == 0 || again.layers == (group < job->model.layers ? group : job->model.layers)));
    /* of norms 1 / rms as well, which the module makes again */
    if (job->megatron.streams == SPW_FUSION_ON)
        near("mixing", row, layers * (mixing + (job->remat == SPW_REMAT_NONE ? 8.0 * tokens : 0.0)),
             forward.small);
}

/* Layers of multi-token prediction have no group, a chunk's groups are its own, and what the module layernorm frees is not freed twice. */
static void check_more(const spw_csv *csv, spw_job *job) {
    const spw_layer_shape shape = {.tokens = 64, .hidden = 128, .element_bytes = 2};
    const double row = 64.0 * 128.0 * 2.0;
    size_t at = 0;
    while (number(csv, at, "mhc") == 0) at++;
    set(csv, at, job);
    job->megatron.streams_group = 0;
    job->model.layers = job->model.moe_layers = 8;
    memset(job->model.is_moe, 1, 8);
    job->pipeline = 2;
    spw_stage stage = {.stages = 2, .layers = 4, .moe_layers = 4};
    spw_streams_again again = spw_streams_again_of(job, &stage, &shape);
    CHECK(again.layers == 4 && again.input == 0.75 * 2.0 * row &&
          again.group == 3.0 * (2.0 + 2.0 + 4.0) * row);
    job->remat = (spw_remat)spw_remat_join(SPW_MODULE_MHC | SPW_MODULE_LAYERNORM);
    again = spw_streams_again_of(job, &stage, &shape);
    CHECK(again.layer[1] == 4.0 * row);
    job->attention = SPW_ATTENTION_FLASH;
    job->remat = (spw_remat)spw_remat_join(SPW_MODULE_MHC);
    again = spw_streams_again_of(job, &stage, &shape);
    CHECK(again.layer[1] == 5.0 * row &&
          again.layer[0] == 4.0 * row); /* norms within the products that read them */
    job->model.streams = 1;
    again = spw_streams_again_of(job, &stage, &shape);
    CHECK(again.layer[1] == 0.0 && again.group == 0.0);
    CHECK(spw_streams_mixing_bytes(&job->model, 2) == 0.0 && spw_streams_moved_again(&job->model) == 0.0);
}

/* Nobody says it: the fused kernels are Blackwell's. */
static void check_fused(const spw_csv *csv, spw_job *job) {
    const spw_scheme scheme = scheme_of("megatron-alltoall"), primus = scheme_of("primus-syncfree:level=1");
    double bytes[2];
    set(csv, 0, job);
    job->megatron.streams = SPW_FUSION_AUTO;
    for (size_t i = 0; i < 2; i++) {
        job->cluster.gpu_generation = i == 0 ? SPW_GPU_HOPPER : SPW_GPU_BLACKWELL;
        bytes[i] = spw_streams_kept_bytes(job, &scheme);
    }
    CHECK(bytes[0] - bytes[1] == 8.0 * (double)(job->model.streams * job->model.hidden));
    CHECK(spw_streams_kept_bytes(job, &primus) == bytes[0]); /* a class of its own, on any GPU */
}

int main(int count, char **argument) {
    char path[4096];
    spw_csv *csv = NULL;
    spw_job *job = NULL;
    size_t stacks = 0;
    (void)snprintf(path, sizeof path, "%s/megatron_cpu_streams.csv", count > 1 ? argument[1] : ".");
    CHECK_OK(spw_csv_read(path, &csv));
    CHECK(SPW_ALLOC(1, &job) == SPW_OK);
    if (csv == NULL || job == NULL) return check_done();
    for (size_t row = 0, end; row < spw_csv_rows(csv); row = end, stacks++) check_stack(csv, row, &end, job);
    CHECK(stacks == 29);
    check_more(csv, job);
    check_fused(csv, job);
    spw_free(job);
    spw_csv_close(csv);
    return check_done();
}
