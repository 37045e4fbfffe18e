#include "traces/generate/generate.h"

#include "base/memory.h"
#include "traces/generate/count_tree.h"
#include "traces/generate/hash_routing.h"
#include "traces/generate/random_stream.h"
#include "traces/generate/reference_loads.h"
#include "traces/generate/sample.h"
#include "traces/trace.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_randist.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { PURPOSE_BASE = 1, PURPOSE_WALK = 2, PURPOSE_COLLAPSE = 3, PURPOSE_TOKENS = 4 };

struct spw_generator {
    const spw_generate_settings *settings;
    size_t step;
    double *base, *log_popularity; /* [layers][experts] at step 0; at this step, without the collapse */
    double *inside, *of_group;     /* [experts], [groups]: scratch */
    spw_hash_routing *hash;        /* of the first hash_layers; NULL: there are none */
    size_t hash_layers;
};

/* log p of one layer at step 0: a popularity whose order over the experts is random. */
static spw_status draw_base(const spw_generate_settings *settings, size_t layer, double *log_p) {
    const spw_distribution *distribution = &settings->distribution;
    size_t experts = settings->experts;
    spw_random_stream stream;
    spw_status status = SPW_OK;
    double *alpha = NULL, *p = NULL;
    spw_random_stream_init(&stream, settings->seed, PURPOSE_BASE, layer, 0, 0);
    for (size_t i = 0; i < experts; i++) {
        if (distribution->popularity == SPW_ZIPF) log_p[i] = -distribution->exponent * log((double)(i + 1));
        if (distribution->popularity == SPW_LOGNORMAL)
            log_p[i] = gsl_ran_gaussian(&stream.rng, distribution->sigma);
    }
    if (distribution->popularity == SPW_REFERENCE) {
        spw_reference_loads(layer, experts, log_p);
        for (size_t i = 0; i < experts; i++) log_p[i] = distribution->exponent * log(log_p[i]);
    }
    if (distribution->popularity == SPW_ZIPF || distribution->popularity == SPW_REFERENCE)
        gsl_ran_shuffle(&stream.rng, log_p, experts, sizeof *log_p);
    if (distribution->popularity == SPW_DIRICHLET) {
        SPW_TRY(SPW_ALLOC(experts, &alpha));
        SPW_TRY(SPW_ALLOC(experts, &p));
        for (size_t i = 0; i < experts; i++) alpha[i] = distribution->alpha;
        gsl_ran_dirichlet(&stream.rng, experts, alpha, p);
        for (size_t i = 0; i < experts; i++) log_p[i] = log(p[i] > 1e-12 ? p[i] : 1e-12);
    }

cleanup:
    spw_free(alpha);
    spw_free(p);
    return status;
}

static spw_status check_hot_set(const spw_generate_settings *settings) {
    const spw_distribution *d = &settings->distribution;
    const double experts = (double)settings->experts, top_k = (double)settings->top_k;
    const double hot = spw_distribution_hot(d, settings->experts, settings->top_k);
    const double most = fmin(experts / top_k, experts / hot) - 1.0;
    if (hot > experts || d->stride * (hot - 1.0) >= experts || d->first >= experts)
        return spw_fail(SPW_EARG,
                        "a hot set of %g experts, every %g-th from %g on, does not go into %zu experts", hot,
                        d->stride, d->first, settings->experts);
    if (d->share > 0.0 || d->groups > 0.0)
        return spw_fail(SPW_EARG, "a hot set does not go with share or groups; write one of them");
    if (d->violation > most * (1.0 + 1e-12))
        return spw_fail(
            SPW_EARG,
            "violation %g cannot be: %g experts of %zu, of which a token chooses %zu, have at most %g",
            d->violation, hot, settings->experts, settings->top_k, most);
    return SPW_OK;
}

