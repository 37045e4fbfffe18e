/* A tape of operations and DDP's buckets by pencil, and whole steps of transformers beside the allocators of H100 and, under DDP, H200
 * (notebooks_data/measured/transformers_h100.csv, transformers_ddp_h200.csv). argv: the folder of the tables. */
#include "base/memory.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/tensors/transformers_buckets.h"
#include "sim/memory/tensors/transformers_step.h"
#include "sim/read/csv.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/transformers_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 33, DDP_RUNS = 8, STEPS = 4 };

/* --- The tape --- */

static const double NONE = 0.0;
static spw_value square(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{x, 0}},
                                       .back = {{SPW_GRADIENT_TO, 0, bytes, NONE, NONE}}});
}

/* y = (w x)^2: w x is kept for the square, x for w; the loss gives y's gradient. */
static void build(spw_tape *t, spw_value *loss, spw_value *input, bool *ran, bool again) {
    const spw_value w = {.leaf = 1, .grad = true}, x = *input;
    const spw_value y = spw_tape_apply(t, &(spw_op){.bytes = 100,
                                                    .input = {x, w},
                                                    .keep = {{x, 1}},
                                                    .back = {{SPW_GRADIENT_TO, 1, 7, NONE, NONE}}});
    *loss = square(t, y, 50);
    spw_tape_drop(t, y);
    *ran = again;
}

static void text_of(const spw_event_list *list, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < list->events && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%c%d", i > 0 ? " " : "",
                                 list->event[i].born ? '+' : '-', (int)list->event[i].bytes);
}

/* Forward: x 10, w x 100, its square 50. Backward: the loss' gradient 4, the square's 50, 4 and w x go; w's 7, 50 goes, x goes. */
static void check_pencil(void) {
    spw_tape *t = NULL;
    spw_event_list list = {.events = 0};
    spw_value loss, x;
    bool ran;
    char text[256];
    CHECK(spw_tape_create(0, &t) == SPW_OK);
    (void)spw_tape_parameter(t, true);
    spw_tape_write(t, &list);
    x = spw_tape_tensor(t, 10);
    build(t, &loss, &x, &ran, false);
    spw_tape_drop(t, x);
    spw_tape_drop(t, loss);
    spw_tape_backward(t, loss);
    text_of(&list, text, sizeof text);
    CHECK(strcmp(text, "+10 +100 +50 -50 +4 +50 -4 -100 +7 -50 -10") == 0);
    CHECK(spw_tape_status(t) == SPW_OK);
    spw_event_list_clear(&list);
    spw_tape_forget(t, 1, 2);
    text_of(&list, text, sizeof text);
    CHECK(strcmp(text, "-7") == 0);
    spw_event_list_destroy(&list);
    spw_tape_destroy(t);
}

typedef struct region_of {
    spw_value x, loss;
    int runs;
} region_of;

static void run_region(spw_tape *t, void *of, size_t index) {
    region_of *r = of;
    bool ran;
    (void)index;
    spw_value loss;
    build(t, &loss, &r->x, &ran, true);
    if (r->runs++ == 0) r->loss = loss;
}

/* Nothing is kept; run again, it stops when w x is there, for the square is made of it alone. What was made again goes with the
 * operation, before the incoming gradient. */
static void check_checkpoint(void) {
    spw_tape *t = NULL;
    spw_event_list list = {.events = 0};
    region_of r = {.runs = 0};
    char text[256];
    CHECK(spw_tape_create(0, &t) == SPW_OK);
    (void)spw_tape_parameter(t, true);
    spw_tape_write(t, &list);
    r.x = spw_tape_tensor(t, 10);
    spw_tape_checkpoint(t, run_region, &r, 0);
    spw_tape_drop(t, r.loss);
    spw_tape_backward(t, r.loss);
    text_of(&list, text, sizeof text);
    CHECK(strcmp(text, "+10 +100 +50 -100 -50 +4 +100 +50 -100 -4 +7 -50") == 0);
    CHECK(r.runs == 2);
    spw_event_list_destroy(&list);
    spw_tape_destroy(t);
}

/* The second gradient of x is added to the first in place, unless that is a view of something: then there is a sum. */
static void check_sum(spw_gradient_role role, const char *want) {
    spw_tape *t = NULL;
    spw_event_list list = {.events = 0};
    char text[256];
    CHECK(spw_tape_create(0, &t) == SPW_OK);
    const spw_value w = spw_tape_parameter(t, true);
    const spw_value x =
        spw_tape_apply(t, &(spw_op){.bytes = 8, .input = {w}, .back = {{SPW_GRADIENT_TO, 0, 5, NONE, NONE}}});
    spw_value part[2];
    for (int i = 0; i < 2; i++)
        part[i] = spw_tape_apply(t, &(spw_op){.bytes = 9, .input = {x}, .back = {{role, 0, 8, NONE, NONE}}});
    const spw_value sum = spw_tape_apply(
        t, &(spw_op){.bytes = 9,
                     .input = {part[0], part[1]},
                     .back = {{SPW_GRADIENT_PASS, 0, 0, NONE, NONE}, {SPW_GRADIENT_PASS, 1, 0, NONE, NONE}}});
    spw_tape_write(t, &list);
    spw_tape_backward(t, sum);
    text_of(&list, text, sizeof text);
    CHECK(strcmp(text, want) == 0);
    /* written: 8, 9, 9 and 9, then 8, 8 and 5; the sum reads two of 8 and writes one */
    const spw_tape_work work = spw_tape_work_of(t);
    CHECK(work.bytes == 8 + 9 + 9 + 9 + 8 + 8 + 5 + 3 * 8 && work.kernels == 8);
    spw_event_list_destroy(&list);
    spw_tape_destroy(t);
}

