#include "sim/memory/tensors/transformers_step.h"

#include "base/memory.h"
#include "sim/memory/tensors/transformers_buckets.h"

enum { MAIN_STREAM, GATHER_STREAM, REDUCE_STREAM, COPY_STREAM };
enum { INDEX = 8, FP32 = 4 };

struct spw_transformers_step {
    spw_transformers_shape shape;
    spw_tape *tape;
    spw_hf_model *model;
    spw_value *gathered; /* [weights] copied out */
    spw_value *reduced;  /* [layers + 1] sharded gradients of a unit */
    spw_value buffer;    /* of the last gather */
    spw_value input;     /* of the last reduce-scatter */
    spw_transformers_exchange exchange;
    spw_hf_buckets buckets;
};

spw_status spw_transformers_step_create(const spw_transformers_shape *shape, spw_transformers_step **out) {
    spw_transformers_step *s = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &s));
    s->shape = *shape;
    SPW_TRY(spw_tape_create(SPW_HF_GRADIENTS, &s->tape));
    SPW_TRY(spw_hf_model_create(&s->shape, s->tape, &s->model));
    SPW_TRY(SPW_ALLOC(s->model->weights, &s->gathered));
    SPW_TRY(SPW_ALLOC(shape->layers + 1, &s->reduced));
    SPW_TRY(spw_hf_buckets_create(&s->shape, s->model, s->tape, &s->buckets));
    *out = s;
    s = NULL;

cleanup:
    spw_transformers_step_destroy(s);
    return status;
}

/* The second step and all after it need as many. */
spw_status spw_transformers_step_slots(const spw_transformers_shape *shape, size_t *slots) {
    spw_transformers_step *trial = NULL;
    spw_event_list list = {.events = 0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_transformers_step_create(shape, &trial));
    SPW_TRY(spw_transformers_step_begin(trial, &list));
    SPW_TRY(spw_transformers_step_run(trial, &list));
    SPW_TRY(spw_transformers_step_optimizer(trial, &list));
    for (int i = 0; i < 2; i++) SPW_TRY(spw_transformers_step_run(trial, &list));
    *slots = spw_tape_slots(trial->tape);

cleanup:
    spw_transformers_step_destroy(trial);
    spw_event_list_destroy(&list);
    return status;
}

void spw_transformers_step_destroy(spw_transformers_step *s) {
    if (s == NULL) return;
    spw_hf_buckets_destroy(&s->buckets);
    spw_hf_model_destroy(s->model);
    spw_tape_destroy(s->tape);
    spw_free(s->gathered);
    spw_free(s->reduced);
    spw_free(s);
}

spw_tape_work spw_transformers_step_work(const spw_transformers_step *s) { return spw_tape_work_of(s->tape); }
spw_transformers_exchange spw_transformers_step_exchange(const spw_transformers_step *s) {
    return s->exchange;
}

static size_t weight_bytes(const spw_transformers_step *s, const spw_hf_weight *w) {
    return w->wide ? FP32 : w->trained ? spw_hf_trained_bytes(&s->shape) : s->shape.weight_bytes;
}

static size_t moment_bytes(const spw_transformers_step *s, const spw_hf_weight *w) {
    return w->wide ? FP32 : s->shape.frozen ? spw_hf_trained_bytes(&s->shape) : s->shape.moment_bytes;
}

/* FSDP2 cuts rows, and gives every GPU as many. */
static uint64_t shard_elements(const spw_transformers_step *s, const spw_hf_weight *w) {
    return (w->rows + s->shape.shards - 1) / s->shape.shards * w->columns;
}

uint64_t spw_transformers_step_trained(const spw_transformers_step *s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->model->weights; i++)
        if (s->model->weight[i].trained) sum += shard_elements(s, &s->model->weight[i]);
    return sum;
}

static spw_status begin_list(spw_transformers_step *s, spw_event_list *list) {
    spw_event_list_clear(list);
    spw_tape_write(s->tape, list);
    spw_tape_reset_work(s->tape);
    return spw_tape_status(s->tape);
}

spw_status spw_transformers_step_begin(spw_transformers_step *s, spw_event_list *list) {
    const uint64_t ids = INDEX * s->shape.tokens;
    const spw_status status = begin_list(s, list);
    if (status != SPW_OK) return status;
    (void)spw_tape_kind(s->tape, SPW_HF_WEIGHTS);
    for (size_t i = 0; i < s->model->weights; i++)
        (void)spw_tape_tensor(s->tape, weight_bytes(s, &s->model->weight[i]) *
                                           shard_elements(s, &s->model->weight[i]));
    spw_hf_buckets_begin(&s->buckets);
    (void)spw_tape_kind(s->tape, SPW_HF_WORKSPACE);
    (void)spw_tape_tensor(s->tape, ids * s->shape.micro_batches);
    (void)spw_tape_tensor(s->tape, ids * s->shape.micro_batches);
    return spw_tape_status(s->tape);
}

