#include "sim/score/table_kind.h"

#include "sim/read/csv.h"

#include <stdbool.h>

/* The first kind whose columns are all there. */
static const struct {
    spw_table_kind kind;
    const char *column[3];
} kinds[] = {
    {SPW_TABLE_RUNS, {"rows_received_per_layer", "allocated_peak_bytes"}},
    {SPW_TABLE_PHASES, {"layer", "forward_experts"}},
    {SPW_TABLE_CEILINGS, {"call", "what", "bytes_per_pair"}},
    {SPW_TABLE_BARS, {"implementation", "value_digitised"}},
    {SPW_TABLE_DISPATCH, {"operation", "rows_off_rank"}},
    {SPW_TABLE_WHOLE, {"experts_module", "requested_peak"}},
    {SPW_TABLE_BARE, {"matrices_per_expert", "forward_ms"}},
    {SPW_TABLE_LAYERS, {"pass", "phase", "bytes_off_rank"}},
    {SPW_TABLE_TRAININGS, {"row_id", "published_tokens_s_gpu"}},
    {SPW_TABLE_TRAININGS, {"dispatcher", "published_tokens_s_gpu"}},
    {SPW_TABLE_TRAININGS, {"row_id", "dispatcher", "hardware"}},
};

spw_table_kind spw_table_kind_of(const char *path) {
    enum { KINDS = sizeof kinds / sizeof *kinds, COLUMNS = sizeof kinds->column / sizeof *kinds->column };
    spw_table_kind kind = SPW_TABLE_OTHER;
    spw_csv *csv = NULL;
    if (spw_csv_read(path, &csv) != SPW_OK) return kind;
    for (int i = 0; i < KINDS && kind == SPW_TABLE_OTHER && spw_csv_rows(csv) > 0; i++) {
        bool all = true;
        for (int c = 0; c < COLUMNS && all && kinds[i].column[c] != NULL; c++)
            all = spw_csv_field(csv, 0, kinds[i].column[c]) != NULL;
        if (all) kind = kinds[i].kind;
    }
    spw_csv_close(csv);
    return kind;
}
