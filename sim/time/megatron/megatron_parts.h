/* The step of a Megatron-Core job while it is predicted (sim/time/megatron/megatron_job_time.c), and what its parts are called and cost
 * (megatron_parts.c). Inside of sim/time. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_PARTS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_PARTS_H

#include "sim/time/megatron/megatron_host.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/time/megatron/megatron_outside.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/pipeline.h"

/* Which of the loads a block has: from MoE layer `first` on. */
typedef struct spw_block_load {
    size_t micro, first, layers;
} spw_block_load;

typedef struct spw_prediction {
    const spw_megatron_job_request *q;
    spw_pipeline pipeline;
    spw_megatron_shape shape; /* of a micro-batch; layers: of the block under way */
    spw_megatron_dispatcher dispatcher;
    spw_megatron_outside outside;   /* of a micro-batch, all layers */
    size_t blocks;                  /* [stages][micro_batches][chunks] */
    double *forward_s, *backward_s; /* [blocks] of one group */
    double *copies_wait_s;          /* [blocks] of both, what passes wait for copies */
    spw_megatron_time *time;        /* [timed] the MoE layers of blocks that differ, */
    spw_block_load *had;            /* [timed] and their loads */
    size_t timed, *of;              /* [blocks] which of these it has */
    double *hidden_s;               /* [blocks] of both, exchanges behind another micro-batch */
    double *shared_hidden_s;        /* [blocks] of both, shared experts beside exchanges */
    spw_megatron_host host;
    double send_s;
    /* [stages] of a MoE layer's experts, and of attention of every layer, in one pass, one way */
    double *copies_s, *attention_copies_s;
} spw_prediction;

/* The MoE layers of a block. */
static inline const spw_megatron_time *spw_prediction_time(const spw_prediction *p, size_t block) {
    return &p->time[p->of[block]];
}

/* Room for the times of p->blocks, of which so many differ at most. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_prediction_room(spw_prediction *p, size_t most);

/* Bits of phases: the exchanges of each pass. */
#define SPW_PHASE_BIT(phase) (1u << SPW_MEGATRON_##phase)
enum {
    SPW_FORWARD_EXCHANGES = SPW_PHASE_BIT(DISPATCH) | SPW_PHASE_BIT(COMBINE),
    SPW_BACKWARD_EXCHANGES = SPW_PHASE_BIT(BACKWARD_DISPATCH) | SPW_PHASE_BIT(BACKWARD_COMBINE)
};
double spw_phases_sum(const double phase_s[SPW_MEGATRON_PHASES], unsigned phases);

/* Share of a part outside the experts that a block has. */
double spw_prediction_share(const spw_prediction *p, size_t part, const spw_block *block, size_t stage,
                            size_t chunk);
/* Seconds of what a pass of a block copies to the host, or back. */
double spw_prediction_copies_s(const spw_prediction *p, const spw_block *block, size_t stage);
/* Seconds of a collective of weights or gradients. */
double spw_prediction_collective_s(const spw_megatron_coefficients *c, const spw_weight_traffic *traffic);

/* Seconds of the optimizer on the stage where it takes least, without what the host does and without Muon. */
double spw_prediction_optimizer_s(const spw_prediction *p);

/* The parts of the stage that sets the pace, of blocks that are timed; passes_s: what all passes of a step take. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_prediction_parts(const spw_prediction *p, double passes_s, spw_timeline *out);

#endif