/* Liger's loss of 8 tokens, H 16, V 32 in bf16: two pieces of 4, since two logits are as wide as a hidden state. The gradient of
 * the hidden states 8 x 16 x 2, losses 8 x 4, a mask of 8; a piece's logits 4 x 32 x 2, which the next replaces when it is there, the
 * gradient of its hidden states 4 x 16 x 2, and that of the head's weights 32 x 16 in bf16, then in fp32. The loss itself is 4. A frozen
 * head has none of these. */
static void check_fused_loss(bool frozen, const char *want) {
    spw_model *m = NULL;
    spw_transformers_step *step = NULL;
    spw_event_list list = {.events = 0};
    char text[512] = "";
    size_t used = 0;
    CHECK(SPW_ALLOC(1, &m) == SPW_OK);
    *m = (spw_model){.layers = 1,
                     .hidden = 16,
                     .heads = 2,
                     .kv_heads = 2,
                     .head_dim = 8,
                     .experts = 4,
                     .top_k = 2,
                     .expert_ffn = 8,
                     .vocab = 32};
    memset(m->is_moe, 1, m->layers);
    const spw_transformers_shape shape = {.model = m,
                                          .tokens = 8,
                                          .sequences = 1,
                                          .layers = 1,
                                          .element_bytes = 2,
                                          .weight_bytes = 2,
                                          .moment_bytes = 2,
                                          .reduced_bytes = 2,
                                          .shards = 1,
                                          .micro_batches = 1,
                                          .frozen = frozen,
                                          .adapts_attention = frozen,
                                          .lora_rank = frozen ? 2 : 0,
                                          .fused_loss = true};
    CHECK(spw_transformers_step_create(&shape, &step) == SPW_OK);
    CHECK(spw_transformers_step_begin(step, &list) == SPW_OK);
    CHECK(spw_transformers_step_run(step, &list) == SPW_OK);
    for (size_t i = 0; i < list.events && used + 16 < sizeof text; i++)
        if (list.event[i].kind == SPW_HF_LOGITS && !list.event[i].backward)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%c%d", used > 0 ? " " : "",
                                     list.event[i].born ? '+' : '-', (int)list.event[i].bytes);
    CHECK(strcmp(text, want) == 0);
    if (strcmp(text, want) != 0) fprintf(stderr, "%s\n", text);
    spw_transformers_step_destroy(step);
    spw_event_list_destroy(&list);
    spw_free(m);
}

/* --- Whole steps --- */

typedef struct outcome {
    uint64_t begin, requested, reserved, last; /* last: requested in the last step */
} outcome;

static spw_status run_steps(const spw_transformers_shape *shape, spw_transformers_step *step,
                            spw_allocator *allocator, outcome *out) {
    spw_event_list list = {.events = 0};
    spw_allocation *live = NULL;
    spw_list_replay replay;
    size_t slots = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_transformers_step_slots(shape, &slots));
    SPW_TRY(SPW_ALLOC(slots, &live));
    for (size_t i = 0; i < slots; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    SPW_TRY(spw_transformers_step_begin(step, &list));
    SPW_TRY(spw_event_list_replay(&list, allocator, live, &replay));
    out->begin = replay.after.requested_bytes;
    for (int i = 0; i < STEPS; i++) {
        SPW_TRY(spw_transformers_step_run(step, &list));
        SPW_TRY(spw_event_list_replay(&list, allocator, live, &replay));
        if (replay.after.requested_peak_bytes > out->requested)
            out->requested = replay.after.requested_peak_bytes;
        out->last = replay.after.requested_peak_bytes;
        if (i > 0) continue;
        SPW_TRY(spw_transformers_step_optimizer(step, &list));
        SPW_TRY(spw_event_list_replay(&list, allocator, live, &replay));
        if (replay.after.requested_peak_bytes > out->requested)
            out->requested = replay.after.requested_peak_bytes;
    }
    out->reserved = spw_allocator_get_stats(allocator).reserved_bytes;

cleanup:
    spw_event_list_destroy(&list);
    spw_free(live);
    return status;
}

static double off(uint64_t ours, uint64_t theirs) { return fabs((double)ours / (double)theirs - 1.0); }

