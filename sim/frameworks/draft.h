/* A job under construction from what a file says: facts that rules read, keys that they put, and notes of what was not taken. */
#ifndef SPW_SIM_FRAMEWORKS_DRAFT_H
#define SPW_SIM_FRAMEWORKS_DRAFT_H

#include "sim/frameworks/framework.h"
#include "sim/job/job_words.h"

typedef enum spw_note_kind {
    SPW_NOTE_LACKS,   /* no counterpart: it may matter, and nothing here says it */
    SPW_NOTE_MORE,    /* the same, and what is planned in its place may need less memory than the run */
    SPW_NOTE_UNSAID,  /* the value is a variable that the file does not set */
    SPW_NOTE_ASSUMED, /* taken where the file is silent or says less */
    SPW_NOTE_TWICE,   /* given twice with two values; the last counts */
    SPW_NOTE_OFF,     /* not known here, and off: false, 0, None */
    SPW_NOTE_QUIET,   /* plays no part in memory and time */
    SPW_NOTE_KINDS
} spw_note_kind;

enum {
    SPW_DRAFT_FACTS = 192,
    SPW_DRAFT_KEYS = 64,
    SPW_DRAFT_KEY = 64,
    SPW_DRAFT_VALUE = 1200,
    SPW_DRAFT_LABEL = 224,
    SPW_NOTE_WHY = 240
};

typedef struct spw_draft_note {
    spw_note_kind kind;
    char name[SPW_ENTRY_NAME], value[64], why[SPW_NOTE_WHY];
    size_t line;
    const char *
        key; /* of SPW_NOTE_MORE and `doubt`: the job's key with which an option says better; NULL: none does */
    bool less;    /* what is planned in its place needs more memory than the file does */
    bool but_amd; /* of SPW_NOTE_MORE: stacks of AMD's GPUs count it */
    bool doubt;   /* of SPW_NOTE_UNSAID: what is planned in its place may need less memory, too */
    const spw_file_entry *entry; /* which setting it is of; NULL: of none */
} spw_draft_note;

typedef struct spw_draft_fact_entry {
    const char *name;            /* "@micro_batch" */
    const char *value;           /* our word for it */
    const spw_file_entry *entry; /* who says it; NULL: the framework, where the file is silent */
    bool used;                   /* a rule has looked at it */
} spw_draft_fact_entry;

typedef struct spw_draft_key {
    char key[SPW_DRAFT_KEY], value[SPW_DRAFT_VALUE], label[SPW_DRAFT_LABEL];
    const spw_file_entry *entry; /* who says it; NULL: the file as a whole, or nobody */
} spw_draft_key;

/* Axes of MaxText's mesh, within a node and between nodes: GPUs of each; 0: what is left of them. */
enum {
    SPW_AXIS_EXPERT,
    SPW_AXIS_FSDP,
    SPW_AXIS_TENSOR,
    SPW_AXIS_CONTEXT,
    SPW_AXIS_PIPELINE,
    SPW_AXIS_DATA,
    SPW_AXES
};
typedef struct spw_draft_mesh {
    bool there;
    size_t node[SPW_AXES], nodes[SPW_AXES];
} spw_draft_mesh;

/* All axes of one kind together; one that is not there is 1. */
static inline size_t spw_mesh_product(const size_t axis[SPW_AXES]) {
    size_t product = 1;
    for (size_t i = 0; i < SPW_AXES; i++) product *= axis[i] > 0 ? axis[i] : 1;
    return product;
}

struct spw_draft {
    const char *where; /* the file */
    const spw_framework *framework;
    const char *title; /* whose of several that the framework's row is of; NULL: the row's own */
    spw_file_entries entries;
    spw_draft_fact_entry fact[SPW_DRAFT_FACTS];
    size_t facts;
    spw_draft_key key[SPW_DRAFT_KEYS];
    size_t keys;
    spw_draft_note *note;
    size_t notes, note_room;
    spw_draft_mesh mesh; /* of MaxText */
    size_t devices; /* of torchtitan, where the file has a size for every axis; 0: as many as there are */
    size_t taken;   /* entries that became facts or keys */
    size_t
        micro_batch; /* sequences of one micro-batch, of which the number follows from the batch; 0: keys say it */
};