static spw_status check_settings(const spw_generate_settings *settings) {
    const spw_distribution *d = &settings->distribution;
    size_t experts = settings->experts, top_k = settings->top_k, groups = (size_t)d->groups,
           kept = (size_t)d->kept;
    size_t hot_ranks = (size_t)d->hot_ranks;
    if (experts < 1 || experts > SPW_TRACE_MAX_EXPERTS || top_k < 1 || top_k > experts ||
        top_k > SPW_TRACE_MAX_TOP_K) {
        return spw_fail(SPW_EARG,
                        "top_k %zu of %zu experts; must be 1 to %d of at most %d, and at most the experts",
                        top_k, experts, SPW_TRACE_MAX_TOP_K, SPW_TRACE_MAX_EXPERTS);
    }
    if (settings->layers < 1 || settings->layers > SPW_TRACE_MAX_LAYERS || settings->steps < 1 ||
        settings->ranks < 1 || settings->ranks > SPW_TRACE_MAX_RANKS || settings->tokens_per_rank < 1) {
        return spw_fail(
            SPW_EARG,
            "%zu layers, %zu steps, %zu ranks, %zu tokens per rank; must be at least 1 of each, at most "
            "%d layers and %d ranks",
            settings->layers, settings->steps, settings->ranks, settings->tokens_per_rank,
            SPW_TRACE_MAX_LAYERS, SPW_TRACE_MAX_RANKS);
    }
    if (groups > 0 &&
        (experts % groups != 0 || kept < 1 || kept > groups || top_k > kept * (experts / groups))) {
        return spw_fail(SPW_EARG, "%zu of %zu groups cannot give top_k %zu of %zu experts", kept, groups,
                        top_k, experts);
    }
    if (d->hot > 0.0) {
        const spw_status status = check_hot_set(settings);
        if (status != SPW_OK) return status;
    }
    if (d->share > 0.0) {
        if (hot_ranks < 1 || experts % hot_ranks != 0 || d->hot_rank >= d->hot_ranks || groups > 0) {
            return spw_fail(SPW_EARG,
                            "hot rank %g of %zu cannot be: %zu experts must divide evenly, without groups",
                            d->hot_rank, hot_ranks, experts);
        }
        size_t per_rank = experts / hot_ranks;
        double hot = d->share * (double)top_k, local = (double)per_rank;
        if (hot > local || (double)top_k - hot > (double)experts - local) {
            return spw_fail(SPW_EARG,
                            "share %g of top_k %zu is %g choices a token; a rank has %g of %zu experts",
                            d->share, top_k, hot, local, experts);
        }
    }
    return SPW_OK;
}

static spw_status create_hash(const spw_generate_settings *settings, spw_generator *generator) {
    const spw_distribution *d = &settings->distribution;
    generator->hash_layers =
        fmin(d->hash, (double)settings->layers) > 0.0 ? (size_t)fmin(d->hash, (double)settings->layers) : 0;
    if (generator->hash_layers == 0) return SPW_OK;
    const spw_hash_settings hash = {.experts = settings->experts,
                                    .top_k = settings->top_k,
                                    .layers = generator->hash_layers,
                                    .vocabulary = (size_t)d->vocabulary,
                                    .exponent = d->words,
                                    .weight = settings->id_weight,
                                    .seed = settings->seed};
    return spw_hash_routing_create(&hash, &generator->hash);
}

spw_status spw_generator_create(const spw_generate_settings *settings, spw_generator **out) {
    spw_status status = SPW_OK;
    spw_generator *generator = NULL;
    *out = NULL;
    (void)gsl_set_error_handler_off();
    SPW_TRY(check_settings(settings));
    SPW_TRY(SPW_ALLOC(1, &generator));
    generator->settings = settings;
    size_t count = settings->layers * settings->experts;
    SPW_TRY(SPW_ALLOC(count, &generator->base));
    SPW_TRY(SPW_ALLOC(count, &generator->log_popularity));
    SPW_TRY(SPW_ALLOC(settings->experts, &generator->inside));
    SPW_TRY(SPW_ALLOC(settings->experts, &generator->of_group));
    for (size_t layer = 0; layer < settings->layers; layer++) {
        SPW_TRY(draw_base(settings, layer, generator->base + layer * settings->experts));
    }
    memcpy(generator->log_popularity, generator->base, count * sizeof *generator->base);
    SPW_TRY(create_hash(settings, generator));
    *out = generator;
    generator = NULL;

cleanup:
    spw_generator_destroy(generator);
    return status;
}

