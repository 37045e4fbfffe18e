/* Names and keys of the distributions, one row each. */
#include "traces/generate.h"

#include "base/text.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    spw_distribution value;
} names[] = {
    {"uniform", {.popularity = SPW_UNIFORM}},
    {"zipf", {.popularity = SPW_ZIPF, .exponent = 1.0}},
    {"lognormal", {.popularity = SPW_LOGNORMAL, .sigma = 0.5}},
    {"dirichlet", {.popularity = SPW_DIRICHLET, .alpha = 4.0}},
    {"hot-rank", {.popularity = SPW_UNIFORM, .share = 0.25, .hot_rank = 0, .hot_ranks = 8}},
    {"group-limited", {.popularity = SPW_UNIFORM, .groups = 8, .kept = 4}},
    {"drift", {.popularity = SPW_LOGNORMAL, .sigma = 0.5, .drift = 0.1}},
    {"collapse", {.popularity = SPW_UNIFORM, .peak = 3.0, .rise = 2.0, .recovery = 4.0}},
};

/* Defaults of a popularity named by a key. */
static const struct {
    const char *name;
    spw_popularity value;
} popularities[] = {
    {"uniform", SPW_UNIFORM}, {"zipf", SPW_ZIPF}, {"lognormal", SPW_LOGNORMAL}, {"dirichlet", SPW_DIRICHLET}};

enum { ANY = -1 };

/* A key does nothing with another popularity, or while the number `beside` it is 0. */
static const struct {
    const char *key;
    size_t offset;
    double least, most;
    bool whole;
    int popularity;
    const char *beside;
    size_t beside_offset;
} keys[] = {
#define KEY(key, field, least, most, whole, popularity) \
    { key, offsetof(spw_distribution, field), least, most, whole, popularity, NULL, 0 }
#define KEY_BESIDE(key, field, least, most, whole, beside) \
    { \
        key, offsetof(spw_distribution, field), least, most, whole, ANY, #beside, \
            offsetof(spw_distribution, beside) \
    }
    KEY("exponent", exponent, 0.0, 10.0, false, SPW_ZIPF),
    KEY("sigma", sigma, 0.0, 10.0, false, SPW_LOGNORMAL),
    KEY("alpha", alpha, 1e-3, 1e6, false, SPW_DIRICHLET),
    KEY("share", share, 0.0, 1.0, false, ANY),
    KEY_BESIDE("rank", hot_rank, 0.0, 65535.0, true, share),
    KEY_BESIDE("ranks", hot_ranks, 1.0, 65536.0, true, share),
    KEY("groups", groups, 1.0, 65535.0, true, ANY),
    KEY_BESIDE("kept", kept, 1.0, 65535.0, true, groups),
    KEY("drift", drift, 0.0, 10.0, false, ANY),
    KEY("peak", peak, 0.0, 20.0, false, ANY),
    KEY_BESIDE("rise", rise, 0.0, 1e9, false, peak),
    KEY_BESIDE("recovery", recovery, 1e-3, 1e9, false, peak),
#undef KEY
#undef KEY_BESIDE
};

enum { NAMES = sizeof names / sizeof *names, KEYS = sizeof keys / sizeof *keys, POPULARITIES = 4 };

