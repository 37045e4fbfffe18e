#include "sim/time/compiled/compiled_loop.h"

#include "sim/job/job.h"

#include <math.h>
#include <string.h>

/* Which components a turn without work runs too, and by which count of layers they are in the loop. What follows the routing is
 * taken turn by turn; weights are gathered by turn already. */
typedef enum counted { OF_ALL_LAYERS, OF_MOE_LAYERS } counted;
static const struct {
    const char *component;
    counted by;
} looped[] = {
    {"attention_projections", OF_ALL_LAYERS},
    {"attention", OF_ALL_LAYERS},
    {"elementwise", OF_ALL_LAYERS},
    {"shared_expert", OF_MOE_LAYERS},
    {"router", OF_MOE_LAYERS},
    {"mask_products", OF_MOE_LAYERS},
    {"row_moves", OF_MOE_LAYERS},
    {"masks", OF_MOE_LAYERS},
    {"scatter_adds", OF_MOE_LAYERS},
};

/* What stage `stage` does in turn `turn`. */
static double stage_seconds(const spw_loop_request *q, size_t turn, size_t stage) {
    const spw_compiled_cut *c = q->cut;
    const spw_compiled_load *l = q->load;
    double seconds = 0.0;
    if (turn < stage) return (double)c->layers * q->idle_s;
    const size_t done =
        (turn - stage) % (c->micro_batches * c->repeats); /* at the end it runs a micro-batch again */
    const size_t micro_batch = done % c->micro_batches, round = done / c->micro_batches;
    for (size_t i = 0; i < c->layers; i++) {
        const size_t layer = c->outside + (round * c->stages + stage) * c->layers + i;
        const size_t at = micro_batch % l->micro_batches * l->layers + layer % l->layers;
        seconds += q->routed_s(q->state, &l->layer[at]);
    }
    return seconds;
}

double spw_loop_routed_seconds(const spw_loop_request *q) {
    double seconds = 0.0;
    for (size_t turn = 0; turn < q->cut->turns; turn++) {
        double slowest = 0.0;
        for (size_t stage = 0; stage < q->cut->stages; stage++)
            slowest = fmax(slowest, stage_seconds(q, turn, stage));
        seconds += slowest;
    }
    return seconds;
}

/* Of one GPU: its part of all micro-batches through the layers of the loop. */
static double worked_seconds(const spw_loop_request *q) {
    const spw_compiled_cut *c = q->cut;
    double seconds = 0.0;
    for (size_t m = 0; m < c->micro_batches; m++) {
        for (size_t layer = c->outside; layer < c->outside + c->piped; layer++)
            seconds += q->routed_s(
                q->state,
                &q->load->layer[m % q->load->micro_batches * q->load->layers + layer % q->load->layers]);
    }
    return seconds / (double)c->stages;
}

spw_status spw_loop_add(const spw_loop_request *q, double send_s, spw_timeline *out) {
    const spw_compiled_cut *c = q->cut;
    const double counts[] = {
        [OF_ALL_LAYERS] = (double)q->job->model.layers, [OF_MOE_LAYERS] = (double)q->job->model.moe_layers};
    const double empty = (double)(c->stages - 1) / (double)(c->micro_batches * c->repeats);
    const double sends =
        (double)c->turns * (double)(SPW_LOOP_SENDS + (c->stores ? SPW_LOOP_STORE_SENDS : 0)) * send_s;
    double even = 0.0;
    for (size_t i = 0; i < sizeof looped / sizeof *looped; i++) {
        const spw_time_component *component = spw_timeline_find(out, looped[i].component);
        if (component != NULL) even += component->exposed_s * (double)c->piped / counts[looped[i].by];
    }
    const double bubble = empty * even + fmax(0.0, spw_loop_routed_seconds(q) - worked_seconds(q));
    spw_status status = spw_timeline_add(out, "pipeline_bubble",
                                         "turns without work, and waits for the slowest stage of a turn",
                                         SPW_STREAM_COLLECTIVE, bubble, bubble);
    if (status == SPW_OK)
        status =
            spw_timeline_add(out, "pipeline_sends", "activations to the next stage, and their gradients back",
                             SPW_STREAM_COLLECTIVE, sends, sends);
    return status;
}