spw_status spw_transformers_step_optimizer(spw_transformers_step *s, spw_event_list *list) {
    const spw_status status = begin_list(s, list);
    if (status != SPW_OK) return status;
    (void)spw_tape_kind(s->tape, SPW_HF_MOMENTS);
    for (size_t i = 0; i < s->model->weights; i++) {
        if (!s->model->weight[i].trained) continue;
        (void)spw_tape_tensor(s->tape, FP32); /* the step's number */
        for (int n = 0; n < 2; n++)
            (void)spw_tape_tensor(s->tape, moment_bytes(s, &s->model->weight[i]) *
                                               shard_elements(s, &s->model->weight[i]));
    }
    return spw_tape_status(s->tape);
}

/* --- FSDP2 --- */

/* Weights of a unit: of a layer, or (root) those before the first and behind the last. */
static bool is_of(const spw_transformers_step *s, size_t unit, size_t weight) {
    const spw_hf_layer *layer = s->model->layer;
    const size_t layers = s->shape.layers;
    if (unit < layers) return weight >= layer[unit].first && weight < layer[unit].end;
    return weight < layer[0].first || weight >= layer[layers - 1].end;
}

static uint64_t unit_elements(const spw_transformers_step *s, size_t unit, bool trained) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->model->weights; i++)
        if (is_of(s, unit, i) && (!trained || s->model->weight[i].trained))
            sum += s->shape.shards * shard_elements(s, &s->model->weight[i]);
    return sum;
}

static void gather(spw_transformers_step *s, size_t unit) {
    const uint64_t bytes = s->shape.element_bytes * unit_elements(s, unit, false);
    const uint16_t kind = spw_tape_kind(s->tape, SPW_HF_GATHERS);
    spw_value narrow = {.storage = 0};
    if (s->shape.weight_bytes != s->shape.element_bytes) {
        spw_tape_stream(s->tape, GATHER_STREAM);
        narrow = spw_tape_tensor(s->tape, bytes / s->shape.shards);
    }
    spw_tape_stream(s->tape, GATHER_STREAM);
    s->buffer = spw_tape_tensor(s->tape, bytes);
    spw_tape_drop(s->tape, narrow);
    spw_tape_stream(s->tape, MAIN_STREAM);
    (void)spw_tape_kind(s->tape, kind);
    s->exchange.gathered_bytes += (double)bytes;
    s->exchange.gathers += 1.0;
}

static void copy_out(spw_transformers_step *s, size_t unit) {
    const uint16_t kind = spw_tape_kind(s->tape, SPW_HF_GATHERED);
    for (size_t i = 0; i < s->model->weights; i++)
        if (is_of(s, unit, i))
            s->gathered[i] = spw_tape_tensor(s->tape, s->shape.element_bytes * s->shape.shards *
                                                          shard_elements(s, &s->model->weight[i]));
    (void)spw_tape_kind(s->tape, kind);
}

static void free_gathered(spw_transformers_step *s, size_t unit) {
    for (size_t i = 0; i < s->model->weights; i++) {
        if (!is_of(s, unit, i)) continue;
        spw_tape_drop(s->tape, s->gathered[i]);
        s->gathered[i] = (spw_value){.storage = 0};
    }
}

static void drop_buffer(spw_transformers_step *s, spw_value buffer) {
    spw_tape_stream(s->tape, MAIN_STREAM);
    spw_tape_drop(s->tape, buffer);
}

static void reduce(spw_transformers_step *s, size_t unit) {
    const uint64_t bytes = s->shape.reduced_bytes * unit_elements(s, unit, true);
    const uint16_t kind = spw_tape_kind(s->tape, SPW_HF_REDUCED);
    const spw_value before = s->reduced[unit];
    spw_tape_drop(s->tape, s->input);
    s->input = (spw_value){.storage = 0};
    if (bytes > 0) {
        s->input = spw_tape_tensor(s->tape, bytes);
        for (size_t i = 0; i < s->model->weights; i++)
            if (is_of(s, unit, i))
                spw_tape_forget(s->tape, s->model->weight[i].leaf.leaf, s->model->weight[i].leaf.leaf + 1);
        spw_tape_stream(s->tape, REDUCE_STREAM);
        (void)spw_tape_kind(s->tape, SPW_HF_GRADIENTS);
        s->reduced[unit] = spw_tape_tensor(s->tape, bytes / s->shape.shards);
        spw_tape_stream(s->tape, MAIN_STREAM);
        if (before.storage != 0) { /* of an earlier micro-batch: added there */
            spw_tape_drop(s->tape, s->reduced[unit]);
            s->reduced[unit] = before;
        }
        s->exchange.reduced_bytes += (double)bytes;
        s->exchange.reductions += 1.0;
    }
    (void)spw_tape_kind(s->tape, kind);
}

/* Where the backward pass comes to a layer, and where it has left it. */
static void before_layer(spw_tape *tape, void *of, size_t layer) {
    spw_transformers_step *s = of;
    const spw_value buffer = s->buffer;
    (void)tape;
    if (!s->shape.wrapped || s->shape.keeps_gathered) return;
    copy_out(s, layer);
    drop_buffer(s, buffer);
    s->buffer = (spw_value){.storage = 0};
    if (layer > 0) gather(s, layer - 1);
}

