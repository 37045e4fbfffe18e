#include "traces/generate/hash_routing.h"

#include "base/memory.h"
#include "traces/generate/random_stream.h"

#include <math.h>
#include <omp.h>

enum { PURPOSE_TABLE = 5, PURPOSE_IDS = 6 };    /* generate.c has 1 to 4 */
static const double WHOLE = 9007199254740992.0; /* 2^53 */

struct spw_hash_routing {
    spw_hash_settings settings;
    double *below;     /* [vocabulary] frequency of this id and those before it; the last is 1 */
    double *inclusion; /* [layers][experts] */
};

/* below = running sum of the frequencies, scaled to end in 1. */
static spw_status add_up(const spw_hash_settings *s, double *below) {
    double sum = 0.0;
    for (size_t i = 0; i < s->vocabulary; i++) {
        const double weight = s->weight != NULL ? s->weight[i] : pow((double)(i + 1), -s->exponent);
        if (!(weight >= 0.0 && weight < INFINITY))
            return spw_fail(SPW_EARG, "id %zu has the frequency %g; it must be a number of 0 or more", i,
                            weight);
        sum += weight;
        below[i] = sum;
    }
    if (!(sum > 0.0 && sum < INFINITY))
        return spw_fail(SPW_EARG, "the frequencies of %zu ids add up to %g; one at least must be above 0",
                        s->vocabulary, sum);
    for (size_t i = 0; i < s->vocabulary; i++) below[i] /= sum;
    below[s->vocabulary - 1] = 1.0;
    return SPW_OK;
}

void spw_hash_routing_row(const spw_hash_routing *hash, size_t layer, size_t id, uint16_t *expert_id) {
    const spw_hash_settings *s = &hash->settings;
    spw_random_stream stream;
    spw_random_stream_init(&stream, s->seed, PURPOSE_TABLE, layer, id, 0);
    /* Floyd: the k-th draw is below experts - top_k + k + 1; one that is taken stands for that bound's last (Bentley 1987) */
    for (size_t k = 0; k < s->top_k; k++) {
        const size_t last = s->experts - s->top_k + k;
        uint16_t expert = (uint16_t)spw_random_below(&stream, last + 1);
        for (size_t i = 0; i < k; i++)
            if (expert_id[i] == expert) {
                expert = (uint16_t)last;
                break;
            }
        expert_id[k] = expert;
    }
}

static spw_status include(spw_hash_routing *hash) {
    const spw_hash_settings *s = &hash->settings;
    uint16_t *row = NULL;
    const spw_status status = SPW_ALLOC(s->top_k, &row);
    for (size_t layer = 0; status == SPW_OK && layer < s->layers; layer++) {
        double *inclusion = hash->inclusion + layer * s->experts;
        for (size_t id = 0; id < s->vocabulary; id++) {
            const double frequency = hash->below[id] - (id > 0 ? hash->below[id - 1] : 0.0);
            spw_hash_routing_row(hash, layer, id, row);
            for (size_t k = 0; k < s->top_k; k++) inclusion[row[k]] += frequency;
        }
    }
    spw_free(row);
    return status;
}

spw_status spw_hash_routing_create(const spw_hash_settings *settings, spw_hash_routing **out) {
    spw_status status = SPW_OK;
    spw_hash_routing *hash = NULL;
    size_t cells = 0;
    *out = NULL;
    if (settings->vocabulary < 1 || settings->vocabulary > SPW_HASH_VOCABULARY)
        return spw_fail(SPW_EARG, "%zu ids; must be 1 to %d", settings->vocabulary, SPW_HASH_VOCABULARY);
    SPW_TRY(SPW_ALLOC(1, &hash));
    hash->settings = *settings;
    if (!spw_mul_size(settings->layers, settings->experts, &cells))
        SPW_TRY(spw_fail(SPW_EARG, "%zu layers x %zu experts overflow", settings->layers, settings->experts));
    SPW_TRY(SPW_ALLOC(settings->vocabulary, &hash->below));
    SPW_TRY(SPW_ALLOC(cells, &hash->inclusion));
    SPW_TRY(add_up(settings, hash->below));
    hash->settings.weight = NULL;
    SPW_TRY(include(hash));
    *out = hash;
    hash = NULL;

cleanup:
    spw_hash_routing_destroy(hash);
    return status;
}

void spw_hash_routing_destroy(spw_hash_routing *hash) {
    if (hash == NULL) return;
    spw_free(hash->below);
    spw_free(hash->inclusion);
    spw_free(hash);
}

const double *spw_hash_routing_inclusion(const spw_hash_routing *hash, size_t layer) {
    return hash->inclusion + layer * hash->settings.experts;
}

void spw_hash_routing_ids(const spw_hash_routing *hash, size_t step, size_t rank, size_t tokens,
                          uint32_t *id) {
    spw_random_stream stream;
    spw_random_stream_init(&stream, hash->settings.seed, PURPOSE_IDS, step, rank, 0);
    for (size_t t = 0; t < tokens; t++) {
        const double at = (double)(spw_random_next(&stream) >> 11) / WHOLE; /* [0, 1) */
        size_t low = 0, high = hash->settings.vocabulary - 1;               /* the first id with below > at */
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (hash->below[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        id[t] = (uint32_t)low;
    }
}

spw_status spw_hash_routing_record(const spw_hash_routing *hash, size_t layer, size_t step, size_t ranks,
                                   size_t tokens_per_rank, uint16_t *expert_id) {
    const size_t top_k = hash->settings.top_k;
    uint32_t *id = NULL;
    size_t cells = 0;
    if (!spw_mul_size((size_t)omp_get_max_threads(), tokens_per_rank, &cells))
        return spw_fail(SPW_EARG, "%zu tokens a rank overflow", tokens_per_rank);
    const spw_status status = SPW_ALLOC(cells, &id);
    if (status != SPW_OK) return status;
#pragma omp parallel for schedule(static)
    for (size_t rank = 0; rank < ranks; rank++) {
        uint32_t *const own = id + (size_t)omp_get_thread_num() * tokens_per_rank;
        spw_hash_routing_ids(hash, step, rank, tokens_per_rank, own);
        for (size_t t = 0; t < tokens_per_rank; t++)
            spw_hash_routing_row(hash, layer, own[t], expert_id + (rank * tokens_per_rank + t) * top_k);
    }
    spw_free(id);
    return SPW_OK;
}
