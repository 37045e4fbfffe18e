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

/* A form where its sizes are of these classes: what is not of the first stream's small pool, and what is. */
typedef struct spw_visit_plan {
    uint64_t classes; /* two bits a size */
    spw_visit_part large, small;
} spw_visit_plan;

/* A size of a visit. */
typedef struct spw_visit_size {
    uint64_t asked;
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
    uint8_t changing[SPW_VISIT_SIZES]; /* those whose bytes change, rising, */
    size_t changings;
    uint32_t changes_of;                        /* and as bits */
    spw_visit_change change[SPW_VISIT_CHANGES]; /* what is live most of, one top after the other */
    size_t changes;
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

static inline spw_size_class spw_class_of(uint64_t classes, size_t size) {
    return (spw_size_class)(classes >> 2 * size & 3);
}

SPW_MUST_CHECK spw_status spw_visit_forms_copy(const spw_visit_forms *from, spw_visit_forms **out);
void spw_visit_forms_destroy(spw_visit_forms *forms); /* NULL is fine */

#endif
