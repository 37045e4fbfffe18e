/* Tables that a token looks up beside its embedding, and what takes their rows in. */
#include "base/saturate.h"
#include "sim/model/config/model_reading.h"

static void model_tables_add(spw_model *m, spw_matrix_place place, const char *name, uint64_t in,
                             uint64_t out) {
    spw_matrix_add(m, (spw_matrix){.name = name, .in = in, .out = out, .count = 1, .place = place});
}
/* What takes the rows of tables in. */
static void reader(spw_model *m, const char *name, uint64_t in, uint64_t out, uint64_t count) {
    spw_matrix_add(
        m, (spw_matrix){
               .name = name, .in = in, .out = out, .count = count, .place = SPW_IN_MODEL, .looks_up = true});
}
static void numbers(spw_model *m, spw_matrix_place place, const char *name, uint64_t count) {
    spw_matrix_add(m, (spw_matrix){.name = name, .in = 1, .out = count, .place = place, .vector = true});
}
/* read: a product takes its rows in. */
static void table(spw_model *m, const char *name, uint64_t rows, uint64_t width, uint64_t count, bool read) {
    spw_matrix_add(m, (spw_matrix){.name = name,
                                   .in = rows,
                                   .out = width,
                                   .count = count,
                                   .place = SPW_IN_TABLES,
                                   .vector = true,
                                   .looks_up = !read});
}

/* Of every length of n-grams from 2 on `splits` tables, whose rows are numbers of their own, and a projection each
 * (LongcatFlashNgram: NgramEmbedding beside its weights, and in MLX-LM 0.32). */
static void add_ngrams(const spw_raw_config *raw, spw_model *m) {
    const uint64_t tables = (spw_or_default(raw->ngram_length, 4) - 1) * spw_or_default(raw->ngram_splits, 4),
                   rows =
                       spw_saturated_product((uint64_t)raw->ngram_ratio, m->vocab * tables) + tables * tables,
                   width = m->hidden / tables;
    table(m, "n-grams", rows, width, 1, true);
    reader(m, "n-grams, up", width, m->hidden, tables);
}

/* Rows for all layers at once, a projection of the embedding beside, and in every layer a gate, a projection and a norm
 * (transformers 5.24, Gemma4TextModel). */
static void add_layer_inputs(const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, wide = (uint64_t)raw->layer_table_width,
                   all = spw_saturated_product(m->layers, wide);
    table(m, "embedding of layers", spw_or_default(raw->layer_table_rows, m->vocab), all, 1, false);
    model_tables_add(m, SPW_IN_MODEL, "inputs of layers", h, all);
    numbers(m, SPW_IN_MODEL, "norm of the inputs of layers", wide);
    model_tables_add(m, SPW_IN_LAYER, "gate of its input", h, wide);
    model_tables_add(m, SPW_IN_LAYER, "its input, up", wide, h);
    numbers(m, SPW_IN_LAYER, "norm of its input", h);
}

/* Hashed n-grams in some layers: a table, keys for every stream and a value, norms and a convolution of the streams
 * (NeMo AutoModel 0.7, Qwen3_8_FlashNextPLELayer and its NGramEmbedding: rows are the first primes from the base on, here the base). */
static void add_hashed(const spw_raw_config *raw, uint64_t layers, spw_model *m) {
    const uint64_t heads = (spw_or_default(raw->hashed_length, 3) - 1) * spw_or_default(raw->hashed_heads, 8),
                   wide = spw_or_default(raw->hashed_width, m->hidden), n = m->streams > 0 ? m->streams : 1,
                   all = n * m->hidden;
    table(m, "hashed n-grams", spw_saturated_product(heads, (uint64_t)raw->hashed_rows), wide / heads, layers,
          true);
    reader(m, "n-grams, keys and values", wide, all + m->hidden, layers);
    numbers(m, SPW_IN_MODEL, "n-grams, norms and convolution",
            layers * (3 + spw_or_default(raw->hashed_conv, 4)) * all);
}

/* The same with a table of so many rows in each of the listed layers (NeMo AutoModel 0.7, DeepseekV41Engram). */
static spw_status add_engrams(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const json_t *list = spw_reading_at(in->root, "engram_num_embeddings"), *item;
    const uint64_t heads = (spw_or_default(raw->engram_length, 4) - 1) * spw_or_default(raw->engram_heads, 8),
                   width = spw_or_default(raw->engram_width, 256), n = m->streams > 0 ? m->streams : 1;
    size_t i;
    char found[SPW_JSON_WORDS];
    json_array_foreach(list, i, item) {
        const json_int_t rows = json_integer_value(item);
        if (!json_is_integer(item) || rows < 1 || rows > ((json_int_t)1 << 40))
            return spw_fail(SPW_ECONFIG,
                            "%s: 'engram_num_embeddings' has the entry %s; it must be a list of rows, a "
                            "table in each layer of "
                            "'engram_layer_ids'",
                            in->where, spw_json_words(item, found));
        table(m, "engrams", (uint64_t)rows, width, 1, true);
    }
    if (json_array_size(list) == 0) return SPW_OK;
    reader(m, "engrams, keys and values", heads * width, (n + 1) * m->hidden, json_array_size(list));
    numbers(m, SPW_IN_MODEL, "engrams, norms", json_array_size(list) * 2 * n * m->hidden);
    return SPW_OK;
}

spw_status spw_reading_tables(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const size_t hashed = json_array_size(spw_reading_at(in->root, "ple_layer_ids"));
    if (!spw_family_has(in->family, SPW_TABLES)) return SPW_OK;
    if (raw->ngram_ratio != SPW_ABSENT) add_ngrams(raw, m);
    if (raw->layer_table_width != SPW_ABSENT && raw->layer_table_width > 0) add_layer_inputs(raw, m);
    if (hashed > 0 && raw->hashed_rows == SPW_ABSENT)
        return spw_fail(
            SPW_ECONFIG,
            "%s: key 'ngram_vocab_size_base' is missing; 'ple_layer_ids' has %zu layers that look n-grams up",
            in->where, hashed);
    if (hashed > 0) add_hashed(raw, hashed, m);
    return add_engrams(in, raw, m);
}
