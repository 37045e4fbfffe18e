/* What the words of a table of published runs mean as keys of a job and options of a scheme: the tables of run_terms.c, one row a
 * word. To let a job say more of a run is to add a row there. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_TERMS_H
#define SPW_SIM_SCORE_RUNS_RUN_TERMS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum spw_run_framework {
    SPW_RUN_MEGATRON,
    SPW_RUN_TORCHTITAN,
    SPW_RUN_COMPILED,
    SPW_RUN_FRAMEWORKS
} spw_run_framework;

/* A word of a column. */
typedef struct spw_run_term {
    const char *column, *word; /* NULL: every word that no row above has */
    bool within; /* the word stands somewhere in the column, in any case; else it is the whole of it */
    unsigned frameworks;     /* bits of those of which this row speaks; 0: of all */
    const char *scheme;      /* how the scheme of such a row begins; NULL: any */
    const char *key, *value; /* of the job; NULL: none; a NULL value: the word itself */
    const char *option;      /* of the scheme, "align=32"; NULL: none */
    const char
        *routing; /* a generator by which the row is routed, as --routing of plan; NULL: forced to balance */
    const char *refused; /* why no job says it: such a row gets no time; NULL: a job says it, or need not */
} spw_run_term;
extern const spw_run_term spw_run_terms[]; /* ended by a NULL column */

/* What a dispatcher is: a scheme, with full-iteration graphs or without. */
typedef struct spw_run_dispatcher {
    const char *word;
    spw_run_framework framework;
    const char *scheme;       /* with its options */
    const char *graph_scheme; /* the same inside one CUDA graph of the whole step; NULL: no scheme is */
} spw_run_dispatcher;
/* Of a word of the column; `source`: the release, which may not have it and takes another. NULL: not known. */
const spw_run_dispatcher *spw_run_dispatcher_find(const char *source, const char *word);
/* "alltoall, DeepEP, ...": for messages. */
const char *spw_run_dispatcher_words(void);

/* Is the whole step one CUDA graph? `graph`: the column's word. */
bool spw_run_graph_is_full(const char *graph);

/* What the recipes of a source set unless they say otherwise. */
typedef struct spw_run_default {
    const char *source; /* how the column source begins, in any case */
    const char *key, *value;
    bool fp8; /* of fp8 runs alone */
} spw_run_default;
extern const spw_run_default spw_run_defaults[]; /* ended by a NULL source; the first of a key counts */

/* What every run of a framework sets. */
typedef struct spw_run_always {
    spw_run_framework framework;
    const char *key, *value;
} spw_run_always;
extern const spw_run_always spw_run_always_set[]; /* ended by a NULL key */

#endif
