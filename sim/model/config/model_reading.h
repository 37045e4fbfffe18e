/* A config.json while it is read: finding keys under any of their names, and reading them strictly. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_READING_H
#define SPW_SIM_MODEL_CONFIG_MODEL_READING_H

#include "sim/model/config/model_family.h"

#include <jansson.h>

enum { SPW_ABSENT = -1, SPW_JSON_WORDS = 64, SPW_READING_USED = 32, SPW_KIN_WHY = 640 };

/* Names of keys that were read in the place of others. */
typedef struct spw_reading_used {
    const char *name[SPW_READING_USED]; /* static */
    size_t count;
} spw_reading_used;

typedef struct spw_reading spw_reading;
struct spw_reading {
    const char *where;
    const json_t *whole; /* the file */
    const json_t *root;  /* of the language model's keys */
    const json_t *outer; /* what encloses them, "text_config"; else the same */
    const spw_family *family;
    bool kin; /* the model_type has no row: family is what it is read as */
    spw_reading_used *used;
    /* Where no row's name is there: spw_reading_meant, by who begins to read. It asks families and kinds of attention, which read by
     * what stands here. */
    const json_t *(*meant)(const spw_reading *in, const char *key, const char **spelled);
};

/* The whole of a file whose family is known, into *out, which is overwritten. */
SPW_MUST_CHECK spw_status spw_reading_model(const spw_reading *in, spw_model *out);

/* A value in a few words, in `text` or elsewhere. */
const char *spw_json_words(const json_t *value, char text[SPW_JSON_WORDS]);

/* The value at `key`, also where the family has another name for it; NULL when it is absent or null, as in transformers.
 * `*spelled`, if not NULL, becomes the name that the file has, or would have. */
const json_t *spw_reading_find(const spw_reading *in, const char *key, const char **spelled);
/* The value at exactly this name, "a.b" for b within a; NULL when it is absent or null. */
const json_t *spw_reading_at(const json_t *root, const char *name);
/* A list of equal numbers is that number; any other value is itself. */
const json_t *spw_json_one_of_list(const json_t *value);

/* Every row that the family has, into *raw; SPW_ABSENT where the file has no such key. SPW_ECONFIG names file, key, value and
 * range. */
SPW_MUST_CHECK spw_status spw_reading_rows(const spw_reading *in, const spw_key_row *row,
                                           spw_raw_config *raw);
/* The first of several names that is there; one must be. */
SPW_MUST_CHECK spw_status spw_reading_either(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS],
                                             int64_t maximum, int64_t *out);
/* Whether one of several names is there. */
bool spw_reading_has(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS]);
/* Where the first of several names that is there has a list of unlike numbers, one a layer, of which `most` is the largest: how much
 * less each layer has, into fewer [layers]; else nothing. */
SPW_MUST_CHECK spw_status spw_reading_each(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS],
                                           size_t most, size_t layers, uint16_t *fewer);
SPW_MUST_CHECK spw_status spw_reading_flag(const spw_reading *in, const char *key, bool fallback, bool *out);
/* *is = the text at `key` is `word`; `fallback` when it is absent. `other` is the only other text allowed, NULL: any. */
SPW_MUST_CHECK spw_status spw_reading_word(const spw_reading *in, const char *key, const char *word,
                                           const char *other, bool fallback, bool *is);

/* How many keys of the language model, or of mappings in it, begin with '_' and are neither a source nor of transformers; their
 * names go to `out`, which holds a text already ("" at first), as far as there is room. */
size_t spw_reading_silenced(const spw_reading *in, char *out, size_t size);

static inline size_t spw_or_default(int64_t value, size_t fallback) {
    return value == SPW_ABSENT ? fallback : (size_t)value;
}

/* Which layers have experts or no FFN, and in which something other than attention mixes. Fills is_moe, is_bare, mixer_of, their
 * counts, shares_indexer and layers_per_turn; layers and family are there. */
/* The same of a family with a list of layers of several kinds, in place of counts; *layers: how many the list has without those of
 * multi-token prediction, 0: there is no list. SPW_ECONFIG names an entry that the family does not know. */
SPW_MUST_CHECK spw_status spw_reading_kinds(const spw_reading *in, const spw_raw_config *raw, spw_model *m);
/* Weights of every kind of layer that the model has, read into *raw; and latent projections, residual streams, gates. Other shapes
 * and layers are there. */
SPW_MUST_CHECK spw_status spw_reading_mixers(const spw_reading *in, spw_raw_config *raw, spw_model *m);
SPW_MUST_CHECK spw_status spw_reading_tables(const spw_reading *in, const spw_raw_config *raw, spw_model *m);
SPW_MUST_CHECK spw_status spw_reading_beside(const spw_reading *in, const spw_raw_config *raw, spw_model *m);
/* *layers: those in which the token's id chooses, by a count or by 'mlp_layer_types'; 3 where neither is said (DeepSeek-V4). */
SPW_MUST_CHECK spw_status spw_reading_hash(const spw_reading *in, const spw_raw_config *raw, size_t layers,
                                           size_t *hash);
/* Fills m->doubt: what the file asks for and is not in the figures; all else of `m` is there. */
void spw_reading_doubts(const spw_reading *in, spw_model *m);
/* In which format the published file stores routed experts, where it says FP4 or FP8. */
void spw_reading_storage(const spw_reading *in, spw_model *m);
SPW_MUST_CHECK spw_status spw_reading_listed(const spw_reading *in, size_t *layers);
SPW_MUST_CHECK spw_status spw_reading_layers(const spw_reading *in, const spw_raw_config *raw, spw_model *m);

#endif
