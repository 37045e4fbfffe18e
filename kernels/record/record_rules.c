#include "kernels/record/record_rules.h"

#include "reference/capacity.h"

size_t spw_record_tokens(const spw_record *r) { return r->sequences * r->sequence_length; }

size_t spw_record_buffer(const spw_record *r, const spw_record_scheme *s) {
    const double factor = (double)s->factor_thousandths / 1000;
    const size_t choices = spw_record_tokens(r) * r->top_k, experts = r->experts / r->ranks;
    const size_t asked = (size_t)((double)choices * factor), all = r->ranks * choices;
    if (s->rule == SPW_RECORD_CAPACITY)
        return r->sequences * r->experts *
               spw_ref_capacity_maxtext(r->sequence_length, r->top_k, r->experts, factor);
    if (s->rule == SPW_RECORD_EXPERT) return asked > 0 && asked < all ? asked : all;
    return asked > 0 ? asked : r->ranks * spw_record_tokens(r) * (experts < r->top_k ? experts : r->top_k);
}

spw_status spw_record_keep(const spw_record *r, const spw_record_scheme *s, size_t buffer, uint8_t *keep) {
    const spw_choices choices = {r->ranks * spw_record_tokens(r), r->top_k, r->experts, r->expert};
    size_t dropped = 0;
    if (s->rule == SPW_RECORD_CAPACITY)
        return spw_ref_keep_by_position(choices, r->sequence_length, buffer / (r->sequences * r->experts),
                                        keep, &dropped);
    if (s->rule == SPW_RECORD_SOURCE)
        return spw_ref_keep_by_source_rank(choices, r->ranks, buffer, keep, &dropped);
    return spw_ref_keep_by_expert_id(choices, r->ranks, buffer, keep, &dropped);
}
