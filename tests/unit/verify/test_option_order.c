/* Nobody outside a scheme's file goes by the order of its options: with every table turned round the simulator
 * and the executed reference agree as before. */
#include "sim/verify/verify_cases.h"
#include "tests/unit/check.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 6 };

/* Options that are not the first of their table, and words that are not the first of theirs. */
static const char *const texts[] = {
    "dense:capacity_factor=1.25,layout=exchange",
    "gmm:buffer_factor=2,exchange=oneshot",
    "ring:buffer_factor=1,ragged_sort=true",
    "megatron-alltoall:capacity_factor=0.7,align=128,pay=router",
    "megatron-alltoall:capacity_factor=1.25,policy=position",
    "megatron-allgather:capacity_factor=1,policy=position",
    "megatron-flex:backend=hybridep,capacity_factor=0.8,align=32",
    "megatron-ncclep:rank_capacity=1.5,align=16",
    "primus-syncfree:level=1,align=16",
    "primus-syncfree:level=3",
    "deepep:dtype=fp8,pad=16",
    "deepep-ll:dtype=bf16,max_tokens=4096",
    "hybrid-ep:budget=0.7,pad=16",
    "moe-dedup:buffer_factor=0.5,overflow_factor=0.25,max_shards=2",
    "megablocks:impl=memory_optimized",
    "torchtitan-hybridep:capacity=0.4,pad=16",
    "tutel:capacity_factor=-1,alignment=4",
    "tutel:capacity_factor=1,batch_prioritized=true",
    "scattermoe:activation=compiled",
    "sonicmoe:rounding=up,tile=4",
};
enum { SCHEMES = sizeof texts / sizeof *texts };

typedef struct turned {
    spw_scheme_type type;
    spw_scheme_option option[SPW_SCHEME_OPTIONS + 1];
} turned;

static spw_scheme turn_round(const char *text, turned *t) {
    spw_scheme scheme;
    size_t options = 0;
    CHECK_OK(spw_scheme_parse(text, &scheme));
    while (scheme.type->options[options].name != NULL) options++;
    spw_scheme out = scheme;
    t->type = *scheme.type;
    t->option[options].name = NULL;
    for (size_t i = 0; i < options; i++) {
        t->option[i] = scheme.type->options[options - 1 - i];
        out.option[i] = scheme.option[options - 1 - i];
    }
    t->type.options = t->option;
    out.type = &t->type;
    return out;
}

int main(void) {
    static turned types[SCHEMES];
    spw_verification *v = NULL;
    CHECK_OK(SPW_ALLOC(1, &v));
    if (v == NULL) return check_done();
    v->schemes = SCHEMES;
    for (size_t i = 0; i < SCHEMES; i++) v->scheme[i] = turn_round(texts[i], &types[i]);
    for (uint64_t seed = 1; seed <= CASES; seed++) CHECK_OK(spw_verify_random(v, seed));
    for (size_t i = 0; i < SCHEMES; i++) {
        const spw_verify_tally *tally = &v->tally[i];
        if (tally->agreed != tally->comparisons) printf("%s: %s\n", texts[i], tally->first_miss);
        CHECK(tally->agreed == tally->comparisons && tally->values != SPW_AGREE_NOT);
        CHECK(tally->cases > 0);
    }
    spw_free(v);
    return check_done();
}