/* The framework's rows applied to the entries, then its rules. `framework` NULL: the one that the entries show. SPW_ECONFIG names
 * file, line and what would be right. Closed by spw_draft_close, whatever this returned. */
SPW_MUST_CHECK spw_status spw_draft_read(const char *path, const spw_framework *framework, spw_draft *out);
/* The same of a text, which `where` names in messages. */
SPW_MUST_CHECK spw_status spw_draft_parse(const char *where, const char *text, size_t length,
                                          const spw_framework *framework, spw_draft *out);
/* What a framework makes of the entries, which are there. */
SPW_MUST_CHECK spw_status spw_draft_fill(spw_draft *draft);
void spw_draft_close(spw_draft *draft);
const char *spw_draft_title(const spw_draft *draft);

/* What becomes of entry i. Every setting of a file is one of these. */
typedef enum spw_draft_use {
    SPW_USE_KEY,  /* a value of the job is its */
    SPW_USE_READ, /* it counts: a rule has read it beside others */
    SPW_USE_NOTE  /* a note says why not, or why not whole */
} spw_draft_use;
spw_draft_use spw_draft_use_of(const spw_draft *draft, size_t i);

/* For rules. The value of a fact; NULL: nobody says it, or that it is nothing. */
const char *spw_draft_fact(spw_draft *draft, const char *fact);
bool spw_draft_is(spw_draft *draft, const char *fact, const char *value);
bool spw_draft_on(spw_draft *draft, const char *fact); /* "true" */
/* A whole number in [least, 2^26], else `fallback` where nobody says it. SPW_ECONFIG names the place. */
SPW_MUST_CHECK spw_status spw_draft_count(spw_draft *draft, const char *fact, size_t least, size_t fallback,
                                          size_t *out);

/* Puts a key unless it is there. `fact` is who says it; NULL: the file as a whole. The value is YAML. */
SPW_MUST_CHECK spw_status spw_draft_put(spw_draft *draft, const char *key, const char *value,
                                        const char *fact);
SPW_MUST_CHECK spw_status spw_draft_put_count(spw_draft *draft, const char *key, size_t value,
                                              const char *fact);
SPW_MUST_CHECK spw_status spw_draft_put_text(spw_draft *draft, const char *key, const char *text,
                                             const char *fact);           /* quoted */
const char *spw_draft_key_value(const spw_draft *draft, const char *key); /* NULL: not put */

/* Notes about a fact's entry, where the file says it; about `what` itself where `fact` is NULL. */
SPW_MUST_CHECK spw_status spw_draft_note_fact(spw_draft *draft, spw_note_kind kind, const char *fact,
                                              const char *why);
SPW_MUST_CHECK spw_status spw_draft_note_text(spw_draft *draft, spw_note_kind kind, const char *what,
                                              const char *why);
/* SPW_NOTE_LACKS, of what needs less memory than is planned. */
SPW_MUST_CHECK spw_status spw_draft_note_less(spw_draft *draft, const char *fact, const char *why);
SPW_MUST_CHECK spw_status spw_draft_note_text_less(spw_draft *draft, const char *what, const char *why);
/* SPW_NOTE_MORE, unless an option gives `key` (borrowed; NULL: none can). */
SPW_MUST_CHECK spw_status spw_draft_note_more(spw_draft *draft, const char *fact, const char *key,
                                              const char *why);
/* The same of what stacks of AMD's GPUs count: a doubt on others. */
SPW_MUST_CHECK spw_status spw_draft_note_more_but_amd(spw_draft *draft, const char *fact, const char *why);

/* Of a row that counts and whose value is a variable that the file does not set: is what is planned in its place a doubt? It is none of GPUs,
 * which the cluster says. *key as in spw_draft_note. */
bool spw_draft_unset_counts(const spw_framework_row *row, const char **key);
/* What to do about it. */
void spw_draft_unset_why(const spw_file_entry *entry, spw_file_kind kind, const char *key,
                         char out[SPW_NOTE_WHY]);

#endif
