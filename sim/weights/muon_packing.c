#include "sim/weights/muon_packing.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/model/matrices.h"
#include "sim/weights/block.h"
#include "sim/weights/muon_dealing.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <string.h>

enum { START = 64, END = 128, KINDS = SPW_MUON_KINDS };

bool spw_muon_packs(const spw_job *job) { return spw_muon_is_layer_wise(job) && !job->muon_ping_pong; }

static uint64_t padded(uint64_t count, uint64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

static uint64_t lcm(uint64_t a, uint64_t b) {
    uint64_t x = a, y = b;
    while (y > 0) {
        const uint64_t rest = x % y;
        x = y, y = rest;
    }
    return a / x * b;
}

static double work(const spw_muon_matrices *m) {
    const double large = fmax((double)m->rows, (double)m->columns),
                 small = fmin((double)m->rows, (double)m->columns);
    return large * small * small;
}

/* --- One buffer --- */

typedef struct shards {
    uint64_t *elements; /* of each, gaps between matrices included */
    double *work;
    size_t count;
    double most; /* elements that a shard should not exceed */
} shards;

static size_t place_of(const shards *s, uint64_t elements) {
    size_t best = s->count, emptiest = 0;
    for (size_t i = 0; i < s->count; i++) {
        const bool room = (double)(padded(s->elements[i], START) + elements) <= s->most;
        if (room && (best == s->count || s->work[i] < s->work[best])) best = i;
        if (s->elements[i] < s->elements[emptiest]) emptiest = i;
    }
    return best < s->count ? best : emptiest;
}

spw_status spw_muon_pack(const spw_muon_matrices *matrices, size_t kinds, size_t count, uint64_t *load,
                         spw_muon_seconds *spent, uint64_t *shard) {
    spw_muon_matrices order[KINDS];
    shards s = {.count = count};
    spw_status status = SPW_OK;
    uint64_t largest = 0;
    double sum = 0.0;
    *shard = 0;
    if (count == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &s.elements));
    SPW_TRY(SPW_ALLOC(count, &s.work));
    for (size_t i = 0; i < kinds;
         i++) { /* insertion: equal work stays in the model's order, the last layers first */
        size_t at = i;
        sum += (double)matrices[i].rows * (double)matrices[i].columns * (double)matrices[i].count;
        for (; at > 0 && work(&order[at - 1]) <= work(&matrices[i]); at--) order[at] = order[at - 1];
        order[at] = matrices[i];
    }
    s.most = sum / (double)count * 1.3;
    for (size_t i = 0; i < kinds; i++) {
        const uint64_t elements = order[i].rows * order[i].columns;
        for (uint64_t j = 0; j < order[i].count; j++) {
            const size_t at = place_of(&s, elements);
            s.elements[at] = padded(s.elements[at], START) + elements;
            s.work[at] += work(&order[i]);
            load[at] += elements;
            if (spent != NULL) {
                spent[at].products += order[i].each.products;
                spent[at].gathers += order[i].each.gathers;
            }
        }
    }
    for (size_t i = 0; i < count; i++) largest = s.elements[i] > largest ? s.elements[i] : largest;
    *shard = padded(largest, lcm(START, lcm(count, END) / count));

cleanup:
    spw_free(s.elements);
    spw_free(s.work);
    return status;
}

/* --- The matrices of a stage --- */

typedef spw_muon_list matrices;

spw_status spw_muon_packing_of(const spw_job *job, size_t stage, spw_muon_packing *out) {
    const spw_grid g = spw_grid_of(job);
    const spw_pipeline p = spw_pipeline_of(job);
    const size_t members[2] = {g.expert_data, g.data * g.context}, gpus = spw_grid_stage_gpus(job);
    uint64_t *load[2] = {NULL, NULL};
    spw_status status = SPW_OK;
    *out = (spw_muon_packing){.fullest = 0.0};
    for (int i = 0; i < 2; i++) SPW_TRY(SPW_ALLOC(members[i], &load[i]));
    for (size_t c = 0; c < p.chunks; c++) {
        const spw_block block = spw_pipeline_block(&p, &job->model, stage, c);
        matrices list[2];
        spw_muon_block_matrices(job, &block, list);
        for (int i = 0; i < 2; i++) {
            uint64_t shard;
            SPW_TRY(spw_muon_pack(list[i].kind, list[i].kinds, members[i], load[i], NULL, &shard));
            out->buffers[i] += (double)shard * (double)members[i];
        }
    }
    for (int i = 0; i < 2; i++)
        for (size_t s = 0; s < members[i]; s++) out->matrices[i] += (double)load[i][s];
    for (size_t gpu = 0; gpu < gpus; gpu++) {
        const size_t of[2] = {gpu / (g.expert * g.expert_tensor), gpu / g.tensor};
        out->fullest = fmax(out->fullest, (double)load[0][of[0]] + (double)load[1][of[1]]);
    }

cleanup:
    for (int i = 0; i < 2; i++) spw_free(load[i]);
    return status;
}

spw_status spw_muon_slowest(const spw_job *job, size_t stage,
                            spw_muon_seconds (*price)(const void *context, const spw_muon_matrices *one),
                            const void *context, spw_muon_seconds *out) {
    const spw_grid g = spw_grid_of(job);
    const spw_pipeline p = spw_pipeline_of(job);
    const bool packs = spw_muon_packs(job);
    const size_t members[2] = {packs ? g.expert_data : 1, packs ? g.data * g.context : 1},
                 gpus = packs ? spw_grid_stage_gpus(job) : 1;
    uint64_t *load[2] = {NULL, NULL};
    spw_muon_seconds *spent[2] = {NULL, NULL};
    spw_status status = SPW_OK;
    *out = (spw_muon_seconds){0.0, 0.0};
    if (spw_muon_is_dealt(job)) return spw_muon_dealt_slowest(job, stage, price, context, out);
    for (int i = 0; i < 2; i++) {
        SPW_TRY(SPW_ALLOC(members[i], &load[i]));
        SPW_TRY(SPW_ALLOC(members[i], &spent[i]));
    }
    for (size_t c = 0; c < p.chunks; c++) {
        const spw_block block = spw_pipeline_block(&p, &job->model, stage, c);
        matrices list[2];
        spw_muon_block_matrices(job, &block, list);
        for (int i = 0; i < 2; i++) {
            uint64_t shard;
            for (size_t k = 0; k < list[i].kinds; k++)
                list[i].kind[k].each = price(context, &list[i].kind[k]);
            SPW_TRY(spw_muon_pack(list[i].kind, list[i].kinds, members[i], load[i], spent[i], &shard));
        }
    }
    for (size_t gpu = 0; gpu < gpus; gpu++) {
        const spw_muon_seconds *experts = &spent[0][gpu / (g.expert * g.expert_tensor)],
                               *rest = &spent[1][gpu / g.tensor];
        const spw_muon_seconds both = {experts->products + rest->products, experts->gathers + rest->gathers};
        if (both.products + both.gathers > out->products + out->gathers) *out = both;
    }

cleanup:
    for (int i = 0; i < 2; i++) spw_free(load[i]), spw_free(spent[i]);
    return status;
}
