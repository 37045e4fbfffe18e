/* One row of a table of published or compiled runs: the job it describes and what became of it. */
#ifndef SPW_SIM_SCORE_PUBLISHED_SCORE_CELL_H
#define SPW_SIM_SCORE_PUBLISHED_SCORE_CELL_H

#include "base/status.h"
#include "sim/job/job.h"
#include "sim/machine/time_stack.h"
#include "sim/read/csv.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>

typedef struct spw_stack spw_stack;

typedef enum spw_outcome { SPW_OUTCOME_FITS, SPW_OUTCOME_OOM, SPW_OUTCOME_UNKNOWN } spw_outcome;
const char *spw_outcome_name(spw_outcome outcome); /* "fits", "oom", "" */

/* A row of a profile gives the seconds of one family of kernels. */
#define SPW_KERNEL_LIST(X) \
    X(NONE, "") \
    X(PRODUCTS, "products") \
    X(ATTENTION, "attention") \
    X(MOVEMENTS, "movements") \
    X(SCATTERS, "scatter_adds") \
    X(COLLECTIVES, "collectives") \
    X(EXCHANGES, "exchanges") \
    X(PRODUCTS_EXCHANGES, "products+exchanges") \
    X(COLLECTIVES_EXCHANGES, "collectives+exchanges")
#define SPW_KERNEL_ENUM(name, text) SPW_KERNEL_##name,
typedef enum spw_kernel_family { SPW_KERNEL_LIST(SPW_KERNEL_ENUM) SPW_KERNEL_COUNT } spw_kernel_family;
#undef SPW_KERNEL_ENUM
const char *spw_kernel_name(spw_kernel_family family);

enum { SPW_CELL_TEXT = 128, SPW_CELL_REASON = 256, SPW_CELL_PEAKS = 96 };

typedef struct spw_score_cell {
    char table[SPW_CELL_TEXT]; /* file name without its folder */
    char id[SPW_CELL_TEXT];
    size_t line;
    char stack_name[SPW_CELL_TEXT], scheme_text[SPW_SCHEME_TEXT];
    char precision[SPW_CELL_TEXT]; /* as the row says it; "bf16" where it says nothing */
    char skipped
        [SPW_CELL_REASON]; /* why the row is not predicted; "" when it is. Then only the fields above are set */
    const spw_stack *stack;
    spw_job job; /* one batch size */
    spw_scheme scheme;
    double pool_bytes, budget_bytes; /* what the compiler plans for; what may be used */
    spw_outcome status;
    double argument_gib, temporary_gib, total_gib; /* NAN when the row gives none */
    double peak_gib
        [SPW_CELL_PEAKS]; /* [peaks] values that live at the fullest moment; none when the row gives none */
    size_t peaks;
    const spw_time_stack *time;  /* NULL when the stack has no time model, or not of this job */
    double tokens_per_s_per_gpu; /* NAN when the row gives none */
    bool real_text;              /* its dataset is not synthetic */
    spw_kernel_family family;    /* SPW_KERNEL_NONE: a row of a run, not of a profile */
    double kernel_s;             /* of the family, in one step of one GPU */
} spw_score_cell;

/* All stacks that ship, or one that the caller names. */
typedef struct spw_score_stacks {
    spw_stack *stack;
    size_t count;
    bool forced; /* one stack for every row, whatever the row names */
    spw_time_stack *time;
    size_t times;
    bool time_forced;
} spw_score_stacks;
/* NULL: all presets. A forced stack that is a preset brings the time stack of its name, if there is one. */
SPW_MUST_CHECK spw_status spw_score_stacks_open(const char *name, const char *time_name,
                                                spw_score_stacks *out);
void spw_score_stacks_close(spw_score_stacks *stacks);

/* A bad number or a missing column is SPW_EFORMAT with file and line; a model, cluster, scheme, policy or
 * stack that is not known is a reason in `skipped`. */
SPW_MUST_CHECK spw_status spw_score_cell_read(const spw_csv *csv, size_t row, const spw_score_stacks *stacks,
                                              spw_score_cell *out);

#endif
