/* A step's collectives combined as a stack combines them. */
#include "sim/traffic/step_traffic.h"

/* Operations that one family of one group, cut along one dimension, becomes. */
typedef struct bin {
    size_t count;
    uint64_t filled;
} bin;

static void put(bin *b, uint64_t bytes, uint64_t limit) {
    if (bytes > limit) {
        b->count++;
    } else if (b->filled > 0 && b->filled + bytes <= limit) {
        b->filled += bytes;
    } else {
        b->count++;
        b->filled = bytes;
    }
}

spw_step_sum spw_step_combine(const spw_step_traffic *t, const spw_step_stack *stack, spw_step_place place,
                              spw_operation operation, bool backward) {
    const uint64_t limit = operation == SPW_OPERATION_REDUCE_SCATTER ? stack->scatter_combined_bytes
                                                                     : stack->gather_combined_bytes;
    bin bins[SPW_GROUPS][2][2] = {{{{0, 0}}}}; /* [group][family - 1][dimension] */
    spw_step_sum sum = {0, 0};
    for (size_t i = 0; i < t->items; i++) {
        const spw_step_item *item = &t->item[i];
        if (item->place != place || item->operation != operation || item->backward != backward) continue;
        sum.bytes += item->bytes * item->count;
        const bool alone = item->family == SPW_FAMILY_ALONE ||
                           (item->family == SPW_FAMILY_INDICES && stack->combined_by_dim);
        if (alone) {
            sum.count += item->count;
        } else {
            put(&bins[item->group][item->family == SPW_FAMILY_INDICES]
                     [stack->combined_by_dim && item->other_dim],
                item->bytes, limit);
        }
    }
    for (int g = 0; g < SPW_GROUPS; g++)
        for (int f = 0; f < 2; f++) sum.count += bins[g][f][0].count + bins[g][f][1].count;
    return sum;
}
