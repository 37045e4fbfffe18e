#include "sim/input/nearest.h"

#include <stdint.h>
#include <string.h>

enum { LONGEST = 63 };

size_t spw_nearest_distance(const char *a, const char *b) {
    size_t row[LONGEST + 1], columns = strlen(b), rows = strlen(a);
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

void spw_nearest_offer(spw_nearest *nearest, const char *candidate) {
    size_t distance = spw_nearest_distance(nearest->text, candidate), length = strlen(candidate);
    size_t slip = length < 6 ? 1 + length / 4 : 1 + length / 3; /* more than that is another word */
    if (distance > slip || (nearest->best != NULL && distance >= nearest->distance)) return;
    nearest->best = candidate;
    nearest->distance = distance;
}
