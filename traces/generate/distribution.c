/* Names and keys of the distributions, one row each. */
#include "traces/generate/generate.h"

#include "base/nearest.h"
#include "base/text.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *help;
    spw_distribution value;
    const char *severity; /* the key that says how uneven it is; NULL: none */
    double most;          /* of that key, where --until looks; INFINITY: what the experts allow */
} names[] = {
    {"balanced", "every expert alike, up to chance", {.popularity = SPW_UNIFORM}, NULL, 0.0},
    {"uniform", "another name of balanced", {.popularity = SPW_UNIFORM}, NULL, 0.0},
    {"reference",
     "as uneven as a model late in its training: a measured run; exponent 0 is even, 2 twice as uneven",
     {.popularity = SPW_REFERENCE, .exponent = 1.0},
     "exponent",
     4.0},
    {"zipf",
     "the i-th most popular expert has a share proportional to i^-exponent",
     {.popularity = SPW_ZIPF, .exponent = 1.0},
     "exponent",
     4.0},
    {"lognormal",
     "popularities whose logarithm has the standard deviation sigma",
     {.popularity = SPW_LOGNORMAL, .sigma = 0.5},
     "sigma",
     4.0},
    {"dirichlet",
     "popularities drawn from a Dirichlet law; a small alpha is uneven",
     {.popularity = SPW_DIRICHLET, .alpha = 4.0},
     NULL,
     0.0},
    {"hot-rank",
     "the experts of one expert-parallel rank get `share` of all choices",
     {.popularity = SPW_UNIFORM, .share = 0.25, .hot_rank = 0, .hot_ranks = 8},
     "share",
     INFINITY},
    {"group-limited",
     "a token chooses experts in `kept` of `groups` groups alone, as DeepSeek-V3's router does",
     {.popularity = SPW_UNIFORM, .groups = 8, .kept = 4},
     NULL,
     0.0},
    {"drift",
     "popularities that change from step to step",
     {.popularity = SPW_LOGNORMAL, .sigma = 0.5, .drift = 0.1},
     "drift",
     2.0},
    {"collapse",
     "routing that collapses over some steps and recovers",
     {.popularity = SPW_UNIFORM, .peak = 3.0, .rise = 2.0, .recovery = 4.0},
     "peak",
     10.0},
    {"k-hot",
     "a share `heat` of the tokens chooses among `hot` experts alone",
     {.hot = 1.0, .heat = 0.5, .stride = 1.0},
     "heat",
     1.0},
    {"max-violation",
     "`hot` experts have 1 + violation times the mean load (MaxVio)",
     {.hot = 1.0, .violation = 1.0, .stride = 1.0},
     "violation",
     INFINITY},
    {"hash",
     "the token's id alone chooses its experts, as in hash layers",
     {.hash = 65535.0, .vocabulary = 129280.0, .words = 1.0},
     "words",
     4.0},
    {"megatron-w0", "Megatron-LM's benchmark of imbalance, w0: exactly even", {.even = 1.0}, NULL, 0.0},
    {"megatron-w1",
     "Megatron-LM's benchmark of imbalance, w1: a quarter of the experts is hot for 75 % of the tokens",
     {.hot = 0.25, .heat = 0.75, .stride = 1.0},
     "heat",
     1.0},
    {"megatron-w2",
     "Megatron-LM's benchmark of imbalance, w2: as w1",
     {.hot = 0.25, .heat = 0.75, .stride = 1.0},
     "heat",
     1.0},
    {"megatron-w3",
     "Megatron-LM's benchmark of imbalance, w3: every second expert is hot for 75 % of the tokens",
     {.hot = 0.5, .heat = 0.75, .stride = 2.0},
     "heat",
     1.0},
    {"megatron-w5",
     "Megatron-LM's benchmark of imbalance, w5: half of the experts get everything",
     {.hot = 0.5, .heat = 1.0, .stride = 1.0, .first = 0.5},
     "heat",
     1.0},
    {"megatron-w6",
     "Megatron-LM's benchmark of imbalance, w6: as w1, and the hot experts change every 3 steps",
     {.hot = 0.25, .heat = 0.75, .stride = 1.0, .turn = 3.0},
     "heat",
     1.0},
    {"megatron-w7",
     "Megatron-LM's benchmark of imbalance, w7: one step of 4 is uneven",
     {.hot = 0.25, .heat = 0.5, .stride = 1.0, .burst = 4.0},
     "heat",
     1.0},
};

