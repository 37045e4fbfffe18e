#include "sim/schemes/live_law.h"

#include "base/memory.h"

static const double FITS = 0x1p62; /* bytes, beyond which sums may saturate */

static spw_live_sum sum_of(const spw_layer_tensor *t) {
    spw_live_sum sum = {.fixed = 0};
    switch (t->rows) {
    case SPW_ROWS_HELD: sum.held = t->bytes; break;
    case SPW_ROWS_RECEIVED: sum.received = t->bytes; break;
    case SPW_ROWS_SENT: sum.sent = t->bytes; break;
    case SPW_ROWS_EXPERT: break; /* as spw_layer_bytes() */
    default: sum.fixed = t->bytes;
    }
    return sum;
}

static void change(spw_live_sum *sum, const spw_live_sum *by, int sign) {
    const uint64_t times = (uint64_t)sign; /* of numbers without a sign: -1 takes away */
    sum->fixed += times * by->fixed;
    sum->held += times * by->held;
    sum->received += times * by->received;
    sum->sent += times * by->sent;
}

static bool is_within(const spw_live_sum *a, const spw_live_sum *b) {
    return a->fixed <= b->fixed && a->held <= b->held && a->received <= b->received && a->sent <= b->sent;
}

static double bytes_of(const spw_live_sum *s, const spw_rank_rows *rows) {
    return (double)s->fixed + (double)s->held * (double)rows->held +
           (double)s->received * (double)rows->received + (double)s->sent * (double)rows->sent;
}

/* Keeps the sum, where no other is at least as full for any rows, and drops those of which it is so. */
static void offer(spw_live_law *law, spw_live_sum sum) {
    size_t kept = 0;
    for (size_t i = 0; i < law->sums; i++)
        if (is_within(&sum, &law->fullest[i])) return;
    for (size_t i = 0; i < law->sums; i++)
        if (!is_within(&law->fullest[i], &sum)) law->fullest[kept++] = law->fullest[i];
    law->fullest[kept++] = sum;
    law->sums = kept;
}

/* All that is ever born at once, which bounds what lives. */
static bool is_linear(const spw_layer *layer, spw_live_sum *most) {
    const spw_rank_rows one = {.held = 1, .received = 1, .sent = 1};
    double bytes = 0.0;
    for (size_t i = 0; i < layer->events; i++)
        if (layer->event[i].least_bytes > 0 || layer->event[i].to_host) return false;
    for (size_t i = 0; i < layer->tensors; i++) {
        const spw_live_sum sum = sum_of(&layer->tensor[i]);
        bytes += bytes_of(&sum, &one);
        change(most, &sum, 1);
    }
    return bytes < FITS;
}

spw_status spw_live_law_create(const spw_layer *layer, spw_live_law *out) {
    spw_live_sum live = {.fixed = 0};
    *out = (spw_live_law){.layer = layer};
    if (!is_linear(layer, &out->most)) return SPW_OK;
    const spw_status status = SPW_ALLOC(layer->events + 1, &out->fullest);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < layer->events; i++) {
        const spw_event *event = &layer->event[i];
        const spw_live_sum sum = sum_of(&layer->tensor[event->tensor]);
        const spw_phase before = i > 0 ? event[-1].phase : event->phase;
        if (event->phase != before && before == SPW_PHASE_FORWARD) live = (spw_live_sum){.fixed = 0};
        if (event->phase != before && before == SPW_PHASE_RECOMPUTE) out->saved = live;
        change(&live, &sum, event->sign);
        if (event->phase != SPW_PHASE_FORWARD) offer(out, live);
    }
    if (out->sums == 0) offer(out, (spw_live_sum){.fixed = 0});
    return SPW_OK;
}

void spw_live_law_destroy(spw_live_law *law) {
    spw_free(law->fullest);
    *law = (spw_live_law){.sums = 0};
}

static uint64_t at(const spw_live_sum *s, const spw_rank_rows *rows) {
    return s->fixed + s->held * rows->held + s->received * rows->received + s->sent * rows->sent;
}

spw_live_set spw_live_law_at(const spw_live_law *law, const spw_rank_rows *rows) {
    spw_live_set set = {.backward_bytes = 0};
    if (law->sums == 0 || !(bytes_of(&law->most, rows) < FITS)) {
        const spw_live_set all = spw_layer_live_set(law->layer, rows);
        set.backward_bytes = all.backward_bytes;
        set.saved_bytes = all.saved_bytes;
        set.to_host_bytes = all.to_host_bytes;
        return set;
    }
    for (size_t i = 0; i < law->sums; i++) {
        const uint64_t bytes = at(&law->fullest[i], rows);
        if (bytes > set.backward_bytes) set.backward_bytes = bytes;
    }
    set.saved_bytes = at(&law->saved, rows);
    return set;
}
