/* Routing that follows a requested distribution, from a seed. The same seed gives the same bytes on any
 * number of threads: every (step, layer, source rank) draws from a stream of its own.
 *
 * What "requested" means: a distribution gives each expert a popularity p[x] (sum 1). A token makes top_k
 * different choices, so expert x is chosen by a token with the inclusion probability pi[x] = min(1, c p[x]),
 * c such that the sum over x of pi[x] is top_k, and the sampling is such that this holds exactly: E[tokens
 * that chose x] = tokens * pi[x], with a variance of tokens * pi[x] (1 - pi[x]) (tokens are independent up to
 * the order in which experts are visited). It is systematic sampling of unequal probabilities over a randomly
 * permuted list (Madow 1949, Ann. Math. Stat. 20, 333; Hartley and Rao 1962, Ann. Math. Stat. 33, 350); for
 * equal probabilities it is a simple random sample without replacement. The slots of a token are in no order
 * of preference. */
#ifndef SPW_TRACES_GENERATE_GENERATE_H
#define SPW_TRACES_GENERATE_GENERATE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum spw_popularity {
    SPW_UNIFORM,
    SPW_ZIPF,
    SPW_LOGNORMAL,
    SPW_DIRICHLET,
    SPW_REFERENCE
} spw_popularity;

/* A popularity and what is done to it. Zero switches a feature off. */
typedef struct spw_distribution {
    spw_popularity popularity;
    /* zipf: p of the i-th most popular expert is proportional to i^-exponent; reference: to load[i]^exponent
     * (traces/generate/reference_loads.h) */
    double exponent;
    double sigma; /* lognormal: standard deviation of log p */
    double alpha; /* dirichlet: concentration, the same for every expert */
    /* hot rank: the experts of expert-parallel rank `hot_rank` of `hot_ranks` get `share` of all choices */
    double share, hot_rank, hot_ranks;
    /* group-limited (DeepSeek): a token first picks `kept` of `groups` consecutive groups of experts, then
     * top_k experts inside them; pi[x] = gamma[group] * q[x], gamma = min(1, c P[group]), sum kept; q =
     * min(1, c' p[x]) inside the group, sum top_k / kept. groups 0: no such limit; groups_said: by a key */
    double groups, kept;
    bool groups_said;
    double drift; /* standard deviation of the change of log p from one step to the next (random walk) */
    /* collapse: log p += concentration z[x], z normal; the concentration rises from 0 to `peak` over the
     * first `rise` steps and then falls by exp(-1) every `recovery` steps */
    double peak, rise, recovery;
    /* hot set: `hot` experts (below 1: that share of all, at least top_k) from `first` on, every `stride`-th (below 1,
     * `first` is a share of all, too). The share `heat` of the tokens chooses in the set alone, alike; the others as the
     * popularity says. A set smaller than top_k is chosen whole, and the rest alike. Every `turn` steps the set moves on by
     * its width; with `burst`, only the last of every `burst` steps is hot. With `violation` V every expert of the set has
     * 1 + V times the mean load instead (MaxVio, Wang et al. 2024), and the others share the rest alike. */
    double hot, heat, stride, first, turn, burst, violation;
    /* Hash layers (traces/generate/hash_routing.h): the first `hash` of the layers, all where there are fewer, choose by the token's id alone.
     * The i-th of `vocabulary` ids has a frequency proportional to i^-words. The other layers follow the rest. */
    double hash, vocabulary, words;
    double even; /* not 0: tokens take the experts in turn, so that every expert has the same load */
} spw_distribution;

/* "NAME[:key=value,...]": balanced (or uniform), reference, zipf, lognormal, dirichlet, hot-rank, group-limited, drift, collapse, k-hot,
 * max-violation, hash, megatron-w0 to w7 (NVIDIA/Megatron-LM, pull request 7488, benchmarks/moe/token_imbalance). A name sets
 * defaults, any key overrides: popularity=NAME, exponent, sigma, alpha, share, rank, ranks, groups, kept, drift, peak, rise,
 * recovery, hot, heat, stride, first, turn, burst, violation, hash, vocabulary, words. SPW_EARG says which names or keys there are, also when a key belongs to another
 * popularity or to what is switched off. */
SPW_MUST_CHECK spw_status spw_distribution_parse(const char *text, spw_distribution *out);

/* Limits every token to `kept` of `groups` groups of experts, as a model's router does; not where the text said `groups` itself, nor of
 * a hot rank, a hot set or even loads, which name their experts. Says whether it did. */
bool spw_distribution_limit(spw_distribution *distribution, size_t groups, size_t kept);

/* Name of the i-th distribution; NULL: there are no more. */
const char *spw_distribution_name(size_t i);
const char *spw_distribution_help(size_t i); /* one line of what it is */

