#include "sim/weights/pipeline.h"

#include "sim/job/job.h"
#include "sim/weights/block.h"
#include "sim/weights/stage.h"

enum { KNOWN_BLOCKS = 16 }; /* of a stage, that are counted once */

static size_t at_least_one(size_t count) { return count > 0 ? count : 1; }

spw_pipeline spw_pipeline_of(const spw_job *job) {
    const size_t micro = spw_job_micro_batches(job);
    return (spw_pipeline){.stages = at_least_one(job->pipeline),
                          .chunks = at_least_one(job->virtual_stages),
                          .micro_batches = micro,
                          .turn = job->schedule == SPW_SCHEDULE_INTERLEAVED ? micro / spw_job_rounds(job) : 0,
                          .layout = spw_stage_layout_is_said(&job->stage_layout) ? &job->stage_layout : NULL,
                          .predictions = job->stage_layout.blocks > 0 ? 0 : job->stage_layout.predictions,
                          .all_forward = job->schedule == SPW_SCHEDULE_GPIPE,
                          .pairs = job->overlap_exchanges};
}

size_t spw_micro_batch_tokens(const spw_job *job, size_t sequences) {
    return sequences / at_least_one(job->micro_batches) * job->sequence_length;
}

size_t spw_pipeline_passes(const spw_pipeline *p) { return 2 * p->micro_batches * p->chunks; }

/* Micro-batches that go through a chunk before the next chunk has its turn. */
static size_t turn_of(const spw_pipeline *p) { return p->turn > 0 ? p->turn : p->stages; }

size_t spw_pipeline_warm_up(const spw_pipeline *p, size_t stage) {
    const size_t forward = p->micro_batches * p->chunks, later = p->stages - 1 - stage;
    if (p->all_forward) return forward;
    const size_t warm =
        (p->chunks > 1 ? 2 * later + (p->chunks - 1) * turn_of(p) : later) + (p->pairs ? 1 : 0);
    return warm < forward ? warm : forward;
}

/* Micro-batches go through the chunks in groups: P (or a turn) of them through the first chunk, the same through the second. */
static spw_pass numbered(const spw_pipeline *p, bool backward, size_t number) {
    if (p->chunks == 1) return (spw_pass){.backward = backward, .micro_batch = number};
    const size_t turn = turn_of(p), group = turn * p->chunks, inside = number % group, chunk = inside / turn;
    return (spw_pass){.backward = backward,
                      .micro_batch = number / group * turn + inside % turn,
                      .chunk = backward ? p->chunks - 1 - chunk : chunk};
}

spw_pass spw_pipeline_pass(const spw_pipeline *p, size_t stage, size_t i) {
    const size_t warm = spw_pipeline_warm_up(p, stage), steady = p->micro_batches * p->chunks - warm;
    if (i < warm) return numbered(p, false, i);
    const size_t after = i - warm;
    if (after >= 2 * steady) return numbered(p, true, after - steady);
    return after % 2 == 0 ? numbered(p, false, warm + after / 2) : numbered(p, true, after / 2);
}

static size_t common_divisor(size_t a, size_t b) { return b == 0 ? a : common_divisor(b, a % b); }

size_t spw_pipeline_period(const spw_pipeline *p, size_t kinds) {
    const size_t turn = p->chunks > 1 ? turn_of(p) : 1; /* a chunk alone has no turns */
    return 2 * turn * p->chunks * (kinds / common_divisor(turn, kinds));
}

bool spw_pipeline_is_pair(const spw_pipeline *p, size_t stage, size_t i) {
    const size_t warm = spw_pipeline_warm_up(p, stage), steady = p->micro_batches * p->chunks - warm;
    return p->pairs && i >= warm && i - warm < 2 * steady && (i - warm) % 2 == 0;
}

size_t spw_pipeline_in_flight(const spw_pipeline *p, size_t stage) {
    const size_t warm = spw_pipeline_warm_up(p, stage);
    return warm < p->micro_batches * p->chunks ? warm + 1 : warm;
}

uint64_t spw_pipeline_peak(const spw_pipeline *p, size_t stage, const uint64_t *kept) {
    uint64_t now = 0, peak = 0;
    for (size_t i = 0; i < spw_pipeline_passes(p); i++) {
        const spw_pass pass = spw_pipeline_pass(p, stage, i);
        const uint64_t bytes = kept[pass.micro_batch * p->chunks + pass.chunk];
        if (pass.backward) {
            now -= bytes;
        } else if (__builtin_add_overflow(now, bytes, &now)) {
            return UINT64_MAX;
        }
        peak = now > peak ? now : peak;
    }
    return peak;
}

static size_t predictions_of(const spw_pipeline *p, size_t index) {
    if (p->layout != NULL && p->layout->blocks > 0) return spw_stage_layout_predictions(p->layout, index);
    return index + 1 == p->stages * p->chunks ? p->predictions : 0;
}

static spw_block block_of_layout(const spw_pipeline *p, size_t layers, size_t index) {
    const spw_stage_cut cut = {.layers = layers, .stages = p->stages, .chunks = p->chunks};
    spw_block block = {.first = 0};
    for (size_t i = 0; i <= index; i++) {
        block.first += block.layers;
        block.layers = spw_stage_layout_layers(p->layout, &cut, i % p->stages, i / p->stages);
    }
    return block;
}

