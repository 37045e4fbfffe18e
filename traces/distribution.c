/* Names and keys of the distributions, one row each. */
#include "traces/generate.h"

#include <math.h>
#include <stddef.h>
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

static const struct {
    const char *key;
    size_t offset;
    double least, most;
    bool whole;
} keys[] = {
    {"exponent", offsetof(spw_distribution, exponent), 0.0, 10.0, false},
    {"sigma", offsetof(spw_distribution, sigma), 0.0, 10.0, false},
    {"alpha", offsetof(spw_distribution, alpha), 1e-3, 1e6, false},
    {"share", offsetof(spw_distribution, share), 0.0, 1.0, false},
    {"rank", offsetof(spw_distribution, hot_rank), 0.0, 65535.0, true},
    {"ranks", offsetof(spw_distribution, hot_ranks), 1.0, 65536.0, true},
    {"groups", offsetof(spw_distribution, groups), 1.0, 65535.0, true},
    {"kept", offsetof(spw_distribution, kept), 1.0, 65535.0, true},
    {"drift", offsetof(spw_distribution, drift), 0.0, 10.0, false},
    {"peak", offsetof(spw_distribution, peak), 0.0, 20.0, false},
    {"rise", offsetof(spw_distribution, rise), 0.0, 1e9, false},
    {"recovery", offsetof(spw_distribution, recovery), 1e-3, 1e9, false},
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

/* "key=value" of `length` characters. */
static spw_status set_key(const char *text, size_t length, spw_distribution *out) {
    const char *equals = memchr(text, '=', length);
    size_t key_length = equals != NULL ? (size_t)(equals - text) : length;
    if (equals != NULL && same(text, key_length, "popularity")) {
        return set_popularity(equals + 1, length - key_length - 1, out);
    }
    for (size_t i = 0; equals != NULL && i < KEYS; i++) {
        if (!same(text, key_length, keys[i].key)) continue;
        char *end = NULL;
        double value = strtod(equals + 1, &end);
        bool good =
            end == text + length && end > equals + 1 && value >= keys[i].least && value <= keys[i].most;
        if (!good || (keys[i].whole && value != floor(value))) {
            return spw_fail(SPW_EARG, "'%.*s': must be %s of %g to %g", (int)length, text,
                            keys[i].whole ? "a whole number" : "a number", keys[i].least, keys[i].most);
        }
        memcpy((char *)out + keys[i].offset, &value, sizeof value);
        return SPW_OK;
    }
    return spw_fail(
        SPW_EARG,
        "'%.*s': must be KEY=VALUE with popularity, exponent, sigma, alpha, share, rank, ranks, groups, "
        "kept, drift, peak, rise or recovery",
        (int)length, text);
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
    while (*at != '\0') {
        at++; /* ':' or ',' */
        size_t part = strcspn(at, ",");
        spw_status status = set_key(at, part, out);
        if (status != SPW_OK) return spw_fail_within(status, "distribution %s", text);
        at += part;
    }
    return SPW_OK;
}