void spw_generator_destroy(spw_generator *generator) {
    if (generator == NULL) return;
    spw_free(generator->base);
    spw_free(generator->log_popularity);
    spw_free(generator->inside);
    spw_free(generator->of_group);
    spw_hash_routing_destroy(generator->hash);
    spw_free(generator);
}

/* Adds the change of log p that leads to `step`. */
static void walk(spw_generator *generator, size_t step) {
    const spw_generate_settings *settings = generator->settings;
    for (size_t layer = 0; layer < settings->layers; layer++) {
        spw_random_stream stream;
        double *log_p = generator->log_popularity + layer * settings->experts;
        spw_random_stream_init(&stream, settings->seed, PURPOSE_WALK, step, layer, 0);
        for (size_t i = 0; i < settings->experts; i++) {
            log_p[i] += gsl_ran_gaussian(&stream.rng, settings->distribution.drift);
        }
    }
}

void spw_generator_seek(spw_generator *generator, size_t step) {
    const spw_generate_settings *settings = generator->settings;
    if (step < generator->step) {
        memcpy(generator->log_popularity, generator->base,
               settings->layers * settings->experts * sizeof *generator->base);
        generator->step = 0;
    }
    while (generator->step < step) {
        generator->step++;
        if (settings->distribution.drift > 0.0) walk(generator, generator->step);
    }
}

static double concentration(const spw_distribution *distribution, size_t step) {
    double at = (double)step;
    if (at < distribution->rise) return distribution->peak * at / distribution->rise;
    return distribution->peak * exp(-(at - distribution->rise) / distribution->recovery);
}

/* p[x] > 0 becomes min(1, c p[x]) with the sum `total`; p[x] = 0 stays. At least `total` of them must be > 0. */
static void scale_to(double *p, size_t count, double total) {
    size_t capped = 0;
    for (bool again = true; again;) {
        double sum = 0.0;
        again = false;
        for (size_t i = 0; i < count; i++) sum += p[i] < 1.0 ? p[i] : 0.0;
        if (!(sum > 0.0)) return;
        double scale = (total - (double)capped) / sum;
        for (size_t i = 0; i < count; i++) {
            if (p[i] < 1.0 && p[i] * scale >= 1.0) {
                p[i] = 1.0;
                capped++;
                again = true;
            }
        }
        for (size_t i = 0; !again && i < count; i++) {
            if (p[i] < 1.0) p[i] *= scale;
        }
    }
}

/* generator->inside = the popularity of a layer, sum 1, nothing quite 0. */
static void popularity(spw_generator *generator, size_t layer) {
    const spw_generate_settings *settings = generator->settings;
    const double *log_p = generator->log_popularity + layer * settings->experts;
    double *p = generator->inside, most = -INFINITY, sum = 0.0;
    double strength =
        settings->distribution.peak > 0.0 ? concentration(&settings->distribution, generator->step) : 0.0;
    spw_random_stream stream;
    spw_random_stream_init(&stream, settings->seed, PURPOSE_COLLAPSE, layer, 0, 0);
    for (size_t i = 0; i < settings->experts; i++) {
        p[i] = log_p[i] + (strength > 0.0 ? strength * gsl_ran_gaussian(&stream.rng, 1.0) : 0.0);
        if (p[i] > most) most = p[i];
    }
    for (size_t i = 0; i < settings->experts; i++) {
        p[i] = exp(p[i] - most) + 1e-12;
        sum += p[i];
    }
    for (size_t i = 0; i < settings->experts; i++)
        p[i] *= 0.5 / sum; /* below 1: scale_to() takes 1 for capped */
}

static void include_hot_rank(spw_generator *generator) {
    const spw_generate_settings *settings = generator->settings;
    const spw_distribution *distribution = &settings->distribution;
    size_t local = settings->experts / (size_t)distribution->hot_ranks;
    size_t first = (size_t)distribution->hot_rank * local;
    double *rest = generator->inside, *hot = generator->of_group, total = (double)settings->top_k;
    memcpy(hot, rest + first, local * sizeof *hot);
    memset(rest + first, 0, local * sizeof *rest);
    scale_to(hot, local, distribution->share * total);
    scale_to(rest, settings->experts, (1.0 - distribution->share) * total);
    memcpy(rest + first, hot, local * sizeof *hot);
}

