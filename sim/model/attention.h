/* The model's own attention. A kind of it is one file, attention_NAME.c, and a row in attention.c: its keys in a config.json, its
 * matrices, the widths of what its core reads and gives. Attention of other layers is a list of a kind of its own (model_mixer.h). */
#ifndef SPW_SIM_MODEL_ATTENTION_H
#define SPW_SIM_MODEL_ATTENTION_H

#include "sim/model/matrices.h"

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

/* One product makes queries, keys and values; keys and values of every head are made of a low rank (MLA); all matrices are in the
 * model's file. */
bool spw_attention_is_grouped(const spw_model *model);
bool spw_attention_is_latent(const spw_model *model);
bool spw_attention_is_listed(const spw_model *model);

/* A size that frameworks and tables of runs have too; ended by a row without a key. */
typedef struct spw_attention_size {
    const char *fact;   /* "@key_rank": what a framework's name for it stands for (sim/frameworks) */
    const char *key;    /* in a config.json */
    const char *column; /* of a table of runs (sim/score/whole) */
    size_t offset;      /* of a size_t in spw_model */
} spw_attention_size;
/* Of a fact; 0 where the model has no such size. */
size_t spw_attention_size_of(const spw_model *model, const char *fact);
/* The key of a fact in a config.json; NULL: it is no size of attention. */
const char *spw_attention_size_key(const char *fact);

typedef struct spw_reading spw_reading;
typedef struct spw_raw_config spw_raw_config;
typedef struct spw_key_row spw_key_row;
/* What may differ in some layers ('per_layer_config'), with the place of its number in spw_raw_config. */
typedef struct spw_layer_key {
    const char *key;
    size_t offset;
} spw_layer_key;

struct spw_attention_kind {
    const char *words; /* "latent" */
    bool latent;       /* Megatron-Core's multi-latent attention: its modules, and what it keeps */
    void (*list)(const spw_model *model, spw_matrices *out); /* NULL: all are in the model's file */
    spw_attention_widths (*widths)(const spw_model *model);
    /* Reading a config.json: the key that says this kind, or NULL; its keys, and how they fill the model. */
    const char *mark;
    const spw_key_row *keys;
    spw_status (*read)(const spw_reading *in, spw_raw_config *raw, spw_model *model);
    const char *sum[3];              /* keys of which the first two give the third */
    const spw_layer_key *layer_keys; /* ended by one without a key */
    const char *layer_keys_words;
    const spw_attention_size *sizes; /* NULL: none beside heads and their width */
};
extern const spw_attention_kind spw_grouped_attention, spw_latent_attention, spw_factored_attention,
    spw_listed_attention;
const spw_attention_kind *spw_attention_kind_of(const spw_model *model);
/* The i-th kind, NULL behind the last. */
const spw_attention_kind *spw_attention_kind_at(size_t i);
/* That a file says, else grouped queries. */
const spw_attention_kind *spw_attention_said(const spw_reading *in);

/* The sparse indexer beside it (attention_indexer.c). */
void spw_indexer_list(const spw_model *model, spw_matrices *out);

#endif