/* Layers that lack what others of their kind have. */
static void count_exceptions(const spw_model *m, size_t first, size_t layers, spw_block *out) {
    size_t sparse = 0; /* layers with experts so far; the first of them are the hash layers */
    for (size_t i = 0; i < first + layers; i++) {
        const bool here = i >= first;
        out->hash_layers += here && m->is_moe[i] != 0 && sparse < m->hash_layers;
        out->shared_indexers +=
            here && m->indexer_heads > 0 && m->mixer_of[i] == 0 && m->shares_indexer[i] != 0;
        out->lacking_experts += here ? m->fewer_experts[i] : 0;
        sparse += m->is_moe[i];
    }
}

spw_block spw_pipeline_block(const spw_pipeline *p, const spw_model *model, size_t stage, size_t chunk) {
    const size_t blocks = p->stages * p->chunks, index = chunk * p->stages + stage;
    if (blocks == 1) {
        spw_block all = {
            .layers = model->layers, .moe_layers = model->moe_layers, .bare_layers = model->bare_layers};
        for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) all.mixer_layers[k] = model->mixer[k].layers;
        all.predictions = predictions_of(p, 0);
        count_exceptions(model, 0, model->layers, &all);
        return all;
    }
    const size_t each = model->layers / blocks, more = model->layers % blocks;
    spw_block block = {.first = index * each + (index < more ? index : more),
                       .layers = each + (index < more ? 1 : 0)};
    if (p->layout != NULL) block = block_of_layout(p, model->layers, index);
    block.predictions = predictions_of(p, index);
    for (size_t i = block.first; i < block.first + block.layers; i++) {
        block.moe_layers += model->is_moe[i];
        block.bare_layers += model->is_bare[i];
        if (model->mixer_of[i] > 0) block.mixer_layers[model->mixer_of[i]]++;
    }
    count_exceptions(model, block.first, block.layers, &block);
    return block;
}

void spw_pipeline_place_layers(const spw_pipeline *p, const spw_model *model, size_t layers, size_t *stage,
                               size_t *chunk) {
    size_t moe = 0;
    for (size_t c = 0; c < p->chunks; c++) {
        for (size_t s = 0; s < p->stages; s++) {
            const spw_block block = spw_pipeline_block(p, model, s, c);
            for (size_t i = 0; i < block.moe_layers; i++, moe++) stage[moe] = s, chunk[moe] = c;
        }
    }
    for (size_t l = moe; l < layers && moe > 0; l++) stage[l] = stage[l - moe], chunk[l] = chunk[l - moe];
}

spw_stage spw_pipeline_stage(const spw_pipeline *p, const spw_model *model, size_t stage) {
    spw_stage out = {
        .index = stage, .stages = p->stages, .embedding = stage == 0, .head = stage + 1 == p->stages};
    spw_block known[KNOWN_BLOCKS];
    size_t now = 0, now_moe = 0;
    for (size_t c = 0; c < p->chunks; c++) {
        const spw_block block = spw_pipeline_block(p, model, stage, c);
        if (c < KNOWN_BLOCKS) known[c] = block;
        out.layers += block.layers;
        out.moe_layers += block.moe_layers;
        out.predictions += block.predictions;
        out.bare_layers += block.bare_layers;
        out.hash_layers += block.hash_layers;
        out.shared_indexers += block.shared_indexers;
        out.lacking_experts += block.lacking_experts;
        for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) out.mixer_layers[k] += block.mixer_layers[k];
    }
    /* Behind one period there is never more than before, and backward passes alone have ever less. */
    const size_t all = spw_pipeline_passes(p),
                 first = spw_pipeline_warm_up(p, stage) + spw_pipeline_period(p, 1),
                 passes = first < all ? first : all;
    for (size_t i = 0; i < passes; i++) {
        const spw_pass pass = spw_pipeline_pass(p, stage, i);
        const spw_block block =
            pass.chunk < KNOWN_BLOCKS ? known[pass.chunk] : spw_pipeline_block(p, model, stage, pass.chunk);
        size_t layers = block.layers + block.predictions, moe_layers = block.moe_layers + block.predictions;
        if (spw_pipeline_is_pair(p, stage, i)) {
            /* each layer that ran forward takes the place of one that ran backward, so that one is there more at first */
            const spw_pass other = spw_pipeline_pass(p, stage, i + 1);
            const spw_block gone = other.chunk < KNOWN_BLOCKS
                                       ? known[other.chunk]
                                       : spw_pipeline_block(p, model, stage, other.chunk);
            const size_t given = gone.layers + gone.predictions,
                         given_moe = gone.moe_layers + gone.predictions;
            const size_t most = now + (layers > given ? layers - given
                                       : layers > 0   ? 1
                                                      : 0),
                         most_moe = now_moe + (moe_layers > given_moe ? moe_layers - given_moe
                                               : moe_layers > 0       ? 1
                                                                      : 0);
            if (most > out.kept_layers) out.kept_layers = most, out.kept_moe_layers = most_moe;
            now += layers, now_moe += moe_layers;
            continue;
        }
        now = pass.backward ? now - layers : now + layers;
        now_moe = pass.backward ? now_moe - moe_layers : now_moe + moe_layers;
        if (now < out.kept_layers || (now == out.kept_layers && now_moe <= out.kept_moe_layers)) continue;
        out.kept_layers = now;
        out.kept_moe_layers = now_moe;
    }
    return out;
}
