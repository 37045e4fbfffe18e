#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LONGEST = 63 };

size_t spw_nearest_distance(const char *a, const char *b) {
    size_t row[LONGEST + 1] = {0}, columns = strlen(b), rows = strlen(a);
    if (rows > LONGEST || columns > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t changed = diagonal + (a[i - 1] != b[j - 1]), removed = row[j] + 1, added = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = changed < removed ? changed : removed;
            if (added < row[j]) row[j] = added;
        }
    }
    return row[columns];
}

static void offer(spw_nearest *nearest, const char *candidate, size_t distance, size_t length) {
    const size_t slip = length < 6 ? 1 + length / 4 : 1 + length / 3; /* more than that is another word */
    if (distance > slip || (nearest->best != NULL && distance >= nearest->distance)) return;
    nearest->best = candidate;
    nearest->distance = distance;
}

void spw_nearest_offer(spw_nearest *nearest, const char *candidate) {
    offer(nearest, candidate, spw_nearest_distance(nearest->text, candidate), strlen(candidate));
}

static void plain(const char *name, char out[LONGEST + 1]) {
    const char *slash = strrchr(name, '/');
    size_t used = 0;
    for (const char *at = slash != NULL ? slash + 1 : name; *at != '\0' && used < LONGEST; at++) {
        const bool version = (*at == 'v' || *at == 'V') && isdigit((unsigned char)at[1]);
        if (isalnum((unsigned char)*at) && !version) out[used++] = (char)tolower((unsigned char)*at);
    }
    out[used] = '\0';
}

void spw_nearest_offer_name(spw_nearest *nearest, const char *candidate) {
    char a[LONGEST + 1] = "", b[LONGEST + 1] = "";
    plain(nearest->text, a);
    plain(candidate, b);
    if (a[0] != '\0') offer(nearest, candidate, spw_nearest_distance(a, b), strlen(b));
}
