/* What visits take: by the sizes of a form, of which some change from rank to rank, and by plans of what their requests do. */
#include "sim/memory/allocator/visit_forms.h"

#include "base/grow.h"
#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"

/* Behind the deaths that follow step i, among which is its own; i: that is not there. */
static size_t end_of_passing(const spw_visit_step *step, size_t i, size_t end) {
    bool dies = false;
    size_t at = i + 1;
    for (; at < end && step[at].kind == SPW_STEP_DEATH && !dies; at++) dies = step[at].place == step[i].place;
    return dies ? at : i;
}

/* Of a part whose steps are there. */
static void add_few(spw_visit_forms *all, spw_visit_part *part) {
    const spw_visit_step *step = all->step + part->step;
    size_t end = part->steps, own_death = SIZE_MAX;
    while (end > 0 && step[end - 1].kind == SPW_STEP_DEATH) end--;
    for (size_t i = 0; i < end; i++) {
        if (i == own_death) continue;
        spw_visit_step *few = &all->step[all->steps++];
        *few = step[i];
        if (few->kind == SPW_STEP_DEATH) continue;
        const size_t dead = end_of_passing(step, i, end);
        if (dead > i) own_death = dead - 1;
        if (dead > i || i + 1 == end) few->kind = SPW_STEP_PASSES;
    }
    part->few = all->steps - part->step - part->steps;
}

/* What births of these steps need. */
static void find_needs(const spw_visit_step *step, size_t steps, size_t sizes, spw_visit_needs *needs) {
    uint16_t births[SPW_VISIT_SIZES] = {0}, sum = 0;
    bool passes[SPW_VISIT_SIZES] = {false}, passed = false;
    for (size_t i = 0; i < steps; i++) {
        if (step[i].kind == SPW_STEP_BIRTH) births[step[i].size]++;
        if (step[i].kind == SPW_STEP_PASSES) passes[step[i].size] = true;
    }
    for (size_t k = 0; k < sizes; k++) {
        if (births[k] == 0 && !passes[k]) continue;
        passed = passed || passes[k];
        sum = (uint16_t)(sum + births[k]);
        needs->need[needs->needs++] = (spw_visit_need){(uint16_t)(sum + passed), (uint8_t)k};
    }
}

/* Rooms of each size, and those that had to be there from the beginning. */
typedef struct rooms {
    uint16_t there[SPW_VISIT_SIZES], needed[SPW_VISIT_SIZES];
} rooms;

/* The smallest room of that size or of a larger one, which is to be there. */
static size_t room_for(size_t size, rooms *r) {
    for (size_t k = size + 1; k-- > 0;)
        if (r->there[k] > 0) return k;
    r->needed[size]++;
    r->there[size]++;
    return size;
}

/* What births need where deaths make room: each strikes out the smallest of the rooms that is large enough for it, and each death gives a
 * room of its bytes. If the blocks are these rooms, or larger and more, all find room, whatever the allocator does. For let each block hold
 * one room, or one in reserve, or one tensor that has none in reserve, at most. A birth takes the smallest free part that there is. What
 * stood there is from now on where the struck room was, which is as large. If nothing stood there, that place is in reserve for the tensor,
 * and a room when it dies. Where a tensor without reserve dies, no room is in its block, which has one for it now. */
static void find_turns(const spw_visit_step *few, spw_visit_part *part) {
    rooms r = {{0}, {0}};
    uint16_t sum = 0;
    part->first_stays = part->few > 0 && few->kind == SPW_STEP_BIRTH;
    for (size_t i = 1; i < part->few; i++)
        if (few[i].kind == SPW_STEP_DEATH && few[i].place == few->place) part->first_stays = false;
    for (size_t i = part->first_stays ? 1 : 0; i < part->few; i++) {
        const size_t size = few[i].size;
        if (few[i].kind == SPW_STEP_DEATH)
            r.there[size]++;
        else if (few[i].kind == SPW_STEP_PASSES)
            (void)room_for(size, &r);
        else
            r.there[room_for(size, &r)]--;
    }
    for (size_t k = 0; k < part->sizes; k++) {
        sum = (uint16_t)(sum + r.needed[k]);
        if (r.needed[k] > 0) part->turns.need[part->turns.needs++] = (spw_visit_need){sum, (uint8_t)k};
    }
}

/* Of a part whose few steps are there. The last quarter of them is late: behind a death most of what it takes to follow all is done, and
 * what it needs is there in nearly all cases. */
static void find_late(const spw_visit_forms *all, spw_visit_part *part) {
    const spw_visit_step *few = all->step + part->step + part->steps;
    size_t at = part->few - part->few / 4;
    while (at > 0 && at < part->few && few[at - 1].kind != SPW_STEP_DEATH) at++;
    part->begin_late = at;
    find_turns(few, part);
    find_needs(few, part->few, part->sizes, &part->all);
    find_needs(few + at, part->few - at, part->sizes, &part->late);
}

/* Those of one class, the largest first. */
static void add_sizes(const spw_visit_form *form, uint64_t classes, spw_size_class class,
                      const spw_visit_size *size, spw_visit_part *part) {
    for (size_t k = 0; k < form->sizes; k++) {
        if (spw_class_of(classes, k) != class) continue;
        size_t at = part->sizes++;
        for (; at > 0 && size[part->size[at - 1]].bytes < size[k].bytes; at--)
            part->size[at] = part->size[at - 1];
        part->size[at] = (uint8_t)k;
    }
}