/* Steps, from the first on, that show what the distribution does: 1 where no step differs from another; the rise of a
 * collapse and three times its recovery, which leaves a twentieth; SPW_DRIFT_STEPS of a drift, which has no end. */
enum { SPW_DRIFT_STEPS = 16 };
double spw_distribution_steps(const spw_distribution *distribution);

/* Experts of the hot set; 0: there is none. */
double spw_distribution_hot(const spw_distribution *distribution, size_t experts, size_t top_k);

/* The one key of a family that says how uneven it is, and between which values it goes with so many experts and choices. */
typedef struct spw_severity {
    const char *key;
    double low, high; /* low: as even as the family gets */
    double given;     /* what the text says of the key; NAN: nothing */
} spw_severity;
/* SPW_EARG for a family without one. */
SPW_MUST_CHECK spw_status spw_distribution_severity(const char *text, size_t experts, size_t top_k,
                                                    spw_severity *out);

/* The same text with `key` at that value. SPW_EARG where it does not fit into `size`. */
SPW_MUST_CHECK spw_status spw_distribution_at(const char *text, const char *key, double value, char *out,
                                              size_t size);

typedef struct spw_generate_settings {
    size_t experts, top_k, layers, steps, ranks, tokens_per_rank;
    int32_t first_layer;    /* index of the first MoE layer in the model */
    size_t sequence_length; /* 0: tokens_per_rank */
    size_t hidden, ffn;     /* recorded; 0 = not said */
    bool counts_only;
    spw_distribution distribution;
    const double *
        id_weight; /* [distribution.vocabulary] or NULL: frequencies of the ids of hash layers, in place of `words` */
    uint64_t seed;
    const char *distribution_text, *generator; /* recorded in the file */
    int level;                                 /* as in spw_trace_write_settings; 0 = 4 */
} spw_generate_settings;

typedef struct spw_count_law spw_count_law;
typedef struct spw_count_tree spw_count_tree;
typedef struct spw_generator spw_generator; /* the state of the popularities, step by step */

/* SPW_EARG when the distribution cannot be had with these experts and top_k. `settings` must outlive it. */
SPW_MUST_CHECK spw_status spw_generator_create(const spw_generate_settings *settings, spw_generator **out);
void spw_generator_destroy(spw_generator *generator); /* NULL is fine */
/* Moves to a step; backwards starts over. A new generator is at step 0. */
void spw_generator_seek(spw_generator *generator, size_t step);
/* inclusion [experts]: the requested pi of a layer at this step. */
void spw_generator_inclusion(spw_generator *generator, size_t layer, double *inclusion);
/* expert_id [ranks * tokens_per_rank][top_k], rank-major. */
SPW_MUST_CHECK spw_status spw_generator_record(spw_generator *generator, size_t layer, uint16_t *expert_id);
/* The same in bytes, of at most 256 experts. */
SPW_MUST_CHECK spw_status spw_generator_record_bytes(spw_generator *generator, size_t layer,
                                                     uint8_t *expert_id);

/* The law by which tokens of a layer choose at this step (traces/generate/count_tree.h), for consecutive experts on ranks and nodes. false
 * for layers whose tokens follow another: hash layers, experts in turn. Valid until the next call. */
bool spw_generator_count_law(spw_generator *generator, size_t layer, size_t rank_experts, size_t node_experts,
                             spw_count_law *out);
/* Its tree. *out is NULL where there is none, and where no tree can be made. */
SPW_MUST_CHECK spw_status spw_generator_count_tree(spw_generator *generator, size_t layer,
                                                   size_t rank_experts, size_t node_experts,
                                                   spw_count_tree **out);

/* How uneven the requested loads are, of the worst step and layer: `max_over_mean` of the `ranks` parts of consecutive experts
 * (which must divide the experts), and `max_violation` of the experts, the most loaded over the mean, less 1. */
SPW_MUST_CHECK spw_status spw_generator_skew(const spw_generate_settings *settings, size_t ranks,
                                             double *max_over_mean, double *max_violation);

/* Writes a whole trace. */
SPW_MUST_CHECK spw_status spw_generate_trace(const spw_generate_settings *settings, const char *path);

/* Tokens whose histogram is exactly `count` [experts]: sum = tokens * top_k, every count <= tokens, the
 * experts of a token distinct. A systematic filling (one always exists: Gale 1957, Ryser 1957), then mixed by
 * random exchanges between pairs of tokens ("curveball", Strona et al. 2014, Nat. Commun. 5, 4114), which
 * keep the histogram. expert_id [tokens][top_k] is a function of the arguments alone. Any thread may call it. */
SPW_MUST_CHECK spw_status spw_compose_tokens(const uint32_t *count, size_t experts, size_t tokens,
                                             size_t top_k, uint64_t seed, uint16_t *expert_id);

#endif