/* Popularities, and what their key is where nobody gives it. */
static const struct {
    const char *name;
    spw_popularity value;
    double exponent, sigma, alpha;
} popularities[] = {
    {"uniform", SPW_UNIFORM, 0.0, 0.0, 0.0},     {"zipf", SPW_ZIPF, 1.0, 0.0, 0.0},
    {"lognormal", SPW_LOGNORMAL, 0.0, 0.5, 0.0}, {"dirichlet", SPW_DIRICHLET, 0.0, 0.0, 4.0},
    {"reference", SPW_REFERENCE, 1.0, 0.0, 0.0},
};

enum { ANY = -1 }; /* all bits of 1 << spw_popularity */

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
    KEY("exponent", exponent, 0.0, 10.0, false, 1 << SPW_ZIPF | 1 << SPW_REFERENCE),
    KEY("sigma", sigma, 0.0, 10.0, false, 1 << SPW_LOGNORMAL),
    KEY("alpha", alpha, 1e-3, 1e6, false, 1 << SPW_DIRICHLET),
    KEY("share", share, 0.0, 1.0, false, ANY),
    KEY_BESIDE("rank", hot_rank, 0.0, 65535.0, true, share),
    KEY_BESIDE("ranks", hot_ranks, 1.0, 65536.0, true, share),
    KEY("groups", groups, 0.0, 65535.0, true, ANY),
    KEY_BESIDE("kept", kept, 1.0, 65535.0, true, groups),
    KEY("drift", drift, 0.0, 10.0, false, ANY),
    KEY("peak", peak, 0.0, 20.0, false, ANY),
    KEY_BESIDE("rise", rise, 0.0, 1e9, false, peak),
    KEY_BESIDE("recovery", recovery, 1e-3, 1e9, false, peak),
    KEY("hot", hot, 0.0, 65535.0, false, ANY),
    KEY_BESIDE("heat", heat, 0.0, 1.0, false, hot),
    KEY_BESIDE("stride", stride, 1.0, 65535.0, true, hot),
    KEY_BESIDE("first", first, 0.0, 65535.0, false, hot),
    KEY_BESIDE("turn", turn, 0.0, 1e6, true, hot),
    KEY_BESIDE("burst", burst, 0.0, 1e6, true, hot),
    KEY_BESIDE("violation", violation, 0.0, 65535.0, false, hot),
    KEY("hash", hash, 0.0, 65535.0, true, ANY),
    KEY_BESIDE("vocabulary", vocabulary, 1.0, 1048576.0, true, hash),
    KEY_BESIDE("words", words, 0.0, 10.0, false, hash),
#undef KEY
#undef KEY_BESIDE
};

enum {
    NAMES = sizeof names / sizeof *names,
    KEYS = sizeof keys / sizeof *keys,
    POPULARITIES = sizeof popularities / sizeof *popularities
};

const char *spw_distribution_name(size_t i) { return i < NAMES ? names[i].name : NULL; }
const char *spw_distribution_help(size_t i) { return i < NAMES ? names[i].help : NULL; }