/* The share of the tokens that choose in the hot set at this step. */
static double heat_of(const spw_distribution *d, size_t step) {
    const size_t burst = (size_t)d->burst;
    return burst > 0 && step % burst != burst - 1 ? 0.0 : d->heat;
}

/* generator->inside = the inclusion with the hot set; before, that without it. */
static void include_hot_set(spw_generator *generator) {
    const spw_generate_settings *settings = generator->settings;
    const spw_distribution *d = &settings->distribution;
    const size_t experts = settings->experts, turn = (size_t)d->turn;
    const double total = (double)settings->top_k, all = (double)experts;
    const double hot = spw_distribution_hot(d, experts, settings->top_k), cold = all - hot;
    const bool heated = d->violation == 0.0;
    const double burst = d->burst > 0.0 && heat_of(d, generator->step) == 0.0 ? 0.0 : d->violation;
    const double in = heated ? fmin(1.0, total / hot) : (1.0 + burst) * total / all;
    const double out = cold > 0.0 ? fmax(0.0, total - hot * in) / cold : 0.0;
    const double share = heated ? heat_of(d, generator->step) : 1.0;
    const size_t moved = turn > 0 ? generator->step / turn * (size_t)hot : 0;
    const size_t first = (size_t)(d->first < 1.0 ? floor(d->first * all) : d->first);
    double *p = generator->inside;
    if (experts == 0) return; /* check_settings refuses it */
    for (size_t i = 0; i < experts; i++) p[i] = (1.0 - share) * p[i] + share * out;
    for (size_t i = 0; i < (size_t)hot; i++)
        p[(first + moved + i * (size_t)d->stride) % experts] += share * (in - out);
    for (size_t i = 0; i < experts; i++)
        p[i] = fmin(1.0, fmax(0.0, p[i])); /* sums of shares may be off by a rounding */
}

/* generator->inside, of_group = what the sampler of this layer needs. */
static void include(spw_generator *generator, size_t layer) {
    const spw_generate_settings *settings = generator->settings;
    const spw_distribution *distribution = &settings->distribution;
    size_t groups = (size_t)distribution->groups;
    double *p = generator->inside, total = (double)settings->top_k;
    popularity(generator, layer);
    if (distribution->share > 0.0) {
        include_hot_rank(generator);
    } else if (groups > 0) {
        size_t size = settings->experts / groups;
        for (size_t i = 0; i < groups; i++) {
            generator->of_group[i] = 0.0;
            for (size_t j = 0; j < size; j++) generator->of_group[i] += p[i * size + j];
            scale_to(p + i * size, size, total / distribution->kept);
        }
        scale_to(generator->of_group, groups, distribution->kept);
    } else {
        scale_to(p, settings->experts, total);
        if (distribution->hot > 0.0) include_hot_set(generator);
    }
}

void spw_generator_inclusion(spw_generator *generator, size_t layer, double *inclusion) {
    const spw_generate_settings *settings = generator->settings;
    const size_t groups = (size_t)settings->distribution.groups;
    const size_t size = groups > 0 ? settings->experts / groups : 0; /* of a group */
    if (layer < generator->hash_layers) {
        memcpy(inclusion, spw_hash_routing_inclusion(generator->hash, layer),
               settings->experts * sizeof *inclusion);
        return;
    }
    include(generator, layer);
    for (size_t i = 0; i < settings->experts; i++) {
        const double of_group = size > 0 ? generator->of_group[i / size] : 1.0;
        inclusion[i] = generator->inside[i] * of_group;
    }
}

/* Every rank begins with expert 0 and takes top_k after top_k. */
static void take_turns(const spw_generate_settings *settings, uint16_t *expert_id) {
    const size_t choices = settings->tokens_per_rank * settings->top_k;
    for (size_t rank = 0; rank < settings->ranks; rank++) {
        size_t next = 0;
        for (size_t i = 0; i < choices; i++) {
            expert_id[rank * choices + i] = (uint16_t)next;
            next = next + 1 < settings->experts ? next + 1 : 0;
        }
    }
}

static void narrow(const uint16_t *wide, size_t count, uint8_t *out) {
    for (size_t i = 0; i < count; i++) out[i] = (uint8_t)wide[i];
}

