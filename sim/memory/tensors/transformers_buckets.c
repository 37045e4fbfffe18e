#include "sim/memory/tensors/transformers_buckets.h"

#include "base/memory.h"

/* PyTorch's own: of the first bucket of gradients, of further ones, of weights that are broadcast, of which two are under way. */
static const uint64_t FIRST = 1ull << 20, LIMIT = 25ull << 20, BROADCAST = 250ull << 20;
enum { FORMATS = 2, FP32 = 4, UNDER_WAY = 2 };

size_t spw_hf_bucket_sizes(const spw_hf_bucketed *tensor, size_t count, uint64_t first, uint64_t limit,
                           spw_hf_bucketed *out) {
    spw_hf_bucketed open[FORMATS] = {{.wide = false}, {.wide = true}};
    uint64_t limits[FORMATS] = {first, first};
    size_t buckets = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t format = tensor[i].wide;
        spw_hf_bucketed *o = &open[format];
        o->bytes += tensor[i].bytes, o->tensors++;
        if (o->bytes < limits[format]) continue;
        out[buckets++] = *o;
        o->bytes = 0, o->tensors = 0, limits[format] = limit;
    }
    for (size_t format = 0; format < FORMATS; format++)
        if (open[format].tensors > 0) out[buckets++] = open[format];
    return buckets;
}

spw_status spw_hf_buckets_create(const spw_transformers_shape *shape, const spw_hf_model *model,
                                 spw_tape *tape, spw_hf_buckets *out) {
    spw_status status = SPW_OK;
    *out = (spw_hf_buckets){.shape = shape, .model = model, .tape = tape};
    SPW_TRY(SPW_ALLOC(model->weights + 1, &out->tensor));
    SPW_TRY(SPW_ALLOC(model->weights + 1, &out->size));
    SPW_TRY(SPW_ALLOC(model->weights + 1 + FORMATS, &out->bucket));
cleanup:
    return status;
}

void spw_hf_buckets_destroy(spw_hf_buckets *b) {
    spw_free(b->tensor), spw_free(b->size), spw_free(b->bucket);
}

bool spw_hf_searches_unused(const spw_transformers_shape *s) {
    return s->summed > 1 && (s->frozen || !s->checkpoint);
}

/* Cuts what is trained, or all, in order of the weights or backwards. */
static size_t cut(spw_hf_buckets *b, bool all, bool backwards, uint64_t first, uint64_t limit) {
    const size_t weights = b->model->weights;
    size_t count = 0;
    for (size_t k = 0; k < weights; k++) {
        const spw_hf_weight *w = &b->model->weight[backwards ? weights - 1 - k : k];
        if (!all && !w->trained) continue;
        const size_t each = w->wide      ? FP32
                            : w->trained ? spw_hf_trained_bytes(b->shape)
                                         : b->shape->weight_bytes;
        b->tensor[count++] = (spw_hf_bucketed){each * w->rows * w->columns, 1, each == FP32};
    }
    return spw_hf_bucket_sizes(b->tensor, count, first, limit, b->size);
}

/* A bucket of one weight is that weight, and no copy. */
static void broadcast(spw_hf_buckets *b) {
    const uint16_t kind = spw_tape_kind(b->tape, SPW_HF_WORKSPACE);
    const size_t count = cut(b, true, false, BROADCAST, BROADCAST);
    spw_value under_way[UNDER_WAY] = {{.storage = 0}};
    for (size_t i = 0; i < count + UNDER_WAY; i++) {
        spw_value *at = &under_way[i % UNDER_WAY];
        spw_tape_drop(b->tape, *at);
        *at = i < count && b->size[i].tensors > 1 ? spw_tape_tensor(b->tape, b->size[i].bytes)
                                                  : (spw_value){.storage = 0};
    }
    (void)spw_tape_kind(b->tape, kind);
}

static void make(spw_hf_buckets *b, bool backwards, uint64_t first, uint64_t limit) {
    const uint16_t kind = spw_tape_kind(b->tape, SPW_HF_BUCKETS);
    const spw_value before[FORMATS] = {b->bucket[0], b->bucket[b->count > 1]};
    b->held = b->count;
    b->count = cut(b, false, backwards, first, limit);
    for (size_t i = 0; i < b->held; i++) b->bucket[b->count + i] = before[i];
    for (size_t i = 0; i < b->count; i++)
        b->bucket[i] = spw_tape_tensor(b->tape, b->size[backwards ? i : b->count - 1 - i].bytes);
    (void)spw_tape_kind(b->tape, kind);
}

void spw_hf_buckets_begin(spw_hf_buckets *b) {
    const bool searches = spw_hf_searches_unused(b->shape);
    if (b->shape->summed <= 1) return;
    broadcast(b);
    make(b, false, searches ? FIRST : UINT64_MAX, searches ? LIMIT : UINT64_MAX);
}

void spw_hf_buckets_step(spw_hf_buckets *b) {
    if (b->shape->summed > 1 && b->steps == 1 && !spw_hf_searches_unused(b->shape))
        make(b, true, FIRST, LIMIT);
    b->steps++;
}

void spw_hf_buckets_reduce(spw_hf_buckets *b) {
    for (; b->held > 0; b->held--) spw_tape_drop(b->tape, b->bucket[b->count + b->held - 1]);
}
