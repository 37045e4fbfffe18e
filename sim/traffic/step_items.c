#include "sim/traffic/step_items.h"

#define OPERATION_TEXT(name, text) text,
#define PURPOSE_TEXT(name, text, help) text,
#define PURPOSE_HELP(name, text, help) help,
const char *spw_operation_name(spw_operation operation) {
    static const char *const names[] = {SPW_OPERATION_LIST(OPERATION_TEXT)};
    return names[operation];
}
const char *spw_purpose_name(spw_purpose purpose) {
    static const char *const names[] = {SPW_PURPOSE_LIST(PURPOSE_TEXT)};
    return names[purpose];
}
const char *spw_purpose_help(spw_purpose purpose) {
    static const char *const helps[] = {SPW_PURPOSE_LIST(PURPOSE_HELP)};
    return helps[purpose];
}
const char *spw_step_place_name(spw_step_place place) {
    static const char *const names[] = {"MoE layer", "dense layer", "ends", "step"};
    return names[place];
}
const char *spw_step_group_name(spw_step_group group) {
    static const char *const names[] = {"expert",  "fsdp",     "all",  "pipeline", "tensor",
                                        "context", "replicas", "host", "batch",    "fsdp_batch"};
    return names[group];
}

void spw_step_add(spw_step_traffic *traffic, spw_step_item item, uint64_t elements, size_t element_bytes) {
    uint64_t whole = 0;
    if (traffic->group_size[item.group] < 2 || elements == 0 || item.count == 0) return;
    const bool overflow = traffic->items == SPW_STEP_ITEMS ||
                          __builtin_mul_overflow(elements, (uint64_t)element_bytes, &item.bytes) ||
                          __builtin_mul_overflow(item.bytes, (uint64_t)item.count, &whole) ||
                          whole > INT64_MAX;
    traffic->overflow |= overflow;
    if (!overflow) traffic->item[traffic->items++] = item;
}

size_t spw_step_item_times(const spw_step_traffic *t, const spw_step_item *item) {
    return item->in_step > 0 ? item->in_step : t->times[item->place];
}

double spw_step_item_wire_bytes(const spw_step_traffic *t, const spw_step_item *item) {
    const double size = (double)t->group_size[item->group],
                 stages = (double)t->group_size[SPW_GROUP_PIPELINE];
    const double bytes =
        (double)item->bytes * (double)item->count * (double)spw_step_item_times(t, item) / stages;
    if (item->operation == SPW_OPERATION_SEND || item->operation == SPW_OPERATION_HOST_COPY) return bytes;
    return (item->operation == SPW_OPERATION_ALL_REDUCE ? 2.0 : 1.0) * bytes * (size - 1.0) / size;
}

double spw_step_purpose_wire_bytes(const spw_step_traffic *t, spw_purpose purpose) {
    double sum = 0.0;
    for (size_t i = 0; i < t->items; i++)
        if (t->item[i].purpose == purpose) sum += spw_step_item_wire_bytes(t, &t->item[i]);
    return sum;
}