/* Draws every rank's tokens; with id_bytes 1 by way of a thread's own part of `wide`. */
static spw_status draw_ranks(spw_generator *generator, size_t layer, size_t id_bytes, void *expert_id) {
    const spw_generate_settings *settings = generator->settings;
    const size_t threads = (size_t)omp_get_max_threads(), step = generator->step,
                 choices = settings->tokens_per_rank * settings->top_k;
    spw_sampler *sampler = NULL;
    unsigned char *scratch = NULL;
    uint16_t *wide = NULL;
    spw_status status = SPW_OK;
    include(generator, layer);
    SPW_TRY(spw_sampler_create(generator->inside, settings->experts, settings->top_k, generator->of_group,
                               (size_t)settings->distribution.groups, (size_t)settings->distribution.kept,
                               &sampler));
    size_t scratch_bytes = (spw_sampler_scratch_bytes(sampler) + 63) / 64 * 64;
    SPW_TRY(SPW_ALLOC(threads * scratch_bytes, &scratch));
    if (id_bytes == 1) SPW_TRY(SPW_ALLOC(threads * choices, &wide));
#pragma omp parallel for schedule(static)
    for (size_t rank = 0; rank < settings->ranks; rank++) {
        const size_t thread = (size_t)omp_get_thread_num();
        uint16_t *into = id_bytes == 1 ? wide + thread * choices : (uint16_t *)expert_id + rank * choices;
        spw_random_stream stream;
        spw_random_stream_init(&stream, settings->seed, PURPOSE_TOKENS, step, layer, rank);
        spw_sampler_draw(sampler, &stream, scratch + thread * scratch_bytes, settings->tokens_per_rank, into);
        if (id_bytes == 1) narrow(into, choices, (uint8_t *)expert_id + rank * choices);
    }

cleanup:
    spw_free(wide);
    spw_free(scratch);
    spw_sampler_destroy(sampler);
    return status;
}

spw_status spw_generator_record(spw_generator *generator, size_t layer, uint16_t *expert_id) {
    const spw_generate_settings *settings = generator->settings;
    if (layer < generator->hash_layers)
        return spw_hash_routing_record(generator->hash, layer, generator->step, settings->ranks,
                                       settings->tokens_per_rank, expert_id);
    if (settings->distribution.even == 0.0) return draw_ranks(generator, layer, 2, expert_id);
    take_turns(settings, expert_id);
    return SPW_OK;
}

spw_status spw_generator_record_bytes(spw_generator *generator, size_t layer, uint8_t *expert_id) {
    const spw_generate_settings *settings = generator->settings;
    const size_t choices = settings->ranks * settings->tokens_per_rank * settings->top_k;
    uint16_t *wide = NULL;
    spw_status status = SPW_OK;
    if (layer >= generator->hash_layers && settings->distribution.even == 0.0)
        return draw_ranks(generator, layer, 1, expert_id);
    SPW_TRY(SPW_ALLOC(choices, &wide));
    SPW_TRY(spw_generator_record(generator, layer, wide));
    narrow(wide, choices, expert_id);

cleanup:
    spw_free(wide);
    return status;
}

bool spw_generator_count_law(spw_generator *generator, size_t layer, size_t rank_experts, size_t node_experts,
                             spw_count_law *out) {
    const spw_generate_settings *settings = generator->settings;
    if (layer < generator->hash_layers || settings->distribution.even != 0.0) return false;
    include(generator, layer);
    *out = (spw_count_law){.experts = settings->experts,
                           .top_k = settings->top_k,
                           .inclusion = generator->inside,
                           .groups = (size_t)settings->distribution.groups,
                           .kept = (size_t)settings->distribution.kept,
                           .group_inclusion = generator->of_group,
                           .rank_experts = rank_experts,
                           .node_experts = node_experts};
    return true;
}

spw_status spw_generator_count_tree(spw_generator *generator, size_t layer, size_t rank_experts,
                                    size_t node_experts, spw_count_tree **out) {
    spw_count_law law;
    *out = NULL;
    if (!spw_generator_count_law(generator, layer, rank_experts, node_experts, &law)) return SPW_OK;
    return spw_count_tree_create(&law, out);
}
