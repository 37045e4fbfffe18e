#include "kernels/bench/bench.h"

#include "base/memory.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"
#include "kernels/record/routing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_shape {
    const char *name;
    size_t experts, rows, in, out;
    spw_routing routing;
} bench_shape;

static const bench_shape shapes[] = {
    {"deepseek-v3 gate and up", 32, 65536, 7168, 4096, SPW_ROUTING_UNIFORM},
    {"deepseek-v3 gate and up", 32, 65536, 7168, 4096, SPW_ROUTING_ZIPF},
    {"deepseek-v3 down", 32, 65536, 2048, 7168, SPW_ROUTING_UNIFORM},
    {"deepseek-v3 down", 32, 65536, 2048, 7168, SPW_ROUTING_ZIPF},
    {"mixtral gate and up", 8, 32768, 4096, 28672, SPW_ROUTING_UNIFORM},
    {"olmoe gate and up", 64, 65536, 2048, 2048, SPW_ROUTING_UNIFORM},
    {"gpt-oss gate and up", 32, 32768, 2880, 5760, SPW_ROUTING_UNIFORM},
    {"fine-grained 7B gate and up", 128, 65536, 2048, 1536, SPW_ROUTING_ZIPF},
};

typedef struct bench_data {
    spw_gemm_shape shape;
    const spw_gemm_variant *variant;
    spw_gemm_operation operation;
    spw_device_array left, right, result, offset;
    long left_count, right_count;
} data;

static spw_status prepare(void *pointer, int run) {
    const data *d = pointer;
    spw_status status = SPW_OK;
    const unsigned long long seed = 2 * (unsigned long long)run;
    SPW_TRY(spw_device_check(
        spw_launch_fill_bf16(d->left.data, d->left_count, SPW_NUMBERS_BELL, seed + 1, NULL), "fill"));
    SPW_TRY(spw_device_check(
        spw_launch_fill_bf16(d->right.data, d->right_count, SPW_NUMBERS_BELL, seed + 2, NULL), "fill"));
cleanup:
    return status;
}

static spw_status work(void *pointer, int run) {
    const data *d = pointer;
    (void)run;
    return spw_gpu_grouped_gemm(d->variant, d->operation, d->shape, d->left.data, d->right.data,
                                d->offset.data, d->result.data, NULL);
}

static spw_status work_swiglu(void *pointer, int run) {
    const data *d = pointer;
    (void)run;
    return spw_gpu_grouped_gemm_swiglu(d->shape, d->left.data, d->right.data, d->offset.data, d->result.data,
                                       NULL);
}

/* work: the operation itself, or the forward pass with SwiGLU. */
static spw_status bench_operation(spw_bench_step *work_step, const bench_shape *b,
                                  const spw_gemm_variant *variant, spw_gemm_operation operation,
                                  bool transposed, const int *offset) {
    static const char *const names[] = {"forward", "input gradient", "weight gradient"};
    spw_status status = SPW_OK;
    data d = {.shape = {b->experts, b->rows, b->in, b->out, transposed},
              .variant = variant,
              .operation = operation};
    const size_t x = b->rows * b->in, dy = b->rows * b->out, w = b->experts * b->in * b->out;
    d.left_count = (long)(operation == SPW_GEMM_INPUT_GRADIENT ? dy : x);
    d.right_count = (long)(operation == SPW_GEMM_WEIGHT_GRADIENT ? dy : w);
    const size_t result = operation == SPW_GEMM_FORWARD ? dy : operation == SPW_GEMM_INPUT_GRADIENT ? x : w;
    double ms = 0;
    SPW_TRY(spw_device_array_create((size_t)d.left_count * 2, &d.left));
    SPW_TRY(spw_device_array_create((size_t)d.right_count * 2, &d.right));
    SPW_TRY(spw_device_array_create(result * 2, &d.result));
    SPW_TRY(spw_device_array_create((b->experts + 1) * sizeof *offset, &d.offset));
    SPW_TRY(spw_device_upload(&d.offset, offset));
    SPW_TRY(spw_bench_time(prepare, work_step, &d, &ms));
    printf("%s,%s %s,%s,%s,%zu,%zu,%zu,%zu,%.4f,%.1f,TFLOP/s\n", variant->name,
           work_step == work ? names[operation] : "forward and swiglu",
           transposed ? "[out][in]" : "[in][out]", b->name, spw_routing_names[b->routing], b->experts,
           b->rows, b->in, b->out, ms, 2e-9 * (double)x * (double)b->out / ms);
    fflush(stdout);
cleanup:
    spw_device_array_destroy(&d.left), spw_device_array_destroy(&d.right);
    spw_device_array_destroy(&d.result), spw_device_array_destroy(&d.offset);
    return status;
}

/* The fast variant over rows per expert, for the figures of a cluster file: 32 experts, equal rows, weights [out][in]. */
static spw_status bench_rows_per_expert(const spw_gemm_variant *fast) {
    static const size_t widths[][2] = {{7168, 4096}, {2048, 7168}, {2048, 2048}, {4096, 28672}};
    enum { EXPERTS = 32 };
    spw_status status = SPW_OK;
    int offset[EXPERTS + 1];
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (size_t rows = 64; rows <= 4096; rows *= 2) {
            const bench_shape b = {"rows per expert", EXPERTS,      EXPERTS * rows,
                                   widths[i][0],      widths[i][1], SPW_ROUTING_UNIFORM};
            for (size_t e = 0; e <= EXPERTS; e++) offset[e] = (int)(e * rows);
            for (int operation = 0; operation < 3; operation++)
                SPW_TRY(bench_operation(work, &b, fast, (spw_gemm_operation)operation, true, offset));
        }
    }
cleanup:
    return status;
}

spw_status spw_bench_gemm(void) {
    spw_status status = SPW_OK;
    size_t *offset = NULL;
    int *offset32 = NULL;
    const spw_gemm_variant *fast = spw_gemm_variants;
    while (fast[1].name != NULL) fast++;
    SPW_TRY(bench_rows_per_expert(fast));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const bench_shape *b = &shapes[i];
        SPW_TRY(SPW_ALLOC(b->experts + 1, &offset));
        SPW_TRY(SPW_ALLOC(b->experts + 1, &offset32));
        spw_routing_offsets(b->routing, b->experts, b->rows, 5, offset, offset32);
        for (int transposed = 0; transposed < 2; transposed++)
            for (int operation = 0; operation < 3; operation++)
                SPW_TRY(bench_operation(work, b, fast, (spw_gemm_operation)operation, transposed, offset32));
        for (int transposed = 0; transposed < 2 && strstr(b->name, "gate and up") != NULL; transposed++)
            SPW_TRY(bench_operation(work_swiglu, b, fast, SPW_GEMM_FORWARD, transposed, offset32));
        /* The ladder, once: a fraction of the rows, for the plain rungs take their time. */
        for (const spw_gemm_variant *v = spw_gemm_variants; i == 3 && v->name != NULL; v++) {
            const bench_shape cut = {
                "deepseek-v3 down, 1/16 rows", b->experts, b->rows / 16, b->in, b->out, b->routing};
            spw_routing_offsets(cut.routing, cut.experts, cut.rows, 5, offset, offset32);
            SPW_TRY(bench_operation(work, &cut, v, SPW_GEMM_FORWARD, true, offset32));
        }
        spw_free(offset), spw_free(offset32);
        offset = NULL, offset32 = NULL;
    }
cleanup:
    spw_free(offset), spw_free(offset32);
    return status;
}
