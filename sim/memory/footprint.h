/* The memory of one rank, component by component (docs/schemes.md, section 7). Bytes. */
#ifndef SPW_SIM_MEMORY_FOOTPRINT_H
#define SPW_SIM_MEMORY_FOOTPRINT_H

#include "base/status.h"
#include "sim/input/job_words.h"
#include "sim/memory/stage.h"
#include "sim/memory/stage_walk.h"
#include "sim/memory/verdict.h"
#include "sim/print/formula.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

const char *spw_moment_name(spw_moment moment);

enum { SPW_COMPONENT_TEXT = 160, SPW_COMPONENTS = 80 };

typedef struct spw_component {
    char name[48];
    uint64_t bytes;
    bool argument;      /* resident state; everything else is temporary */
    bool routed;        /* follows the routing when the scheme does */
    bool by_layer;      /* a part of it is kept by every layer, from its forward pass on */
    bool waits;         /* it is of layers that wait for their backward pass, or had it: as many as then */
    bool by_first_step; /* allocated by the optimizer's first step, and there from then on */
    unsigned
        tensors; /* it is made of so many tensors a parameter (sim/memory/state_tensors.h); 0: it is one */
    bool live[SPW_MOMENT_COUNT]; /* at which moments */
    spw_formula expression;
    char formula[SPW_COMPONENT_TEXT]; /* with numbers, where there is no expression */
    const char *source;
} spw_component;
/* Its formula, for people. */
void spw_component_print(const spw_component *component, char out[SPW_COMPONENT_TEXT]);

/* What the MoE layers in flight keep of their experts' rows. */
typedef struct spw_saved_rows {
    uint64_t all;
    uint64_t last;  /* of them, those of the last layer, which are gone when its attention runs backward */
    uint64_t stays; /* beside all: of the last layer, what offloading leaves on the GPU */
} spw_saved_rows;

typedef struct spw_footprint {
    spw_component component[SPW_COMPONENTS];
    size_t components;
    spw_moment moment; /* of the peak */
    char place[48];    /* of the peak, where it is known more closely than the moment; else empty */
    uint64_t budget_bytes, argument_bytes, temporary_bytes, peak_bytes;
    uint64_t low_bytes, high_bytes; /* interval of the peak; the peak itself where it is a sum of tensors */
    spw_live_set live_set;
    spw_rank_rows rows;   /* of that layer: where the rank holds most */
    spw_saved_rows saved; /* 0 under remat that keeps none */
    char step[48];        /* of the layer's backward peak */
    bool whole_step;      /* its peak is that of a list of the whole step, whatever the rows */
    bool stays_in_dense;  /* saved.stays is there in the backward pass of a dense layer, too */
    bool follows_routing; /* do the scheme's tensors? Else every rank allocates the same */
    spw_stage stage;      /* of the pipeline, the one that needs most */
    uint64_t fixed_bytes[SPW_MOMENT_COUNT]; /* live at each moment whatever the routing */
    /* Where layers give back what they kept one by one (PyTorch): what each keeps, what waits at each moment, and what is
     * live beside that. */
    bool frees;
    spw_waiting_layer keeps[2]; /* [without experts, with them] */
    spw_stage_peaks waiting;
    uint64_t beside_bytes[SPW_MOMENT_COUNT];
} spw_footprint;

/* What the routing does to one rank's memory: its rows in the layer where they hold most, and what all MoE layers save
 * together (used without remat alone). */
typedef struct spw_routed_memory {
    spw_rank_rows rows;
    spw_saved_rows saved;
    bool
        walked; /* where layers are freed one by one: the moments of the stage, `rows` being of its MoE layer at work; else all
                    layers have `rows` and keep saved.last */
    spw_stage_peaks peaks;
} spw_routed_memory;

/* Of the pipeline stage that needs most. routed NULL: balanced routing. A scheme whose buffers are fixed does not depend on it.
 * SPW_ENOMEM; SPW_EARG for a layer with more tensors at its peak than there is room for. */
SPW_MUST_CHECK spw_status spw_footprint_compute(const spw_point *point, const spw_routed_memory *routed,
                                                spw_footprint *out);
/* The same of stage `index`. `saved` of `routed`: of all that the stage keeps at its greatest. */
SPW_MUST_CHECK spw_status spw_footprint_of_stage(const spw_point *point, size_t index,
                                                 const spw_routed_memory *routed, spw_footprint *out);

/* The peak that the same rank would have with other routing: the footprint's components at every moment, its MoE layers'
 * tensors replaced. live: of the layer where the rank holds most. */
uint64_t spw_footprint_peak(const spw_footprint *footprint, bool saves, const spw_live_set *live,
                            spw_saved_rows kept);
/* The same where layers are freed one by one. stays: as of spw_saved_rows. */
uint64_t spw_footprint_walked_peak(const spw_footprint *footprint, const spw_stage_peaks *peaks,
                                   uint64_t stays);
/* Does the scheme's framework free what a layer kept when its backward pass ends? Programs of MaxText keep the stack of all layers. */
bool spw_footprint_frees(const spw_scheme *scheme);

/* Of a lower bound: tight where less than 5 % of the budget is free. */
spw_verdict spw_footprint_verdict(uint64_t peak_bytes, uint64_t budget_bytes);
/* Of a figure with an interval: fits where its high end does, tight where the figure itself does. high_bytes INFINITY: not known. */
spw_verdict spw_interval_verdict(double bytes, double high_bytes, double budget_bytes);

#endif