static bool same(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static spw_status set_popularity(const char *value, size_t length, spw_distribution *out) {
    for (size_t i = 0; i < POPULARITIES; i++) {
        if (!same(value, length, popularities[i].name)) continue;
        out->popularity = popularities[i].value;
        if (out->exponent == 0.0) out->exponent = names[1].value.exponent;
        if (out->sigma == 0.0) out->sigma = names[2].value.sigma;
        if (out->alpha == 0.0) out->alpha = names[3].value.alpha;
        return SPW_OK;
    }
    return spw_fail(SPW_EARG, "popularity '%.*s'; must be uniform, zipf, lognormal or dirichlet", (int)length,
                    value);
}

/* "key=value" of `length` characters; given [KEYS] notes the key. */
static spw_status set_key(const char *text, size_t length, bool *given, spw_distribution *out) {
    const char *equals = memchr(text, '=', length);
    size_t key_length = equals != NULL ? (size_t)(equals - text) : length;
    if (equals != NULL && same(text, key_length, "popularity")) {
        return set_popularity(equals + 1, length - key_length - 1, out);
    }
    for (size_t i = 0; equals != NULL && i < KEYS; i++) {
        if (!same(text, key_length, keys[i].key)) continue;
        if (given[i]) return spw_fail(SPW_EARG, "'%s' is given twice", keys[i].key);
        char *end = NULL;
        double value = spw_text_number(equals + 1, &end);
        bool good =
            end == text + length && end > equals + 1 && value >= keys[i].least && value <= keys[i].most;
        if (!good || (keys[i].whole && value != floor(value))) {
            return spw_fail(SPW_EARG, "'%.*s': must be %s of %g to %g", (int)length, text,
                            keys[i].whole ? "a whole number" : "a number", keys[i].least, keys[i].most);
        }
        memcpy((char *)out + keys[i].offset, &value, sizeof value);
        given[i] = true;
        return SPW_OK;
    }
    return spw_fail(
        SPW_EARG,
        "'%.*s': must be KEY=VALUE with popularity, exponent, sigma, alpha, share, rank, ranks, groups, "
        "kept, drift, peak, rise or recovery",
        (int)length, text);
}

/* Keys that another popularity has, or that miss what they belong to. */
static spw_status check_keys(const bool *given, const spw_distribution *d) {
    const char *popularity = popularities[d->popularity].name;
    char list[128] = "popularity";
    for (size_t i = 0; i < KEYS; i++) {
        const size_t used = strlen(list);
        if (keys[i].popularity == ANY || keys[i].popularity == (int)d->popularity)
            (void)snprintf(list + used, sizeof list - used, ", %s", keys[i].key);
    }
    for (size_t i = 0; i < KEYS; i++) {
        double beside = 1.0;
        if (!given[i]) continue;
        if (keys[i].popularity != ANY && keys[i].popularity != (int)d->popularity)
            return spw_fail(SPW_EARG, "popularity %s has no %s; its keys are %s", popularity, keys[i].key,
                            list);
        if (keys[i].beside != NULL) memcpy(&beside, (const char *)d + keys[i].beside_offset, sizeof beside);
        if (!(beside > 0.0))
            return spw_fail(SPW_EARG, "'%s' does nothing without '%s'", keys[i].key, keys[i].beside);
    }
    return SPW_OK;
}

spw_status spw_distribution_parse(const char *text, spw_distribution *out) {
    size_t length = strcspn(text, ":"), i = 0;
    while (i < NAMES && !same(text, length, names[i].name)) i++;
    if (i == NAMES) {
        return spw_fail(
            SPW_EARG,
            "distribution '%.*s'; must be uniform, zipf, lognormal, dirichlet, hot-rank, group-limited, "
            "drift or collapse",
            (int)length, text);
    }
    *out = names[i].value;
    const char *at = text + length;
    bool given[KEYS] = {false};
    spw_status status = SPW_OK;
    while (*at != '\0') {
        at++; /* ':' or ',' */
        size_t part = strcspn(at, ",");
        status = set_key(at, part, given, out);
        if (status != SPW_OK) return spw_fail_within(status, "distribution %s", text);
        at += part;
    }
    status = check_keys(given, out);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "distribution %s", text);
}

double spw_distribution_steps(const spw_distribution *d) {
    const double collapse = d->peak > 0.0 ? 1.0 + ceil(d->rise) + ceil(3.0 * d->recovery) : 1.0;
    return d->drift > 0.0 ? fmax(collapse, SPW_DRIFT_STEPS) : collapse;
}
