/* What a step's memory is made of. */
#ifndef SPW_SIM_MEMORY_STEP_STEP_PARTS_H
#define SPW_SIM_MEMORY_STEP_STEP_PARTS_H

#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/step_memory.h"
#include "sim/schemes/layer.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage_layers.h"
#include "sim/weights/state_tensors.h"

/* A component of the footprint that does not follow the routing; its slot is its position. */
typedef struct spw_step_fixed {
    uint64_t bytes;
    bool live[SPW_MOMENT_COUNT];
    unsigned tensors; /* a parameter; 0: it is one tensor */
    bool by_first_step;
    uint8_t stream;
    bool cast;   /* of weights: a copy in their format comes and goes with each */
    size_t slot; /* of the first of its tensors, beyond state_slot() */
} spw_step_fixed;

/* What a layer keeps beside its experts' rows, and leaves behind. */
enum { RESIDUALS = 24 };

enum { KEPT_INPUT, KEPT_RESIDUALS, KEPT = KEPT_RESIDUALS + RESIDUALS, KEPT_LEFT = 2, KEPT_MADE, ENDS = 2 };

enum { MAIN_STREAM, GATHER_STREAM, REDUCE_STREAM };

/* What a unit of FSDP2 has for a while: its all-gather's output and input, weights of products of attention, its other weights as layers
 * use them, matrices of experts by themselves, gradients before they are reduced, inputs of reduce-scatters; and pieces of the loss. */
typedef enum spw_unit_part {
    UNIT_OUTPUT,
    UNIT_INPUT,
    UNIT_FIRST, /* of attention's products, where it is listed */
    UNIT_LAST,
    UNIT_WEIGHTS,
    UNIT_MATRIX,
    UNIT_GRADIENT = UNIT_MATRIX + 3,
    UNIT_REDUCED,
    UNIT_REDUCED_ALONE,
    UNIT_PARTS
} spw_unit_part;

/* Tensors of attention that come and go while a layer works. */
enum { AROUND = 32, THREADS = 2 };

enum { LOSS_LOGITS, LOSS_FP32, LOSS_PIECES = LOSS_FP32 + 3, KEPT_UNIT = KEPT_MADE + 1 };

/* A layer of a micro-batch that is in flight. */
typedef struct spw_step_place {
    size_t set, local; /* of the flight, and of the chunk's layers */
    size_t index;      /* of the stage's layers */
    bool experts, backward;
} spw_step_place;

/* A part of a pass through a layer, in a list. */
typedef struct spw_step_written {
    size_t begin, end, cell; /* its events; the layer in its set */
    bool there;
} spw_step_written;

typedef spw_status spw_step_part(spw_step_memory *memory, spw_step_place at, const spw_rank_rows *rows);

struct spw_step_memory {
    spw_pipeline pipeline;
    size_t stage;
    spw_stage_layers stages; /* its layers */
    size_t *set_of;          /* [micro_batches][chunks] slots of a pass in flight; SIZE_MAX: it is none */
    size_t *spare;           /* [sets] those that no pass has */
    size_t sets, spares;
    spw_rank_rows predicted; /* of layers of multi-token prediction: a trace has none of theirs */
    size_t micro_batch;      /* of the pass under way */
    size_t at_work;          /* its layer among the model's MoE layers; SPW_NO_MOE_LAYER: none */
    spw_layer layer;
    struct {
        size_t begin, end;
    } phase[SPW_PHASE_COUNT]; /* its events lie there */
    size_t layers;
    size_t ranks;    /* of the group */
    bool saves;      /* no remat */
    uint64_t *bytes; /* [tensors] of the layer under way */
    spw_step_fixed fixed[SPW_COMPONENTS];
    size_t fixed_count;
    spw_state_tensors state;
    uint64_t *state_bytes; /* [state.count + 1] */
    size_t state_slots;
    spw_state_tensors weights; /* before a buffer takes them; count 0: none does */
    uint64_t *weight_bytes;    /* [weights.count + 1] */
    uint64_t built_bytes;      /* of all of them */
    bool *live;                /* [sets][layers of a chunk][tensors] */
    bool *left;                /* [layers of the stage] what the backward pass left is there yet */
    bool *made;                /* [layers of the stage, embedding, head] its gradient of this step is there */
    bool *
        untouched; /* [of left, of made] in the step under way; NULL: nobody asks (spw_step_memory_every_step()) */
    size_t *earlier; /* [earliers] with it: deaths of what the step before has left, if it has */
    size_t earliers;
    spw_step_written written[2][2][2]; /* with it: backward, of experts, of no MoE layer of the model */
    size_t ends[2];                    /* the chunks of embedding and head; SIZE_MAX: not of this stage */
    spw_waiting_layer keeps[2];        /* where layers are freed one by one */
    bool frees;
    spw_units units;
    size_t ahead;     /* units that are gathered before their turn */
    size_t unit_slot; /* the first of theirs */
    bool *unit_live;  /* [parts][units] embedding, layers, head */
    size_t gathered;  /* the unit whose output a forward pass still has, SIZE_MAX: none */
    struct {
        size_t first, last, gradient,
            done; /* tensors of experts at which they are cast, and not needed; SIZE_MAX: none */
    } experts;
    uint64_t workspace; /* of cuBLAS, a thread's, allocated by its first product; 0: they are a component */
    bool has_workspace[THREADS]; /* of the forward and of the backward pass */
    size_t reducing;             /* the cell of the input that was reduced last */
    spw_event_list *out;
    bool shares;                        /* bare layers with expert_tensor */
    spw_recorded_layers *beside;        /* with `recorded`: what is aligned with it */
    spw_bare_layers *bare;              /* its list takes the place of all the above; NULL: none */
    spw_transformers_step *listed;      /* as well, of a whole job of transformers; NULL: none */
    size_t listed_slots;                /* of its lists */
    uint64_t *received, *sent, *held;   /* [layers], of it */
    const spw_snapshot_steps *recorded; /* its lists stand among those of a snapshot; NULL: none */
    spw_event_list layers_list;         /* of the bare layers, one micro-batch */
    size_t step;
};

