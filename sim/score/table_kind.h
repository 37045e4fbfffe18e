/* What a table of figures holds: told by its columns, read once. */
#ifndef SPW_SIM_SCORE_TABLE_KIND_H
#define SPW_SIM_SCORE_TABLE_KIND_H

typedef enum spw_table_kind {
    SPW_TABLE_OTHER,     /* runs of compiled programs, or what cannot be read */
    SPW_TABLE_RUNS,      /* measured runs of Megatron-Core: sim/score/megatron/measured_score.h */
    SPW_TABLE_PHASES,    /* of such runs */
    SPW_TABLE_CEILINGS,  /* speeds of single calls: nothing to score */
    SPW_TABLE_BARS,      /* of a published figure: sim/score/figures/score_layer_memory.h */
    SPW_TABLE_DISPATCH,  /* our own dispatch and combine: sim/time/dispatch_time.h */
    SPW_TABLE_LAYERS,    /* whole layers of our own kernels: sim/score/kernels/own_layer_score.h */
    SPW_TABLE_TRAININGS, /* published training runs, a recipe a row: sim/score/runs/run_job.h */
    SPW_TABLE_WHOLE,     /* measured runs of whole models: sim/score/whole/whole_cell.h */
    SPW_TABLE_BARE,      /* published benchmarks of single layers: sim/score/bare/bare_score.h */
    SPW_TABLE_KINDS
} spw_table_kind;

spw_table_kind spw_table_kind_of(const char *path);

#endif
