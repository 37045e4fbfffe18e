/* Events that leave the allocator as they found it: of event_list.c only. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_EVENT_VISIT_H
#define SPW_SIM_MEMORY_ALLOCATOR_EVENT_VISIT_H

#include "sim/memory/allocator/allocator.h"
#include "sim/memory/allocator/event_list.h"

#include <stdbool.h>
#include <stddef.h>

/* Not where free blocks are given back by age, grow, or are kept from small requests, nor where requests are rounded up further. */
bool spw_event_visit_can(const spw_allocator *allocator);
/* Does what the events of a visit do, and raises the peaks; false: something would not fit into what is free already, and nothing was
 * done. */
bool spw_event_visit_replay(const spw_event_list *list, size_t visit, spw_allocator *allocator);
/* Gives all events of a visit their bytes, where these are not their own. */
void spw_event_visit_spread(const spw_event_list *list, size_t visit);
void spw_event_list_forget_visits(spw_event_list *list);

#endif