static bool same(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static spw_status set_popularity(const char *value, size_t length, spw_distribution *out) {
    for (size_t i = 0; i < POPULARITIES; i++) {
        if (!same(value, length, popularities[i].name)) continue;
        out->popularity = popularities[i].value;
        if (out->exponent == 0.0) out->exponent = popularities[i].exponent;
        if (out->sigma == 0.0) out->sigma = popularities[i].sigma;
        if (out->alpha == 0.0) out->alpha = popularities[i].alpha;
        return SPW_OK;
    }
    return spw_fail(SPW_EARG, "popularity '%.*s'; must be uniform, zipf, lognormal, dirichlet or reference",
                    (int)length, value);
}

static bool belongs(int of, spw_popularity popularity) { return (of & 1 << popularity) != 0; }

enum { LIST_TEXT = 256, WORD_TEXT = 64 };
static const char *list_keys(spw_popularity popularity, char out[LIST_TEXT]) {
    (void)snprintf(out, LIST_TEXT, "popularity");
    for (size_t i = 0; i < KEYS; i++) {
        const size_t used = strlen(out);
        if (belongs(keys[i].popularity, popularity))
            (void)snprintf(out + used, LIST_TEXT - used, ", %s", keys[i].key);
    }
    return out;
}

/* No key that there is. */
static spw_status fail_key(const char *text, size_t length, size_t key_length, spw_popularity popularity) {
    char word[WORD_TEXT], list[LIST_TEXT], guess[WORD_TEXT] = "";
    (void)snprintf(word, sizeof word, "%.*s", (int)key_length, text);
    spw_nearest nearest = {.text = word};
    for (size_t i = 0; i < KEYS; i++)
        if (belongs(keys[i].popularity, popularity)) spw_nearest_offer(&nearest, keys[i].key);
    if (nearest.best != NULL) (void)snprintf(guess, sizeof guess, " did you mean '%s'?", nearest.best);
    return spw_fail(SPW_EARG, "'%.*s': must be KEY=VALUE;%s keys of popularity %s: %s", (int)length, text,
                    guess, popularities[popularity].name, list_keys(popularity, list));
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
    return fail_key(text, length, key_length, out->popularity);
}

/* Keys that another popularity has, or that miss what they belong to. */
static spw_status check_keys(const bool *given, const spw_distribution *d) {
    const char *popularity = popularities[d->popularity].name;
    char list[LIST_TEXT];
    for (size_t i = 0; i < KEYS; i++) {
        double beside = 1.0;
        if (!given[i]) continue;
        if (!belongs(keys[i].popularity, d->popularity))
            return spw_fail(SPW_EARG, "popularity %s has no %s; its keys are %s", popularity, keys[i].key,
                            list_keys(d->popularity, list));
        if (keys[i].beside != NULL) memcpy(&beside, (const char *)d + keys[i].beside_offset, sizeof beside);
        if (!(beside > 0.0))
            return spw_fail(SPW_EARG, "'%s' does nothing without '%s'", keys[i].key, keys[i].beside);
    }
    return SPW_OK;
}

static size_t find_name(const char *text) {
    const size_t length = strcspn(text, ":");
    size_t i = 0;
    while (i < NAMES && !same(text, length, names[i].name)) i++;
    return i;
}

static const char *const even_words[] = {"random", "even", "equal", "none"};

/* "zipf:1.0", "zipf=1.0" and "zipf1.0": a number without the name of its key. */
static spw_status check_bare_number(const char *text) {
    for (size_t i = 0; i < NAMES; i++) {
        const size_t length = strlen(names[i].name);
        const char *key = names[i].severity, *number = text + length;
        for (size_t k = 0; key == NULL && k < KEYS; k++)
            if (keys[k].popularity != ANY && (keys[k].popularity & 1 << names[i].value.popularity) != 0)
                key = keys[k].key;
        if (strncmp(text, names[i].name, length) != 0 || key == NULL) continue;
        number += *number == ':' || *number == '=';
        const size_t digits = strspn(number, "0123456789.");
        if (digits > 0 && number[digits] == '\0' && strncmp(names[i].name, "megatron", 8) != 0)
            return spw_fail(SPW_EARG,
                            "distribution '%s': a number needs the name of its key; did you mean '%s:%s=%s'?",
                            text, names[i].name, key, number);
    }
    return SPW_OK;
}

spw_status spw_distribution_parse(const char *text, spw_distribution *out) {
    const size_t length = strcspn(text, ":"), i = find_name(text);
    if (check_bare_number(text) != SPW_OK) return SPW_EARG;
    if (same(text, length, "megatron-w4"))
        return spw_fail(
            SPW_EARG,
            "distribution megatron-w4 gives the ranks unlike numbers of tokens, and all GPUs of a job "
            "have as many; the others, megatron-w0 to w7, can be had");
    if (i == NAMES && (strstr(text, ".h5") != NULL || strchr(text, '/') != NULL))
        return spw_fail(
            SPW_EARG, "distribution '%s': a trace is not a distribution; give it as a trace (plan: --trace)",
            text);
    for (size_t k = 0; i == NAMES && k < sizeof even_words / sizeof *even_words; k++)
        if (same(text, length, even_words[k]))
            return spw_fail(SPW_EARG, "distribution '%s' is unknown; did you mean 'balanced'?", text);
    if (i == NAMES) {
        char word[WORD_TEXT];
        (void)snprintf(word, sizeof word, "%.*s", (int)length, text);
        spw_nearest nearest = {.text = word};
        for (size_t k = 0; k < NAMES; k++) spw_nearest_offer(&nearest, names[k].name);
        if (nearest.best != NULL)
            return spw_fail(SPW_EARG, "distribution '%s' is unknown; did you mean '%s%s'?", text,
                            nearest.best, text + length);
        return spw_fail(
            SPW_EARG,
            "distribution '%.*s'; must be reference, balanced or uniform, zipf, lognormal, dirichlet, "
            "hot-rank, group-limited, "
            "drift, collapse, k-hot, max-violation, hash or megatron-w0 to w7",
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
    for (size_t k = 0; k < KEYS; k++)
        out->groups_said = out->groups_said || (given[k] && strcmp(keys[k].key, "groups") == 0);
    status = check_keys(given, out);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "distribution %s", text);
}

bool spw_distribution_limit(spw_distribution *d, size_t groups, size_t kept) {
    const bool own = d->groups_said || d->groups > 0.0;
    if (own || groups <= 1 || kept >= groups || d->share > 0.0 || d->hot > 0.0 || d->even > 0.0) return false;
    d->groups = (double)groups;
    d->kept = (double)kept;
    return true;
}

double spw_distribution_steps(const spw_distribution *d) {
    const double collapse = d->peak > 0.0 ? 1.0 + ceil(d->rise) + ceil(3.0 * d->recovery) : 1.0;
    const double moving = fmax(d->burst, 4.0 * d->turn); /* the set moves four times */
    return fmax(d->drift > 0.0 ? fmax(collapse, SPW_DRIFT_STEPS) : collapse, moving);
}

/* Where "key=" begins; NULL: the text does not give it. */
static const char *find_key(const char *text, const char *key) {
    const size_t length = strlen(key);
    for (const char *at = text + strcspn(text, ":"); *at != '\0'; at += strcspn(at, ",")) {
        at++; /* ':' or ',' */
        if (strncmp(at, key, length) == 0 && at[length] == '=') return at;
    }
    return NULL;
}

spw_status spw_distribution_at(const char *text, const char *key, double value, char *out, size_t size) {
    const char *given = find_key(text, key);
    const size_t before = given != NULL ? (size_t)(given - text) - 1 : strlen(text); /* without ':' or ',' */
    const char *rest = given != NULL ? given + strcspn(given, ",") : "";
    const bool first = memchr(text, ':', before) == NULL;
    const int length =
        snprintf(out, size, "%.*s%c%s=%.17g%s", (int)before, text, first ? ':' : ',', key, value, rest);
    return (size_t)length < size
               ? SPW_OK
               : spw_fail(SPW_EARG, "distribution %.40s...: a text of over %zu characters", text, size - 1);
}

spw_status spw_distribution_severity(const char *text, size_t experts, size_t top_k, spw_severity *out) {
    spw_distribution d = {.hot = 0.0};
    spw_status status = spw_distribution_parse(text, &d);
    if (status != SPW_OK) return status;
    const size_t i = find_name(text);
    if (names[i].severity == NULL)
        return spw_fail(SPW_EARG,
                        "distribution %s has no key that says how uneven it is; reference, zipf, lognormal, "
                        "hot-rank, drift, "
                        "collapse, k-hot, max-violation, hash and megatron-w1 to w7 have one",
                        text);
    *out = (spw_severity){.key = names[i].severity, .high = names[i].most, .given = NAN};
    const char *given = find_key(text, out->key);
    char *end = NULL;
    if (given != NULL) out->given = spw_text_number(given + strlen(out->key) + 1, &end);
    if (given == NULL && d.popularity == SPW_REFERENCE && strcmp(out->key, "exponent") == 0)
        out->given = d.exponent; /* as it was measured */
    const double mean = (double)top_k / (double)experts,
                 hot = fmax(1.0, spw_distribution_hot(&d, experts, top_k));
    if (strcmp(out->key, "share") == 0) {
        out->low = 1.0 / d.hot_ranks;
        out->high = fmax(out->low, fmin(1.0, (double)experts / d.hot_ranks / (double)top_k));
    } else if (!isfinite(out->high)) { /* an expert has at most all tokens, the set at most all choices */
        out->high = fmax(0.0, fmin(1.0 / mean, (double)experts / hot) - 1.0);
    }
    return SPW_OK;
}

double spw_distribution_hot(const spw_distribution *d, size_t experts, size_t top_k) {
    if (d->hot >= 1.0 || !(d->hot > 0.0)) return floor(d->hot);
    return fmax((double)top_k, floor(d->hot * (double)experts));
}
