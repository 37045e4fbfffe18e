#include "sim/input/attention.h"

/* Its sizes are those of grouped queries. */
static spw_attention_widths widths(const spw_model *m) { return spw_grouped_attention.widths(m); }
/* All its matrices are in the model's file. */
static const spw_attention_kind listed_attention = {"grouped queries", NULL, widths};

static const spw_attention_kind *const kinds[] = {[SPW_ATTENTION_GQA] = &spw_grouped_attention,
                                                  [SPW_ATTENTION_MLA] = &spw_latent_attention,
                                                  [SPW_ATTENTION_LISTED] = &listed_attention};

const spw_attention_kind *spw_attention_kind_of(const spw_model *m) { return kinds[m->attention]; }

spw_attention_widths spw_attention_widths_of(const spw_model *m) {
    return spw_attention_kind_of(m)->widths(m);
}

bool spw_attention_is_latent(const spw_model *m) { return spw_attention_widths_of(m).latent > 0; }
