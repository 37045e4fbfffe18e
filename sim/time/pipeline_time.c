#include "sim/time/pipeline_time.h"

#include "base/memory.h"
#include "sim/weights/pipeline.h"

#include <math.h>

typedef struct schedule {
    const spw_pipeline *p;
    const double *forward_s, *backward_s;
    double send_s;
    double *end[2]; /* [stages][micro_batches][chunks] of forward and backward passes; < 0: not yet */
    double *free;   /* [stages] when a stage has ended its last pass */
    size_t *done;   /* [stages] passes */
} schedule;

static size_t cell(const spw_pipeline *p, size_t stage, const spw_pass *pass) {
    return (stage * p->micro_batches + pass->micro_batch) * p->chunks + pass->chunk;
}

/* When what a pass needs from another stage is there; < 0: not yet. */
static double ready(const schedule *s, size_t stage, const spw_pass *pass) {
    const size_t last = s->p->stages - 1, last_chunk = s->p->chunks - 1;
    const size_t edge = pass->backward ? last : 0;
    spw_pass from = *pass;
    if (stage == edge && pass->chunk == (pass->backward ? last_chunk : 0)) return 0.0;
    if (stage == edge) from.chunk = pass->backward ? pass->chunk + 1 : pass->chunk - 1;
    const size_t source = stage == edge ? last - edge : pass->backward ? stage + 1 : stage - 1;
    const double end = s->end[pass->backward][cell(s->p, source, &from)];
    return end < 0.0 || source == stage ? end : end + s->send_s;
}

/* Runs passes of one stage until one has to wait for another stage. Returns whether any ran. */
static bool advance(schedule *s, size_t stage) {
    const size_t before = s->done[stage];
    while (s->done[stage] < spw_pipeline_passes(s->p)) {
        const spw_pass pass = spw_pipeline_pass(s->p, stage, s->done[stage]);
        const double begin = ready(s, stage, &pass);
        const size_t at = cell(s->p, stage, &pass);
        if (begin < 0.0) break;
        s->free[stage] = fmax(s->free[stage], begin) + (pass.backward ? s->backward_s[at] : s->forward_s[at]);
        s->end[pass.backward][at] = s->free[stage];
        s->done[stage]++;
    }
    return s->done[stage] > before;
}

spw_status spw_pipeline_time(const spw_pipeline *p, const double *forward_s, const double *backward_s,
                             double send_s, double *out) {
    schedule s = {.p = p, .forward_s = forward_s, .backward_s = backward_s, .send_s = send_s};
    const size_t cells = p->stages * p->micro_batches * p->chunks;
    spw_status status = SPW_OK;
    bool runs = true;
    *out = 0.0;
    SPW_TRY(SPW_ALLOC(cells, &s.end[0]));
    SPW_TRY(SPW_ALLOC(cells, &s.end[1]));
    SPW_TRY(SPW_ALLOC(p->stages, &s.free));
    SPW_TRY(SPW_ALLOC(p->stages, &s.done));
    for (size_t i = 0; i < cells; i++) s.end[0][i] = s.end[1][i] = -1.0;
    while (runs) {
        runs = false;
        for (size_t stage = 0; stage < p->stages; stage++) runs = advance(&s, stage) || runs;
    }
    for (size_t stage = 0; stage < p->stages; stage++) *out = fmax(*out, s.free[stage]);

cleanup:
    spw_free(s.end[0]), spw_free(s.end[1]), spw_free(s.free), spw_free(s.done);
    return status;
}
