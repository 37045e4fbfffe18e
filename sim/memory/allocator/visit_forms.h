/* Visits of an event list, which differ in their bytes alone where they have one form: what is born and dies in which order, and which
 * births are of equal bytes. What follows from the form is found once. Of event_list.c, event_visit.c and
 * visit_outline.c only. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_VISIT_FORMS_H
#define SPW_SIM_MEMORY_ALLOCATOR_VISIT_FORMS_H

#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/event_list.h"

/* Longer visits, of more sizes or with more at once, are replayed event by event. */
enum {
    SPW_VISIT_EVENTS = 512,
    SPW_VISIT_SIZES = 24,
    SPW_VISIT_CHANGES = 192,
    SPW_VISIT_PLANS = 4,
    SPW_VISIT_TOPS = 32,
    SPW_VISIT_PLACES = 32 /* of which each has two rooms, and each of these a bit */
};
#define SPW_VISIT_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* of numbers of visits */
enum { SPW_SMALL_POOL = 1 };                          /* of the first stream */

/* An event of a form. */
typedef struct spw_visit_event {
    uint16_t birth; /* of a death: the event of its birth */
    uint8_t size;
    bool born;
} spw_visit_event;

/* A birth or a death of a part of a plan. */
typedef enum spw_step_kind { SPW_STEP_DEATH, SPW_STEP_BIRTH, SPW_STEP_PASSES } spw_step_kind;
typedef struct spw_visit_step {
    uint64_t rooms; /* bits of those of its place, */
    uint16_t place; /* which is no other's that is there at the same time */
    uint8_t size;   /* of those of the part */
    uint8_t kind;
} spw_visit_step;

/* Where a size is served. */
typedef enum spw_size_class { SPW_SIZE_NONE, SPW_SIZE_SMALL, SPW_SIZE_LARGE } spw_size_class;

/* So many births are of this size or of larger ones; of those that pass one is among them, if there is one. */
typedef struct spw_visit_need {
    uint16_t births;
    uint8_t size; /* of those of the part */
} spw_visit_need;

/* Of all sizes of some births, the largest first. */
typedef struct spw_visit_needs {
    spw_visit_need need[SPW_VISIT_SIZES];
    size_t needs;
} spw_visit_needs;

/* The events of a form of one class. */
typedef struct spw_visit_part {
    size_t step, steps; /* the first */
    size_t
        few; /* behind these: those that tell whether all of it finds room. Births that die at once, or are the last, pass: where
                   they stand is of no account */
    bool first_stays;          /* the first of the few is a birth without a death among them; */
    spw_visit_needs turns;     /* then, of the others; else of all; in which deaths make room */
    size_t begin_late;         /* among the few */
    spw_visit_needs all, late; /* of the few; of those from there on */
    size_t most_live;          /* at once */
    size_t sizes;
    uint8_t size[SPW_VISIT_SIZES]; /* of the form, the largest first when the plan was made */
} spw_visit_part;

/* A size that changes. */
typedef struct spw_visit_changing {
    uint64_t unit;
    uint8_t size, count;
    uint8_t pool; /* in a plan; of a form it says nothing */
} spw_visit_changing;

/* Bytes, and so many for each count of a cell. */
typedef struct spw_visit_line {
    uint64_t fixed, by[SPW_CELL_COUNTS];
} spw_visit_line;

/* Births of a plan, by counts. */
typedef struct spw_visit_sums {
    spw_visit_line bytes; /* all together, each as if it was rounded up by most */
    spw_visit_line most;  /* of one: the largest of these, not rounded but where it is fixed */
} spw_visit_sums;

/* A form where its sizes are of these classes: what is not of the first stream's small pool, and what is. */
typedef struct spw_visit_plan {
    uint64_t classes; /* two bits a size */
    spw_visit_part large, small;
    /* where bytes change by laws: */
    uint64_t least[SPW_CELL_COUNTS], most[SPW_CELL_COUNTS]; /* from here to there sizes have these classes */
    spw_visit_sums small_sums, large_sums;
    spw_visit_changing changing[SPW_VISIT_SIZES]; /* those of the form, */
    size_t smalls;                                /* of which so many, of the small pool, come first */
    bool others;                                  /* blocks of other streams */
} spw_visit_plan;

