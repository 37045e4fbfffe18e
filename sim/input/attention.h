/* The model's own attention. A kind of it is one file, attention_NAME.c, and a row in attention.c: its keys in a config.json, its
 * matrices, the widths of what its core reads and gives. Attention of other layers is a list of a kind of its own (model_mixer.h). */
#ifndef SPW_SIM_INPUT_ATTENTION_H
#define SPW_SIM_INPUT_ATTENTION_H

#include "sim/input/matrices.h"

/* Elements a token of all heads, but for those of one head. Where several GPUs share the heads, of all of them. */
typedef struct spw_attention_widths {
    size_t key_dim, value_dim;         /* of a head: of queries and keys, of values */
    size_t query, key, value, context; /* which the core reads, and its output */
    size_t rotary_dim, rotated;        /* of a head that is rotated; of all that are */
    size_t latents, latent; /* low ranks that are normed and projected up, how many and of all; 0: none */
    size_t apart;           /* that go past them to the core */
    /* docs/schemes.md, section 7.4: written in a forward pass; kept between a layer's recomputation and its gradient, and where values
     * are copied out of the product that made them (joined: with keys). The hidden states around it are among them. */
    size_t written, kept, kept_copied;
} spw_attention_widths;
spw_attention_widths spw_attention_widths_of(const spw_model *model);

/* Keys and values of every head are made of a low rank. */
bool spw_attention_is_latent(const spw_model *model);

typedef struct spw_attention_kind {
    const char *words;                                       /* "latent" */
    void (*list)(const spw_model *model, spw_matrices *out); /* NULL: all are in the model's file */
    spw_attention_widths (*widths)(const spw_model *model);
} spw_attention_kind;
extern const spw_attention_kind spw_grouped_attention, spw_latent_attention;
const spw_attention_kind *spw_attention_kind_of(const spw_model *model);

/* The sparse indexer beside it (attention_indexer.c). */
void spw_indexer_list(const spw_model *model, spw_matrices *out);

#endif
