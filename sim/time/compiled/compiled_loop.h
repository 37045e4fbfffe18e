/* The loop of MaxText's pipeline in time (sim/memory/compiled/compiled_cut.h): in every turn all stages run n layers and then hand on what
 * they have, so a turn is as long as its slowest stage, and the loop the sum of its turns. Turns in which a stage has no
 * micro-batch are run all the same: at the beginning on zeros, at the end on what came out before. */
#ifndef SPW_SIM_TIME_COMPILED_COMPILED_LOOP_H
#define SPW_SIM_TIME_COMPILED_COMPILED_LOOP_H

#include "sim/memory/compiled/compiled_cut.h"
#include "sim/time/compiled/compiled_work.h"
#include "sim/time/timeline.h"

/* [T, H] tensors that a stage hands on in a turn, both ways: its result and the micro-batches at the ends of the model, forward and
 * backward; two more where what left the last stage waits for its next round. Counted in compiled programs. */
enum { SPW_LOOP_SENDS = 4, SPW_LOOP_STORE_SENDS = 2 };

typedef struct spw_loop_request {
    const spw_job *job;
    const spw_compiled_cut *cut;
    const spw_compiled_load *load;
    const void *state;
    double (*routed_s)(const void *state,
                       const spw_routing_layer *layer); /* what follows the routing, of a layer */
    double idle_s;                                      /* the same on zeros */
} spw_loop_request;

/* Seconds of what follows the routing in the whole loop: the sum over turns of the slowest stage. */
double spw_loop_routed_seconds(const spw_loop_request *q);

/* Adds pipeline_bubble and pipeline_sends to a timeline that has the work of one GPU: what the loop takes beyond it. */
SPW_MUST_CHECK spw_status spw_loop_add(const spw_loop_request *request, double send_s, spw_timeline *out);

#endif