static void behind_layer(spw_tape *tape, void *of, size_t layer) {
    spw_transformers_step *s = of;
    for (size_t i = layer; i <= layer + 1 && s->shape.checkpoint;
         i++) { /* the input, and an output that was made again */
        spw_tape_drop(tape, s->model->hidden[i]);
        s->model->hidden[i] = (spw_value){.storage = 0};
    }
    if (!s->shape.wrapped) return;
    free_gathered(s, layer);
    reduce(s, layer);
}

static void before_loss(spw_tape *tape, void *of, size_t layers) {
    spw_transformers_step *s = of;
    (void)tape;
    if (!s->shape.wrapped) return;
    drop_buffer(s, s->buffer);
    s->buffer = (spw_value){.storage = 0};
    if (!s->shape.keeps_gathered) gather(s, layers - 1);
}

/* Where the backward pass has left the head. */
static void behind_head(spw_tape *tape, void *of, size_t micro_batch) {
    spw_transformers_step *s = of;
    (void)tape;
    if (micro_batch + 1 == s->shape.micro_batches) spw_hf_buckets_reduce(&s->buckets);
}

/* --- A step --- */

static void forward(spw_transformers_step *s) {
    const size_t layers = s->shape.layers;
    spw_value before;
    if (s->shape.wrapped) {
        gather(s, layers);
        copy_out(s, layers);
    }
    spw_hf_begin(s->model);
    for (size_t i = 0; i < layers; i++) {
        before = s->buffer;
        if (s->shape.wrapped) {
            gather(s, i);
            copy_out(s, i);
            drop_buffer(s, before);
        }
        spw_tape_hook(s->tape, behind_layer, s, i);
        if (s->shape.checkpoint)
            spw_tape_checkpoint(s->tape, spw_hf_layer_forward, s->model, i);
        else
            spw_hf_layer_forward(s->tape, s->model, i);
        spw_tape_hook(s->tape, before_layer, s, i);
        if (!s->shape.checkpoint) {
            spw_tape_drop(s->tape, s->model->hidden[i]);
            s->model->hidden[i] = (spw_value){.storage = 0};
        }
        if (s->shape.wrapped && !s->shape.keeps_gathered) free_gathered(s, i);
    }
}

/* DDP hands out copies where it searches for unused parameters; of the loss there is too little to count. */
static void copy_outputs(spw_transformers_step *s) {
    const uint64_t bytes = s->shape.element_bytes * s->shape.tokens * s->shape.model->vocab;
    if (!spw_hf_searches_unused(&s->shape) || s->shape.fused_loss) return;
    const uint16_t kind = spw_tape_kind(s->tape, SPW_HF_LOGITS);
    const spw_value copy = spw_tape_tensor(s->tape, bytes);
    spw_tape_drop(s->tape, s->model->logits);
    s->model->logits = copy;
    (void)spw_tape_kind(s->tape, kind);
}

static void run_micro_batch(spw_transformers_step *s, size_t index) {
    spw_tape_drop(s->tape, s->model->logits); /* of the micro-batch before, where they are kept */
    spw_value narrow = {.storage = 0};
    if (spw_hf_casts_adapters(&s->shape)) {
        const uint16_t kind = spw_tape_kind(s->tape, SPW_HF_ADAPTERS);
        narrow = spw_tape_tensor(s->tape, s->shape.element_bytes * spw_transformers_step_trained(s));
        (void)spw_tape_kind(s->tape, kind);
    }
    forward(s);
    spw_tape_hook(s->tape, behind_head, s, index);
    const spw_value loss = spw_hf_loss(s->model);
    spw_tape_hook(s->tape, before_loss, s, s->shape.layers);
    copy_outputs(s);
    if (!s->shape.keeps_logits) spw_tape_drop(s->tape, s->model->logits);
    spw_tape_backward(s->tape, loss);
    spw_tape_drop(s->tape, narrow);
    spw_hf_end(s->model);
    if (s->shape.wrapped) {
        free_gathered(s, s->shape.layers);
        reduce(s, s->shape.layers);
        spw_tape_drop(s->tape, s->input);
        s->input = (spw_value){.storage = 0};
    }
    spw_tape_drop(s->tape, loss);
    if (!s->shape.keeps_logits) s->model->logits = (spw_value){.storage = 0};
}

spw_status spw_transformers_step_run(spw_transformers_step *s, spw_event_list *list) {
    const spw_status status = begin_list(s, list);
    if (status != SPW_OK) return status;
    s->exchange = (spw_transformers_exchange){.gathers = 0.0};
    spw_tape_drop(s->tape, s->model->logits);
    s->model->logits = (spw_value){.storage = 0};
    spw_tape_forget(s->tape, 1, spw_tape_leaves(s->tape));
    for (size_t i = 0; i <= s->shape.layers; i++) {
        spw_tape_drop(s->tape, s->reduced[i]);
        s->reduced[i] = (spw_value){.storage = 0};
    }
    spw_hf_buckets_step(&s->buckets);
    for (size_t i = 0; i < s->shape.micro_batches; i++) run_micro_batch(s, i);
    return spw_tape_status(s->tape);
}
