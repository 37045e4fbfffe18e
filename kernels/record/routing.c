#include "kernels/record/routing.h"

#include "kernels/record/numbers.h"

#include <math.h>

const char *const spw_routing_names[SPW_ROUTING_COUNT] = {"uniform", "zipf0.8", "one-expert", "empty-experts",
                                                          "short"};

static size_t zipf(size_t experts, double u) {
    double total = 0, sum = 0;
    for (size_t x = 0; x < experts; x++) total += pow((double)x + 1, -0.8);
    for (size_t x = 0; x < experts; x++) {
        sum += pow((double)x + 1, -0.8) / total;
        if (u < sum) return x;
    }
    return experts - 1;
}

int spw_routing_expert(spw_routing routing, size_t experts, size_t rows, uint64_t seed, size_t i) {
    const uint64_t bits = spw_number_bits(seed, i);
    if (experts == 0) return -1;
    if (routing == SPW_ROUTING_ONE) return (int)(experts / 2);
    if (routing == SPW_ROUTING_SHORT && i >= rows * 5 / 8) return -1;
    if (routing == SPW_ROUTING_ZIPF) return (int)zipf(experts, (double)(bits >> 11) * 0x1p-53);
    if (routing == SPW_ROUTING_EMPTY && experts > 2) return (int)(bits % ((experts - 1) / 2) * 2 + 1);
    return (int)(bits % experts);
}

void spw_routing_offsets(spw_routing routing, size_t experts, size_t rows, uint64_t seed, size_t *offset,
                         int *offset32) {
    for (size_t e = 0; e <= experts; e++) offset[e] = 0;
    for (size_t i = 0; i < rows; i++) {
        const int e = spw_routing_expert(routing, experts, rows, seed, i);
        if (e >= 0) offset[e + 1]++;
    }
    offset32[0] = 0;
    for (size_t e = 0; e < experts; e++) offset[e + 1] += offset[e], offset32[e + 1] = (int)offset[e + 1];
}