/* Limits: what tensors ask for to 0.03 %, what is reserved to 2 % (aims of the work: 1 % and 4 %). Of a run whose steps are shorter than
 * what NCCL waits before it looks after what it holds, what later steps ask for. */
static void check_run(const spw_csv *csv, size_t row) {
    spw_model *model = NULL;
    spw_transformers_shape shape;
    spw_transformers_step *step = NULL;
    spw_allocator *allocator = NULL;
    outcome out = {.begin = 0};
    const spw_allocator_settings settings = {.addresses_fall = true,
                                             .expandable_segments = number(csv, row, "expandable") > 0};
    const uint64_t requested = number(csv, row, "requested_bytes"),
                   reserved = number(csv, row, "reserved_bytes"), begin = number(csv, row, "begin_bytes");
    CHECK(SPW_ALLOC(1, &model) == SPW_OK);
    transformers_run_shape(csv, row, model, &shape);
    CHECK(spw_transformers_step_create(&shape, &step) == SPW_OK);
    CHECK(spw_allocator_create(&settings, &allocator) == SPW_OK);
    CHECK(run_steps(&shape, step, allocator, &out) == SPW_OK);
    CHECK(off(out.begin, begin) < 0.0001);
    const bool brief = transformers_run_is(csv, row, "run", "ddp_mixtral");
    CHECK(brief || off(out.requested, requested) < 0.0003);
    CHECK(brief || off(out.reserved, reserved) < 0.02);
    if (shape.summed > 1) CHECK(off(out.last, number(csv, row, "later_requested_bytes")) < 0.0001);
    if (off(out.reserved, reserved) >= 0.02 || off(out.requested, requested) >= 0.0003)
        fprintf(stderr, "%s: requested %.0f for %.0f, reserved %.0f for %.0f\n",
                spw_csv_field(csv, row, "run"), (double)out.requested, (double)requested,
                (double)out.reserved, (double)reserved);
    spw_allocator_destroy(allocator);
    spw_transformers_step_destroy(step);
    spw_free(model);
}

static void check_runs(const char *folder, const char *table, size_t runs) {
    char path[4096];
    spw_csv *csv = NULL;
    size_t found = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, table);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t row = 0; csv != NULL && row < spw_csv_rows(csv); row++) {
        if (transformers_run_is(csv, row, "seen", "not listed") &&
            !transformers_run_is(csv, row, "family", "deepseek_v3"))
            continue;
        check_run(csv, row);
        found++;
    }
    CHECK(found == runs);
    spw_csv_close(csv);
}

/* Limits of 10 for the first bucket and 20 for the others; those of the other format are apart. */
static void check_buckets(void) {
    const spw_hf_bucketed tensor[] = {{4, 1, false},  {5, 1, false}, {9, 1, true},   {6, 1, false},
                                      {19, 1, false}, {50, 1, true}, {70, 1, false}, {20, 1, false},
                                      {3, 1, false},  {1, 1, true}};
    const uint64_t want[][3] = {{15, 3, 0}, {59, 2, 1}, {89, 2, 0}, {20, 1, 0}, {3, 1, 0}, {1, 1, 1}};
    enum { TENSORS = sizeof tensor / sizeof *tensor, BUCKETS = sizeof want / sizeof *want };
    spw_hf_bucketed got[TENSORS + 1];
    CHECK(spw_hf_bucket_sizes(tensor, TENSORS, 10, 20, got) == BUCKETS);
    for (size_t i = 0; i < BUCKETS; i++)
        CHECK(got[i].bytes == want[i][0] && got[i].tensors == want[i][1] && got[i].wide == want[i][2]);
    CHECK(spw_hf_bucket_sizes(tensor, TENSORS, UINT64_MAX, UINT64_MAX, got) == 2 && got[0].bytes == 127);
    CHECK(spw_hf_bucket_sizes(tensor, 0, 10, 20, got) == 0);
}

int main(int count, char **argument) {
    check_pencil();
    check_checkpoint();
    check_sum(SPW_GRADIENT_TO, "+4 +8 +8 -4 -8 +5 -8");
    check_sum(SPW_GRADIENT_VIEW, "+4 +8 +8 -4 +8 -8 -8 +5 -8");
    check_fused_loss(false, "+256 +32 +8 +256 +128 -128 +1024 +2048 -1024 -2048 +256 -256 +128 -128 +1024 "
                            "+2048 -1024 -2048 -256 +4 "
                            "-32 -8 -4");
    check_fused_loss(true, "+256 +32 +8 +256 +128 -128 +256 -256 +128 -128 -256 +4 -32 -8 -4");
    CHECK(spw_hf_loss_rows(16384, 32000, 4096) == 2048); /* the source's own example */
    CHECK(spw_hf_loss_rows(8192, 151936, 2048) == 128 && spw_hf_loss_rows(8, 32, 64) == 8);
    CHECK(count == 2);
    check_buckets();
    if (count == 2) check_runs(argument[1], "transformers_h100.csv", RUNS);
    if (count == 2) check_runs(argument[1], "transformers_ddp_h200.csv", DDP_RUNS);
    return check_done();
}