size_t spw_step_state_slot(const spw_step_memory *memory);
size_t spw_step_left_slot(const spw_step_memory *memory); /* of what layers left, then of gradients made */
bool spw_step_is_always(const spw_step_fixed *tensor);
SPW_MUST_CHECK spw_status spw_step_change_fixed(spw_step_memory *memory, size_t tensor, bool born,
                                                bool backward);

/* sim/memory/step/step_once.c: a part of a pass, in which the layer's own tensors have slots, and fixed ones. In a list of every step it is
 * made of the first layer of its kind. */
SPW_MUST_CHECK spw_status spw_step_once(spw_step_memory *memory, spw_step_place at, const spw_rank_rows *rows,
                                        spw_step_part *part);

/* Appends an event of the micro-batch and layer at work. */
SPW_MUST_CHECK static inline spw_status spw_step_append(spw_step_memory *m, spw_memory_event event) {
    event.micro_batch = (uint32_t)m->micro_batch;
    event.layer = (uint16_t)m->at_work;
    return spw_event_list_append(m->out, event);
}

/* Units of FSDP2: unit 0 is the embedding, unit i + 1 layer i, the last one the head. */
static inline size_t spw_step_units(const spw_step_memory *m) {
    return m->stages.begin[m->pipeline.chunks] + ENDS;
}

/* A slot of what a layer keeps, from KEPT_RESIDUALS on. */
static inline size_t spw_step_kept_slot(const spw_step_memory *m, spw_step_place at, size_t what) {
    const size_t first = SPW_COMPONENTS + m->sets * m->stages.most * m->layer.tensors;
    return first + KEPT * (at.set * m->stages.most + at.local) + what;
}

/* A tensor of a unit of FSDP2, of the loss or of attention, on the layers' own stream. */
SPW_MUST_CHECK static inline spw_status spw_step_append_unit(spw_step_memory *m, size_t slot, uint64_t bytes,
                                                             bool born, bool backward) {
    return spw_step_append(
        m, (spw_memory_event){.bytes = bytes,
                              .slot = (uint32_t)slot,
                              .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + KEPT_UNIT),
                              .born = born,
                              .backward = backward});
}

/* Slots behind those of the units: of the loss; then of casts of experts, of what attention has around, and of workspaces. */
static inline size_t spw_step_loss_slot(const spw_step_memory *m) {
    return m->unit_slot + UNIT_PARTS * spw_step_units(m);
}
static inline size_t spw_step_around_slot(const spw_step_memory *m) {
    return spw_step_loss_slot(m) + LOSS_PIECES;
}

/* Attention and router of a layer one by one (sim/memory/step/step_attention.c); nothing where they are not listed. */
static inline bool spw_step_attention_listed(const spw_step_memory *m) {
    return m->units.listed && m->units.attention.query > 0;
}
SPW_MUST_CHECK spw_status spw_step_attention_forward(spw_step_memory *memory, spw_step_place at, bool keep);
SPW_MUST_CHECK spw_status spw_step_attention_experts_done(spw_step_memory *memory, spw_step_place at);
SPW_MUST_CHECK spw_status spw_step_attention_forward_end(spw_step_memory *memory, spw_step_place at,
                                                         bool keep);
SPW_MUST_CHECK spw_status spw_step_attention_backward(spw_step_memory *memory, spw_step_place at);
/* the layer's input has gone; its gradients have been reduced; */
SPW_MUST_CHECK spw_status spw_step_attention_input(spw_step_memory *memory, spw_step_place at);
SPW_MUST_CHECK spw_status spw_step_attention_reduced(spw_step_memory *memory, spw_step_place at);
/* the gradient of the last layer's output comes, that of the first one's input goes. */
SPW_MUST_CHECK spw_status spw_step_attention_gradient(spw_step_memory *memory, bool born);
/* The thread that works has a workspace from now on. */
SPW_MUST_CHECK spw_status spw_step_workspace(spw_step_memory *memory, bool backward);
/* Matrices of experts that no other GPU has a part of, cast one by one. */
SPW_MUST_CHECK spw_status spw_step_experts_cast(spw_step_memory *memory, size_t unit, bool born);

/* Units of FSDP2 one by one (sim/memory/step/step_units.c); nothing where they are not listed. Unit 0 is the embedding, unit i + 1
 * layer i, the last one the head. */
size_t spw_step_unit_slots(const spw_step_memory *memory);
/* In the forward pass it comes to be used, and is not any more; */
SPW_MUST_CHECK spw_status spw_step_unit_forward(spw_step_memory *memory, size_t unit);
SPW_MUST_CHECK spw_status spw_step_unit_reshard(spw_step_memory *memory, size_t unit);
/* in the backward pass it is used, its experts that are alone are reduced, and the rest. */
SPW_MUST_CHECK spw_status spw_step_unit_backward(spw_step_memory *memory, size_t unit);
SPW_MUST_CHECK spw_status spw_step_unit_alone(spw_step_memory *memory, size_t unit);
SPW_MUST_CHECK spw_status spw_step_unit_reduce(spw_step_memory *memory, size_t unit);
SPW_MUST_CHECK spw_status spw_step_units_loss(spw_step_memory *memory);
SPW_MUST_CHECK spw_status spw_step_units_end(spw_step_memory *memory); /* of a backward pass */

#endif