/* The steps of the sizes of one class. Places are taken again as soon as they are left. */
static void add_part(spw_visit_forms *all, const spw_visit_form *form, uint64_t classes, spw_size_class class,
                     const spw_visit_size *size, spw_visit_part *part) {
    const spw_visit_event *event = all->event + form->event;
    uint8_t place[SPW_VISIT_EVENTS], size_at[SPW_VISIT_SIZES] = {0};
    uint64_t taken = 0;
    *part = (spw_visit_part){.step = all->steps};
    add_sizes(form, classes, class, size, part);
    for (size_t i = 0; i < part->sizes; i++) size_at[part->size[i]] = (uint8_t)i;
    for (size_t i = 0; i < form->events; i++) {
        if (spw_class_of(classes, event[i].size) != class) continue;
        if (event[i].born) place[i] = (uint8_t)__builtin_ctzll(~taken);
        const uint8_t at = place[event[i].birth];
        const uint64_t bit = (uint64_t)1 << at;
        taken ^= bit;
        if ((size_t)__builtin_popcountll(taken) > part->most_live)
            part->most_live = (size_t)__builtin_popcountll(taken);
        all->step[all->steps++] = (spw_visit_step){bit | bit << SPW_VISIT_PLACES, at, size_at[event[i].size],
                                                   event[i].born ? SPW_STEP_BIRTH : SPW_STEP_DEATH};
    }
    part->steps = all->steps - part->step;
    add_few(all, part);
    find_late(all, part);
}

spw_status spw_visit_plan_of(spw_visit_forms *all, size_t which, uint64_t classes, const spw_visit_size *size,
                             size_t *out) {
    spw_visit_form *form = &all->form[which];
    size_t p = 0;
    while (p < form->plans && form->plan[p].classes != classes) p++;
    *out = p;
    if (p < form->plans || p == SPW_VISIT_PLANS) return SPW_OK;
    const spw_status status =
        SPW_GROW(all->steps, all->steps + 2 * form->events, &all->step_room, &all->step);
    if (status != SPW_OK) return status;
    spw_visit_plan *plan = &form->plan[form->plans++];
    plan->classes = classes;
    add_part(all, form, classes, SPW_SIZE_LARGE, size, &plan->large);
    add_part(all, form, classes, SPW_SIZE_SMALL, size, &plan->small);
    return SPW_OK;
}

static void add_births(spw_visit_sum *sum, uint64_t births, uint64_t bytes, uint64_t beside) {
    sum->bytes += births * (bytes + beside);
    spw_raise_to(&sum->most, bytes);
}

/* Most that is live at once. */
static uint64_t most_of(const spw_visit_form *form, const spw_memory_event *first) {
    uint64_t live = 0, most = 0;
    for (size_t c = 0; c < form->changes; c++) {
        live += (uint64_t)form->change[c].rise * first[form->first[form->change[c].size]].bytes;
        spw_raise_to(&most, live);
    }
    return most;
}

void spw_visit_add_size(const spw_visit_form *form, size_t k, uint64_t asked, spw_visit_size *size,
                        spw_visit_total *total) {
    const uint64_t rounded = spw_visit_bytes(asked);
    const uint32_t pool = spw_pool_of(form->stream[k], rounded);
    size[k] = (spw_visit_size){rounded, (uint8_t)pool};
    total->too_much = total->too_much || asked > SPW_VISIT_BYTES;
    if (total->too_much || rounded == 0) return; /* of 0 bytes nothing is allocated */
    total->others = total->others || pool > SPW_SMALL_POOL;
    if (pool == SPW_SMALL_POOL) {
        total->number = (total->number ^ (rounded << 5 | k)) * SPW_VISIT_FACTOR;
        total->classes |= (uint64_t)SPW_SIZE_SMALL << 2 * k;
        add_births(&total->small, form->births[k], rounded, 0);
    } else {
        total->classes |= (uint64_t)SPW_SIZE_LARGE << 2 * k;
        add_births(&total->large, form->births[k], rounded, SPW_SMALL_REQUEST);
    }
}

/* What follows from its sizes. false: it has more than can be looked through. */
static bool measure(const spw_event_list *list, const spw_visit_form *form, spw_event_visit *v,
                    spw_visit_size *size) {
    v->total = (spw_visit_total){.number = form->number};
    for (size_t k = 0; k < form->sizes; k++)
        spw_visit_add_size(form, k, list->event[v->begin + form->first[k]].bytes, size, &v->total);
    if (v->total.too_much) return false;
    v->requested = most_of(form, &list->event[v->begin]);
    return v->total.small.bytes + v->total.large.bytes <= SPW_VISIT_BYTES;
}

spw_status spw_visit_outline(const spw_event_list *list, spw_event_visit *v) {
    spw_visit_forms *all = list->forms;
    const spw_visit_form *form = &all->form[v->form];
    size_t plan = 0;
    v->outlined = measure(list, form, v, all->size + v->size);
    if (!v->outlined) return SPW_OK;
    const spw_status status = spw_visit_plan_of(all, v->form, v->total.classes, all->size + v->size, &plan);
    v->plan = (uint16_t)plan;
    v->outlined = plan < SPW_VISIT_PLANS;
    if (v->outlined)
        v->most = v->requested + form->most_live * SPW_BLOCK_SMALLEST +
                  form->plan[plan].large.most_live * SPW_SMALL_REQUEST;
    return status;
}
