#include "sim/command/model/model_tables.h"

#include <stdio.h>

enum { LONGEST_RUN = 24 }; /* characters of ", 1022-1023 by 1000" and of ", ..." behind it */

static size_t next_marked(const uint8_t *mark, size_t layers, size_t from) {
    while (from < layers && mark[from] == 0) from++;
    return from;
}

const char *spw_layer_runs(const uint8_t *mark, size_t layers, char *out, size_t size) {
    size_t used = 0, first = next_marked(mark, layers, 0);
    (void)snprintf(out, size, "none");
    while (first < layers) {
        const size_t second = next_marked(mark, layers, first + 1), step = second - first;
        size_t last = first, after = second, count = 1;
        while (after < layers && after - last == step) {
            last = after;
            after = next_marked(mark, layers, last + 1);
            count++;
        }
        if (step > 1 && count < 3) { /* 5 and 8 are two layers, not every third */
            last = first;
            after = second;
        }
        if (used + LONGEST_RUN > size) {
            (void)snprintf(out + used, size - used, ", ...");
            return out;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%zu", used > 0 ? ", " : "", first);
        if (last > first) used += (size_t)snprintf(out + used, size - used, "-%zu", last);
        if (last > first && step > 1) used += (size_t)snprintf(out + used, size - used, " by %zu", step);
        first = after;
    }
    return out;
}
