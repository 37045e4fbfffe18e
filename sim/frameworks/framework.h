/* Training frameworks whose configurations become jobs: one table of names each. A row ties a name of theirs to a key of a job, or to a
 * fact ("@micro_batch"), of which the framework's rules make keys: what depends on several of their names, such as the scheme. The same
 * rows print a job as theirs. To let a name count is to add its row. */
#ifndef SPW_SIM_FRAMEWORKS_FRAMEWORK_H
#define SPW_SIM_FRAMEWORKS_FRAMEWORK_H

#include "sim/frameworks/file_entries.h"
#include "sim/machine/cluster.h"

#include <stdbool.h>

typedef struct spw_draft spw_draft;
typedef struct spw_flag_draft spw_flag_draft;

/* Values that are called otherwise. */
typedef struct spw_word_pair {
    const char *theirs, *ours; /* NULL theirs ends the list */
} spw_word_pair;

#define SPW_AS_IN_THE_MODEL "@"

typedef struct spw_framework_row {
    const char
        *theirs; /* '*' stands for any letters; SPW_AS_IN_THE_MODEL: as in a config.json; NULL: the end */
    const char *ours;            /* key of a job; "@..." a fact; NULL: nothing says it */
    const spw_word_pair *values; /* of which other words are refused; NULL: values are the same */
    const char *why; /* without `ours`: what is not modelled; NULL: it plays no part in memory and time */
    bool alias;      /* read, never printed */
    bool more;       /* with `why`: what is planned in its place may need less memory than the run */
    bool less;       /* the same: it needs more */
    bool quiet;      /* printed for who runs it; read, it plays no part */
} spw_framework_row;

/* What the framework takes where its files are silent. */
typedef struct spw_framework_default {
    const char *key, *value; /* of a job */
} spw_framework_default;

enum { SPW_FRAMEWORK_TABLES = 3 };

/* Where a cluster is replicas that each hold all state: how many there are, and the GPUs of the one that is planned; 0: all are. between:
 * how many of them lie on the axis between nodes, times those within one. */
typedef struct spw_settled {
    size_t replicas, gpus, between;
} spw_settled;

typedef struct spw_framework {
    const char *name, *title;
    /* What is planned where a file of Megatron-Core says no format; NULL: in the words of Megatron-LM. */
    const char *no_precision;
    bool
        all_arguments; /* its files have all that counts of a model: what they leave out is Megatron-Core's own */
    const char *source; /* of names and defaults: repository, commit, files */
    const spw_framework_row *rows[SPW_FRAMEWORK_TABLES]; /* looked through in this order; NULL: no more */
    const char *const *sections;         /* names in front of a point that do not matter; NULL: none */
    const char *const *marks;            /* by which its files are known; ended by NULL */
    size_t needs;                        /* of so many first marks one must be there; 0: any will do */
    const spw_framework_default *silent; /* facts where the file is silent; ended by a NULL key; NULL: none */
    const spw_framework_default *defaults; /* ended by a NULL key; NULL: none */
    /* What is known of a setting that no row counts, and of which kind a note of it is; NULL: nothing, or there is none such. */
    const char *(*known)(const char *name, const char *value, int *note_kind);
    spw_status (*compose)(spw_draft *draft);
    /* What is known once the cluster is: `nodes` of `gpus` each; of TPUs these are slices. SPW_ECONFIG: no job says that. NULL: nothing is. `out`: zeroed before. */
    spw_status (*settle)(const spw_draft *draft, const spw_cluster *cluster, size_t nodes, size_t gpus,
                         spw_settled *out);
    spw_status (*express)(spw_flag_draft *flags); /* NULL: nothing is printed for it */
    const char *const *
        yours; /* what a run needs besides, and no job says: lines of arguments, ended by NULL; NULL: nothing is printed */
    enum { SPW_PRINT_ARGUMENTS, SPW_PRINT_YAML, SPW_PRINT_PRIMUS, SPW_PRINT_PAIRS, SPW_PRINT_DOTTED } print;
} spw_framework;

extern const spw_framework spw_framework_megatron, spw_framework_bridge, spw_framework_primus,
    spw_framework_swift, spw_framework_nemo, spw_framework_verl, spw_framework_maxtext,
    spw_framework_torchtitan, spw_framework_deepspeed, spw_framework_finetune;

/* Megatron-Core's names, of all that train through it. */
extern const spw_framework_row spw_framework_megatron_rows[];

/* The row's name of theirs. */
const char *spw_framework_row_name(const spw_framework_row *row);

/* NULL: there is none of that name. */
const spw_framework *spw_framework_find(const char *name, size_t length);
const char *spw_framework_names(void); /* "megatron, bridge, ...", for messages */

/* Whose the entries are: the framework of which most marks are there; NULL: nobody's. */
const spw_framework *spw_framework_of(const spw_file_entries *entries);

/* An entry's name without what only says where it stands: "modules.pre_trainer.overrides.", "MODEL_ARGS.", dashes. Returns `out`. */
const char *spw_framework_plain_name(const spw_framework *framework, const char *name,
                                     char out[SPW_ENTRY_NAME]);

/* The row of such a name; NULL: none. */
const spw_framework_row *spw_framework_row_of(const spw_framework *framework, const char *name);
/* The row that says our key or fact; NULL: the framework has no name for it. */
const spw_framework_row *spw_framework_row_for(const spw_framework *framework, const char *ours);

/* Names that play no part in memory and time in any framework: learning rates, logs, checkpoints, data. */
bool spw_framework_is_quiet(const char *name);

#endif
