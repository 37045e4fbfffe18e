#include "sim/memory/allocator/allocator_conf.h"

#include "base/text.h"

#include "sim/memory/allocator/allocator_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum value_kind { VALUE_FLAG, VALUE_COUNT, VALUE_BELOW_1, VALUE_SHARE } value_kind;

static const struct {
    const char *key;
    value_kind kind;
    size_t offset;
    const char *right;
} keys[] = {
    {"expandable_segments", VALUE_FLAG, offsetof(spw_job_allocator, expandable_segments), "True or False"},
    {"max_split_size_mb", VALUE_COUNT, offsetof(spw_job_allocator, max_split_size_mb),
     "a whole number above 20"},
    {"garbage_collection_threshold", VALUE_BELOW_1, offsetof(spw_job_allocator, garbage_collection_threshold),
     "a share below 1, as 0.8"},
    {"per_process_memory_fraction", VALUE_SHARE, offsetof(spw_job_allocator, per_process_memory_fraction),
     "a share of the device of at most 1, as 0.9"},
    {"roundup_power2_divisions", VALUE_COUNT, offsetof(spw_job_allocator, roundup_power2_divisions),
     "a power of two, as 4"},
};
enum { KEYS = sizeof keys / sizeof *keys };

static bool read_value(value_kind kind, const char *text, void *out) {
    char *end = NULL;
    errno = 0;
    if (kind == VALUE_FLAG) {
        const bool yes = strcasecmp(text, "true") == 0;
        memcpy(out, &yes, sizeof yes);
        return yes || strcasecmp(text, "false") == 0;
    }
    if (text[0] < '0' || text[0] > '9') return false;
    if (kind == VALUE_COUNT) {
        const unsigned long long number = strtoull(text, &end, 10);
        const size_t count = (size_t)number;
        memcpy(out, &count, sizeof count);
        return errno == 0 && *end == '\0' && number <= 1 << 24;
    }
    const double share = spw_text_number(text, &end);
    memcpy(out, &share, sizeof share);
    return errno == 0 && *end == '\0' && (share < 1.0 || (kind == VALUE_SHARE && share <= 1.0));
}

spw_status spw_allocator_conf_parse(const char *option, const char *text, spw_job_allocator *out) {
    char copy[256], *rest = NULL;
    if (strlen(text) >= sizeof copy)
        return spw_fail(SPW_EARG, "%s: more than %zu characters", option, sizeof copy - 1);
    if (spw_text_has_gap(text))
        return spw_fail(SPW_EARG, "%s '%s': an empty place; write KEY:VALUE, several between commas", option,
                        text);
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(part, ':');
        size_t k = 0;
        if (value != NULL) *value++ = '\0';
        while (k < KEYS && strcmp(part, keys[k].key) != 0) k++;
        if (k == KEYS || value == NULL)
            return spw_fail(
                SPW_EARG,
                "%s: '%.40s' is not KEY:VALUE with a KEY of expandable_segments, max_split_size_mb, "
                "garbage_collection_threshold, per_process_memory_fraction, roundup_power2_divisions",
                option, part);
        if (!read_value(keys[k].kind, value, (char *)out + keys[k].offset))
            return spw_fail(SPW_EARG, "%s: %s:%.40s; write %s", option, keys[k].key, value, keys[k].right);
    }
    return SPW_OK;
}

spw_allocator_settings spw_allocator_conf_settings(const spw_job_allocator *a, uint64_t device_bytes,
                                                   uint64_t total_bytes) {
    return (spw_allocator_settings){.device_bytes = device_bytes,
                                    .fraction_bytes =
                                        (uint64_t)(a->per_process_memory_fraction * (double)total_bytes),
                                    .max_split_bytes = a->max_split_size_mb * SPW_MIB,
                                    .garbage_collection_threshold = a->garbage_collection_threshold,
                                    .roundup_power2_divisions = a->roundup_power2_divisions,
                                    .expandable_segments = a->expandable_segments};
}
