#include "sim/model/attention.h"

#include "sim/model/config/model_reading.h"

#include <string.h>

static const spw_attention_kind *const kinds[] = {&spw_grouped_attention, &spw_latent_attention,
                                                  &spw_factored_attention, &spw_listed_attention, NULL};

const spw_attention_kind *spw_attention_kind_of(const spw_model *m) {
    return m->attention != NULL ? m->attention : kinds[0];
}

const spw_attention_kind *spw_attention_kind_at(size_t i) { return kinds[i]; }

const spw_attention_kind *spw_attention_said(const spw_reading *in) {
    for (size_t i = 0; kinds[i] != NULL; i++)
        if (kinds[i]->mark != NULL && spw_reading_at(in->root, kinds[i]->mark) != NULL) return kinds[i];
    return kinds[0];
}

spw_attention_widths spw_attention_widths_of(const spw_model *m) {
    return spw_attention_kind_of(m)->widths(m);
}

bool spw_attention_is_grouped(const spw_model *m) { return spw_attention_kind_of(m) == kinds[0]; }
bool spw_attention_is_latent(const spw_model *m) { return spw_attention_kind_of(m)->latent; }
bool spw_attention_is_listed(const spw_model *m) { return spw_attention_kind_of(m)->list == NULL; }

static const spw_attention_size *find_size(const char *fact) {
    for (size_t i = 0; kinds[i] != NULL; i++)
        for (const spw_attention_size *s = kinds[i]->sizes; s != NULL && s->key != NULL; s++)
            if (strcmp(s->fact, fact) == 0) return s;
    return NULL;
}

size_t spw_attention_size_of(const spw_model *m, const char *fact) {
    const spw_attention_size *s = find_size(fact);
    return s == NULL ? 0 : *(const size_t *)(const void *)((const char *)m + s->offset);
}

const char *spw_attention_size_key(const char *fact) {
    const spw_attention_size *s = find_size(fact);
    return s == NULL ? NULL : s->key;
}
