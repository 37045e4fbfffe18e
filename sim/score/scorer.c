#include "sim/score/scorer.h"

#include "sim/read/csv.h"
#include "sim/score/megatron/measured_print.h"
#include "sim/score/score_prints.h"
#include "sim/score/table_kind.h"

#define KIND(name) (1U << SPW_TABLE_##name)

/* The last scorer takes what no other knows, and says what is missing. */
static const struct {
    const char *tables_of;
    bool alone; /* one table at a time */
    unsigned kinds;
    spw_status (*print)(const spw_score_request *request);
} scorers[] = {
    {"measured runs of Megatron-Core", false, KIND(RUNS) | KIND(PHASES) | KIND(CEILINGS), spw_measured_print},
    {"the bars of a figure", true, KIND(BARS), spw_layer_score_print},
    {"our own dispatch and combine", true, KIND(DISPATCH), spw_dispatch_print},
    {"whole layers of our own kernels", true, KIND(LAYERS), spw_own_layer_print},
    {"published training runs", false, KIND(TRAININGS), spw_run_print},
    {"measured runs of whole models", false, KIND(WHOLE), spw_whole_print},
    {"published layers of Megatron-Core", false, KIND(BARE), spw_bare_print},
    {"runs of compiled programs", false, KIND(OTHER), spw_score_print},
};
enum { SCORERS = sizeof scorers / sizeof *scorers };

static int scorer_of(const char *table) {
    const unsigned kind = 1U << spw_table_kind_of(table);
    for (int i = 0; i < SCORERS - 1; i++)
        if ((scorers[i].kinds & kind) != 0) return i;
    return SCORERS - 1;
}

/* A table that cannot be read is left to its scorer, which says why. */
static spw_status check_rows(const char *table) {
    spw_csv *csv = NULL;
    const bool empty = spw_csv_read(table, &csv) == SPW_OK && spw_csv_rows(csv) == 0;
    spw_csv_close(csv);
    return empty
               ? spw_fail(SPW_EFORMAT, "%s: has a header line and no rows; there is nothing to score", table)
               : SPW_OK;
}

spw_status spw_score_tables(const spw_score_request *r) {
    for (size_t i = 0; i < r->tables; i++) {
        const spw_status status = check_rows(r->table[i]);
        if (status != SPW_OK) return status;
    }
    const int first = scorer_of(r->table[0]);
    for (size_t i = 1; i < r->tables; i++) {
        const int other = scorer_of(r->table[i]);
        if (other != first)
            return spw_fail(SPW_EARG, "%s is a table of %s and %s is one of %s; score them in two calls",
                            r->table[0], scorers[first].tables_of, r->table[i], scorers[other].tables_of);
        if (scorers[first].alone)
            return spw_fail(SPW_EARG, "%s is a table of %s, which are scored one table at a time",
                            r->table[i], scorers[first].tables_of);
    }
    return scorers[first].print(r);
}
