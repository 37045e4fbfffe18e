/* `whole` things over `parts`, as even as whole numbers allow: part i has whole (i + 1) / parts - whole i / parts of them, rounded down
 * each. Asked for part after part, and behind the last for the first again; nothing is divided on the way. */
#ifndef SPW_BASE_EVEN_SHARES_H
#define SPW_BASE_EVEN_SHARES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_even_shares {
    uint64_t parts, each, more; /* more: whole % parts */
    uint64_t rest;              /* more * i % parts */
} spw_even_shares;

/* From part i on; none may be asked for where parts is 0. */
static inline spw_even_shares spw_even_shares_from(uint64_t whole, uint64_t parts, uint64_t i) {
    const uint64_t by = parts > 0 ? parts : 1, more = whole % by;
    return (spw_even_shares){by, whole / by, more, more * (i % by) % by};
}

static inline uint64_t spw_even_shares_next(spw_even_shares *s) {
    s->rest += s->more;
    const bool one_more = s->rest >= s->parts;
    if (one_more) s->rest -= s->parts;
    return s->each + one_more;
}

#endif
