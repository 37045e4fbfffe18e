#include "sim/weights/muon_dealing.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/weights/block.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <string.h>

bool spw_muon_is_dealt(const spw_job *job) { return spw_muon_is_layer_wise(job) && job->muon_ping_pong; }

/* --- One group --- */

typedef struct card {
    spw_muon_matrices of;
    bool adam;
} card;

static uint64_t elements_of(const spw_muon_matrices *m) { return m->rows * m->columns; }

/* Insertion: equal sizes stay in their order, as Python's sort keeps them. */
static void put_card(card *deck, size_t *cards, const spw_muon_matrices *of, bool adam) {
    size_t at = (*cards)++;
    for (; at > 0 && elements_of(&deck[at - 1].of) > elements_of(of); at--) deck[at] = deck[at - 1];
    deck[at] = (card){*of, adam};
}

spw_status spw_muon_deal(const spw_muon_matrices *matrices, size_t kinds, const spw_muon_matrices *adam,
                         size_t adams, size_t shards, spw_muon_hand *hands) {
    card *deck = NULL;
    size_t cards = 0, turn = 0;
    spw_status status = SPW_OK;
    memset(hands, 0, shards * sizeof *hands);
    if (kinds + adams == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(kinds + adams, &deck));
    for (size_t i = 0; i < kinds; i++) put_card(deck, &cards, &matrices[i], false);
    for (size_t i = 0; i < adams; i++) put_card(deck, &cards, &adam[i], true);
    for (size_t i = 0; i < cards; i++) {
        for (uint64_t j = 0; j < deck[i].of.count; j++, turn = (turn + 1) % (2 * shards)) {
            spw_muon_hand *hand = &hands[turn < shards ? turn : 2 * shards - 1 - turn];
            *(deck[i].adam ? &hand->adam : &hand->matrices) += (double)elements_of(&deck[i].of);
            if (deck[i].adam) continue;
            hand->spent.products += deck[i].of.each.products;
            hand->spent.gathers += deck[i].of.each.gathers;
        }
    }

cleanup:
    spw_free(deck);
    return status;
}

/* --- A stage --- */

enum { ADAMS = 3, EXPERTS = 0, OTHERS = 1 };

typedef struct table {
    size_t members[2];
    spw_muon_hand *hands[2];
} table;

/* Embedding, head, and as many vectors of the hidden size as the norms have. */
static size_t list_adam(const spw_job *job, const spw_stage *stage, spw_muon_matrices out[ADAMS]) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const spw_held_parameters adam = spw_adam_parameters(&job->model, stage);
    const uint64_t tensor = spw_grid_of(job).tensor, hidden = job->model.hidden;
    const double tables = adam.rest - adam.replicated, head = stage->head ? (double)p.head : 0.0;
    size_t count = 0;
    if (adam.replicated > 0.0)
        out[count++] = (spw_muon_matrices){1, hidden, (uint64_t)(adam.replicated / (double)hidden + 0.5)};
    if (tables > head) out[count++] = (spw_muon_matrices){p.embedding / hidden / tensor, hidden, 1};
    if (head > 0.0) out[count++] = (spw_muon_matrices){p.head / hidden / tensor, hidden, 1};
    return count;
}

typedef spw_muon_seconds price_function(const void *context, const spw_muon_matrices *one);

/* price: what a matrix takes; NULL: nothing is asked. The caller frees both hands. */
static spw_status deal_stage(const spw_job *job, size_t stage, price_function *price, const void *context,
                             table *out) {
    const spw_grid g = spw_grid_of(job);
    const spw_pipeline p = spw_pipeline_of(job);
    const spw_stage of = spw_pipeline_stage(&p, &job->model, stage);
    spw_muon_matrices adam[ADAMS], *all[2] = {NULL, NULL};
    size_t kinds[2] = {0, 0};
    const size_t adams = list_adam(job, &of, adam);
    spw_status status = SPW_OK;
    *out = (table){.members = {g.expert_data, g.data * g.context}};
    for (int i = 0; i < 2; i++) {
        SPW_TRY(SPW_ALLOC(out->members[i], &out->hands[i]));
        SPW_TRY(SPW_ALLOC(p.chunks * SPW_MUON_KINDS, &all[i]));
    }
    for (size_t c = 0; c < p.chunks; c++) {
        const spw_block block = spw_pipeline_block(&p, &job->model, stage, c);
        spw_muon_list list[2];
        spw_muon_block_matrices(job, &block, list);
        for (int i = 0; i < 2; i++) {
            for (size_t k = 0; k < list[i].kinds; k++) {
                if (price != NULL) list[i].kind[k].each = price(context, &list[i].kind[k]);
                all[i][kinds[i]++] = list[i].kind[k];
            }
        }
    }
    SPW_TRY(spw_muon_deal(all[EXPERTS], kinds[EXPERTS], NULL, 0, out->members[EXPERTS], out->hands[EXPERTS]));
    SPW_TRY(spw_muon_deal(all[OTHERS], kinds[OTHERS], adam, adams, out->members[OTHERS], out->hands[OTHERS]));

cleanup:
    for (int i = 0; i < 2; i++) spw_free(all[i]);
    return status;
}

/* What a GPU of a stage has of both groups. */
static spw_muon_hand hand_of(const spw_job *job, const table *t, size_t gpu) {
    const spw_grid g = spw_grid_of(job);
    const spw_muon_hand *experts = &t->hands[EXPERTS][gpu / (g.expert * g.expert_tensor)],
                        *others = &t->hands[OTHERS][gpu / g.tensor];
    return (spw_muon_hand){
        experts->matrices + others->matrices,
        experts->adam + others->adam,
        {experts->spent.products + others->spent.products, experts->spent.gathers + others->spent.gathers}};
}

spw_status spw_muon_dealt_fullest(const spw_job *job, size_t stage, double master, double moment,
                                  spw_muon_hand *out) {
    table t = {.members = {0, 0}};
    double most = -1.0;
    spw_status status = SPW_OK;
    SPW_TRY(deal_stage(job, stage, NULL, NULL, &t));
    for (size_t gpu = 0; gpu < spw_grid_stage_gpus(job); gpu++) {
        const spw_muon_hand hand = hand_of(job, &t, gpu);
        const double bytes = hand.matrices * (master + moment) + hand.adam * (master + 2.0 * moment);
        if (bytes <= most) continue;
        most = bytes;
        *out = hand;
    }

cleanup:
    for (int i = 0; i < 2; i++) spw_free(t.hands[i]);
    return status;
}

spw_status spw_muon_dealt_slowest(const spw_job *job, size_t stage, price_function *price,
                                  const void *context, spw_muon_seconds *out) {
    table t = {.members = {0, 0}};
    spw_status status = SPW_OK;
    *out = (spw_muon_seconds){0.0, 0.0};
    SPW_TRY(deal_stage(job, stage, price, context, &t));
    for (size_t gpu = 0; gpu < spw_grid_stage_gpus(job); gpu++) {
        const spw_muon_seconds spent = hand_of(job, &t, gpu).spent;
        if (spent.products + spent.gathers > out->products + out->gathers) *out = spent;
    }

cleanup:
    for (int i = 0; i < 2; i++) spw_free(t.hands[i]);
    return status;
}
