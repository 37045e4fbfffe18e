/* What the printers of a search share: costs, the words that ask for a point, and what its figures rest on. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_NOTES_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_NOTES_H

#include "sim/command/plan/plan_search.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/result/row_cost.h"

enum {
    SPW_SEARCH_OPTIONS_TEXT = 1024,
    SPW_SEARCH_OUTSIDE_TEXT = 4096,
    SPW_SEARCH_INTERVALS_TEXT = 1024,
    SPW_SEARCH_POINT_TEXT = 384,
    SPW_SEARCH_ABSENT_TEXT = 640,
    SPW_SEARCH_NEXT_TEXT = SPW_SEARCH_POINT_TEXT + 64
};

/* "gmm, EP 8 x FSDP 4 x pipeline 2 on 64 GPUs, 8 sequences in 4 micro-batches, remat full". Returns `out`. */
const char *spw_search_point_text(const spw_search_view *view, const size_t *value, size_t sequences,
                                  size_t scheme, char out[SPW_SEARCH_POINT_TEXT]);
/* Of a scheme without a point that keeps to the budgets: why. misfit: as far as is known none of its points does. false: it has one. */
bool spw_search_absent_text(const spw_search_view *view, size_t scheme, bool *misfit,
                            char out[SPW_SEARCH_ABSENT_TEXT]);
/* Why no point keeps to the budgets. Returns `out`. */
const char *spw_search_nothing_text(const spw_search_view *view, char out[SPW_SEARCH_ABSENT_TEXT]);
/* How to ask about another framework; NULL: nothing is to be said. */
const char *spw_search_hint(const spw_search_view *view);

/* "93 %", of what is likely by a chance; nothing is certain. Returns `out`. */
const char *spw_search_chance_text(double chance, char out[SPW_SPAN_TEXT]);
/* "; faster than the next below, POINT, in 93 of 100", or "" where there is none. Returns `out`. */
const char *spw_search_next_text(const spw_search_view *view, const spw_search_point *point,
                                 char out[SPW_SEARCH_NEXT_TEXT]);

spw_row_cost spw_search_cost(const spw_search_view *view, const spw_search_point *point);
/* The words that ask a plan for one point. */
void spw_search_options_text(const spw_search_view *view, const spw_search_point *point,
                             char out[SPW_SEARCH_OPTIONS_TEXT]);

/* Its reasons between semicolons, each once. Returns `out`. */
const char *spw_search_outside_text(const spw_search_reasons *all, const spw_search_point *point,
                                    char out[SPW_SEARCH_OUTSIDE_TEXT]);
/* What the intervals of times are, by the software that is there. Returns `out`. */
const char *spw_search_intervals_text(const spw_search_view *view, char out[SPW_SEARCH_INTERVALS_TEXT]);

/* What a plan of these schemes says of a state that is taken as sharded (sim/memory/live/footprint_check.h); NULL: nothing. */
const char *spw_search_state_note(const spw_search_view *view);

/* What JAX takes of a GPU where nothing says it. false: no point of the front is a compiled program's, or the job says the share. */
bool spw_search_share_note(const spw_search_view *view, char out[SPW_SHARE_TEXT]);

/* The layout that Megatron-Core has to be told for a point whose layers do not divide over its stages (sim/memory/live/assumed_layout.h). */
bool spw_search_layout(const spw_search_view *view, const spw_search_point *point, char out[SPW_LAYOUT_TEXT]);

/* Reasons of the rows of a table: what all have is said once, every other has a letter. */
typedef struct spw_search_legend {
    const spw_search_reasons *all;
    size_t letter[SPW_SEARCH_REASONS]; /* of each reason; 0: none */
    bool shared[SPW_SEARCH_REASONS];
    size_t letters;
} spw_search_legend;
void spw_search_legend_make(const spw_search_reasons *all, const spw_search_point *point, size_t points,
                            spw_search_legend *out);
/* "a c", or "-". Returns `out`. */
const char *spw_search_legend_cell(const spw_search_legend *legend, const spw_search_point *point,
                                   char out[SPW_SEARCH_OUTSIDE_TEXT]);
void spw_search_legend_print(const spw_search_legend *legend, FILE *out);

#endif
