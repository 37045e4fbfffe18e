/* Values of options, read. */
#include "base/text.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"

#include <stdlib.h>
#include <string.h>

spw_status spw_parse_count(const char *option, const char *text, uint64_t most, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || value > most) {
        return spw_fail(SPW_EARG, "%s %s: write a whole number of at most %llu", option, text,
                        (unsigned long long)most);
    }
    *out = value;
    return SPW_OK;
}

spw_status spw_parse_amount(const char *option, const char *text, const char *what, double *out) {
    enum { LEAST_AMOUNT = 100000 }; /* tokens of a training: below, a suffix was forgotten */
    static const char suffixes[] = "KMBT";
    char *end = NULL;
    double value = spw_text_number(text, &end);
    for (size_t i = 0; end != text && *end != '\0' && i < sizeof suffixes - 1; i++) {
        if (toupper((unsigned char)end[0]) != suffixes[i] || end[1] != '\0') continue;
        for (size_t power = 0; power <= i; power++) value *= 1000.0;
        end++;
    }
    if (*end != '\0' || !(value >= 1.0 && value <= 1e18))
        return spw_fail(SPW_EARG, "%s %s: write a number of %s from 1 to 1e18, as in %s", option, text, what,
                        strcmp(option, "--routing-tokens") == 0 ? "512K or 4M" : "300B or 1T");
    if (strcmp(option, "--tokens") == 0 && value < LEAST_AMOUNT && text[strspn(text, "0123456789.")] == '\0')
        return spw_fail(SPW_EARG,
                        "%s %s: %s %s are less than any training; did you mean %sB (billions), or %sT?",
                        option, text, text, what, text, text);
    *out = value;
    return SPW_OK;
}

spw_status spw_parse_bytes(const char *option, const char *text, size_t *out) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1.0},    {"B", 1.0},      {"kB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end = NULL;
    double value = spw_text_number(text, &end);
    size_t unit = 0;
    while (unit < sizeof units / sizeof *units && strcasecmp(end, units[unit].name) != 0) unit++;
    value *= unit < sizeof units / sizeof *units ? units[unit].bytes : 0.0;
    if (end == text || !(value >= 1.0 && value <= 1e18))
        return spw_fail(SPW_EARG, "%s %s: write bytes, as in 4GB, 512MiB or 2e9", option, text);
    *out = (size_t)value;
    return SPW_OK;
}

spw_status spw_parse_memory(const char *text, spw_memory_bound *bound, spw_memory_bound **out) {
    static const size_t LEAST = 1 << 20; /* no program lives in less: a unit was forgotten */
    *bound = (spw_memory_bound){.notes = spw_command_notes()};
    *out = NULL;
    if (text == NULL) return SPW_OK;
    *out = bound;
    const spw_status status = spw_parse_bytes("--memory", text, &bound->limit);
    if (status == SPW_OK && bound->limit < LEAST && text[strspn(text, "0123456789.")] == '\0')
        return spw_fail(
            SPW_EARG,
            "--memory %s: a number without a unit is bytes; did you mean %sGB? (as in 4GB, 512MiB or 2e9)",
            text, text);
    return status;
}

spw_status spw_parse_percent(const char *option, const char *text, double *out) {
    char *end = NULL;
    const double value = text[strspn(text, "0123456789.")] == '\0' ? spw_text_number(text, &end) : -1.0;
    if (end == NULL || end == text || *end != '\0' || !(value >= 0.0 && value <= 100.0))
        return spw_fail(SPW_EARG, "%s %s: write a percentage from 0 to 100, as in 99.9", option, text);
    *out = value / 100.0;
    return SPW_OK;
}

spw_status spw_parse_range(const char *option, const char *text, size_t *begin, size_t *end) {
    char part[2][32] = {"", ""};
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    uint64_t value[2] = {0, 0};
    bool good = length < sizeof part[0] && (colon == NULL || strlen(colon + 1) < sizeof part[1]);
    if (good) memcpy(part[0], text, length);
    if (good && colon != NULL) memcpy(part[1], colon + 1, strlen(colon + 1));
    for (int i = 0; i < 2 && good; i++) {
        if (part[i][0] != '\0') good = spw_parse_count(option, part[i], UINT32_MAX, &value[i]) == SPW_OK;
    }
    if (good && colon == NULL) value[1] = value[0] + 1;
    good = good && length + (colon != NULL) > 0 && (part[1][0] == '\0' || value[0] < value[1]);
    if (!good)
        return spw_fail(SPW_EARG, "%s %s: write positions A:B with A < B, or one position A", option, text);
    *begin = value[0];
    *end = value[1];
    return SPW_OK;
}

void spw_command_add_word(const char *text, struct argp_state *state, const char **list, size_t *count,
                          size_t most, const char *what) {
    if (*count == most)
        argp_error(state, "more than %zu %s", most, what); /* which comes back where a library asks */
    else
        list[(*count)++] = text;
}