/* A size of a visit. */
typedef struct spw_visit_size {
    uint64_t bytes; /* as the allocator rounds them */
    uint8_t pool;
} spw_visit_size;

/* So many more of a size, or fewer. */
typedef struct spw_visit_change {
    uint8_t size;
    int8_t rise;
} spw_visit_change;

typedef struct spw_visit_form {
    uint64_t number; /* of its events */
    size_t event, events;
    size_t sizes, most_live;
    uint16_t first[SPW_VISIT_SIZES];  /* event of this size */
    uint16_t births[SPW_VISIT_SIZES]; /* of this size */
    uint8_t stream[SPW_VISIT_SIZES];
    spw_visit_changing changing[SPW_VISIT_SIZES]; /* those whose bytes change, rising, */
    size_t changings;
    spw_visit_change change[SPW_VISIT_CHANGES]; /* what is live most of, one top after the other */
    size_t changes;
    /* where bytes change by laws: */
    spw_size_law law[SPW_VISIT_SIZES];
    uint64_t bytes[SPW_VISIT_SIZES]; /* of those that do not */
    spw_visit_total fixed;           /* these together */
    uint64_t limit[SPW_CELL_COUNTS]; /* counts above are too much */
    spw_visit_line top[SPW_VISIT_TOPS];
    size_t tops; /* the most of these is live at most */
    spw_visit_plan plan[SPW_VISIT_PLANS];
    size_t plans;
} spw_visit_form;

struct spw_visit_forms {
    spw_visit_form *form;
    size_t forms, form_room;
    spw_visit_event *event; /* of all forms */
    size_t events, event_room;
    spw_visit_step *step; /* of all plans */
    size_t steps, step_room;
    spw_visit_size *size; /* of all visits */
};

/* As the allocator rounds it. */
static inline uint64_t spw_visit_bytes(uint64_t asked) {
    return (asked + SPW_BLOCK_SMALLEST - 1) & ~(SPW_BLOCK_SMALLEST - 1);
}

static inline uint64_t spw_visit_line_at(const spw_visit_line *line, const uint64_t *count) {
    return line->fixed + line->by[0] * count[0] + line->by[1] * count[1] + line->by[2] * count[2];
}

static inline spw_size_class spw_class_of(uint64_t classes, size_t size) {
    return (spw_size_class)(classes >> 2 * size & 3);
}

static const uint64_t SPW_VISIT_BYTES = (uint64_t)1 << 40; /* of the births of a visit together */

/* visit_outline.c: size k, of so many bytes, and what it adds. */
void spw_visit_add_size(const spw_visit_form *form, size_t k, uint64_t asked, spw_visit_size *size,
                        spw_visit_total *total);
/* The plan of these classes; SPW_VISIT_PLANS: there are too many. */
SPW_MUST_CHECK spw_status spw_visit_plan_of(spw_visit_forms *all, size_t form, uint64_t classes,
                                            const spw_visit_size *size, size_t *out);
/* What a visit takes, by the bytes of its events. */
SPW_MUST_CHECK spw_status spw_visit_outline(const spw_event_list *list, spw_event_visit *visit);

/* By which law bytes of an event change; NULL: they do not. */
static inline const spw_size_law *spw_law_of(const spw_size_law *law, size_t laws,
                                             const spw_memory_event *event) {
    if (event->kind >= laws || event->layer == SPW_NO_MOE_LAYER) return NULL;
    return law[event->kind].count < SPW_CELL_COUNTS ? &law[event->kind] : NULL;
}

SPW_MUST_CHECK spw_status spw_visit_forms_copy(const spw_visit_forms *from, spw_visit_forms **out);
void spw_visit_forms_destroy(spw_visit_forms *forms); /* NULL is fine */

#endif
