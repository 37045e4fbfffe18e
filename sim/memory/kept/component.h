/* What a footprint (sim/memory/live/footprint.h) is made of, as those see it who fill it. Bytes. */
#ifndef SPW_SIM_MEMORY_KEPT_COMPONENT_H
#define SPW_SIM_MEMORY_KEPT_COMPONENT_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/memory/kept/stage_walk.h"
#include "sim/print/formula.h"
#include "sim/schemes/scheme.h"
#include "sim/weights/stage.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

enum { SPW_COMPONENT_TEXT = 160, SPW_COMPONENTS = 85 };

typedef struct spw_component {
    char name[48];
    uint64_t bytes;
    bool argument;      /* resident state; everything else is temporary */
    bool routed;        /* follows the routing when the scheme does */
    bool by_layer;      /* a part of it is kept by every layer, from its forward pass on */
    bool waits;         /* it is of layers that wait for their backward pass, or had it: as many as then */
    bool ahead;         /* gathered ahead, on the stream of all-gathers */
    bool apart;         /* lists have it piece by piece, where units are listed */
    bool by_first_step; /* allocated by the optimizer's first step, and there from then on */
    unsigned
        tensors; /* it is made of so many tensors a parameter (sim/weights/state_tensors.h); 0: it is one */
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

/* One unit of FSDP2 on a GPU that is no pipeline stage, as the allocator sees it. */
typedef struct spw_unit_bytes {
    uint64_t gathered, shard; /* what an all-gather gives, and is given */
    uint64_t weights, matrix; /* as layers use them: each matrix of all experts, and all else */
    uint64_t gradient;        /* before it is reduced, without those that the scheme's list has */
    uint64_t reduced;         /* what a reduce-scatter is given of what was gathered */
    uint64_t reduced_alone;   /* and of what no other GPU has a part of */
} spw_unit_bytes;

/* Tensors of an attention of queries, keys and values, and of its layer's router; query 0: it is not listed. */
typedef struct spw_attention_bytes {
    uint64_t hidden, query, key, normed_query,
        normed_key;                     /* of all heads; of norms a head 0 where there are none */
    uint64_t table, head, router;       /* angles, a figure in fp32 a head, the router's input in fp32 */
    uint64_t first_weight, last_weight; /* one product before the core, and that behind it */
    uint64_t small;                     /* all else that a layer keeps of both */
} spw_attention_bytes;

typedef struct spw_units {
    size_t matrices;                 /* of an expert: 2 or 3 */
    bool listed;                     /* one by one, in place of components that are `apart` */
    spw_unit_bytes layer[2], end[2]; /* [without experts, with them], [embedding, head] */
    uint64_t logits, fp32; /* torchtitan's own loss: logits, and as much in fp32; 0: it is a component */
    spw_attention_bytes attention; /* of a layer with experts */
} spw_units;

typedef struct spw_footprint {
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
    spw_units units;
    spw_waiting_layer keeps[2]; /* [without experts, with them] */
    spw_stage_peaks waiting;
    uint64_t beside_bytes[SPW_MOMENT_COUNT];
    spw_component component[SPW_COMPONENTS]; /* of which `components` are there */
} spw_footprint;

/* Nothing is there; components are not touched before they are. */
void spw_footprint_clear(spw_footprint *footprint);

#endif
