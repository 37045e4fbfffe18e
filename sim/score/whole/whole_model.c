#include "sim/score/whole/whole_model.h"

#include "base/text.h"
#include "sim/model/attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SIZE = 1 << 24, TEXT = 2048 };
static const double MOST_OFF = 0.01; /* of the parameters */

spw_status spw_whole_read_count(const spw_csv *csv, size_t row, const char *column, size_t most,
                                bool optional, size_t *out) {
    const char *text = NULL;
    char *end = NULL, shown[48];
    const spw_status status = spw_csv_text(csv, row, column, &text);
    *out = 0;
    if (status != SPW_OK || (optional && text[0] == '\0')) return status;
    const double value = spw_text_number(text, &end);
    if (end != text && *end == '\0' && value >= 0.0 && value <= (double)most && value == floor(value)) {
        *out = (size_t)value;
        return SPW_OK;
    }
    spw_plain_text(text, shown, sizeof shown);
    return spw_fail(SPW_ECONFIG, "%s:%zu: %s '%s' is no whole number of at most %zu", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, shown, most);
}

/* --- Sizes as the keys of a config.json --- */

static const struct {
    const char *column, *key;
    bool optional;
} keys[] = {{"hidden", "hidden_size", false},
            {"layers", "num_hidden_layers", false},
            {"dense_layers", "first_k_dense_replace", true},
            {"dense_ffn", "intermediate_size", true},
            {"heads", "num_attention_heads", false},
            {"kv_heads", "num_key_value_heads", true},
            {"head_dim", "head_dim", true},
            {"experts", "num_experts", false},
            {"top_k", "num_experts_per_tok", false},
            {"ffn", "moe_intermediate_size", false},
            {"vocab", "vocab_size", false}};

static spw_status write_key(const spw_csv *csv, size_t row, const char *column, const char *key,
                            bool optional, char out[TEXT], size_t *used) {
    size_t value = 0;
    const spw_status status = spw_whole_read_count(csv, row, column, MOST_SIZE, optional, &value);
    if (status == SPW_OK && value > 0)
        *used += (size_t)snprintf(out + *used, TEXT - *used, ", \"%s\": %zu", key, value);
    return status;
}

static spw_status write_config(const spw_csv *csv, size_t row, char out[TEXT]) {
    size_t used = (size_t)snprintf(out, TEXT, "{\"model_type\": \"generic\"");
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < sizeof keys / sizeof *keys; i++)
        status = write_key(csv, row, keys[i].column, keys[i].key, keys[i].optional, out, &used);
    for (const spw_attention_size *s = spw_latent_attention.sizes; status == SPW_OK && s->key != NULL; s++)
        status = write_key(csv, row, s->column, s->key, true, out, &used);
    if (status != SPW_OK) return status;
    (void)snprintf(out + used, TEXT - used, ", \"tie_word_embeddings\": false}");
    return SPW_OK;
}

/* Parameters of a GPU that has one in `expert_parallel` of the experts. */
static double parameters_of(const spw_model *m, size_t expert_parallel) {
    const spw_parameters p = spw_model_parameters(m);
    const double routed = (double)spw_model_routed(m);
    return (double)p.total - routed + routed / (double)expert_parallel;
}

/* What no column says. `variant`: a bit each. */
enum { WITH_NORMS = 1, SHARED_IS_COUNT = 2, VARIANTS = 4 };
static spw_model variant_of(const spw_model *model, size_t shared, unsigned variant) {
    spw_model m = *model;
    if ((variant & WITH_NORMS) != 0 && spw_attention_is_grouped(&m)) m.qk_norm = m.qk_norm_per_head = true;
    m.shared_ffn = (variant & SHARED_IS_COUNT) != 0 ? shared * m.expert_ffn : shared;
    return m;
}

spw_status spw_whole_model_read(const spw_csv *csv, size_t row, size_t expert_parallel, spw_model *out,
                                char *reason) {
    char text[TEXT];
    const char *family = NULL;
    size_t shared = 0, parameters = 0;
    unsigned best = 0;
    spw_status status = SPW_OK;
    reason[0] = '\0';
    SPW_TRY(spw_csv_text(csv, row, "family", &family));
    SPW_TRY(write_config(csv, row, text));
    SPW_TRY(spw_whole_read_count(csv, row, "shared", MOST_SIZE, true, &shared));
    SPW_TRY(spw_whole_read_count(csv, row, "parameters", SIZE_MAX >> 12, false, &parameters));
    status = spw_model_parse(spw_csv_where(csv), text, strlen(text), out);
    if (status == SPW_ECONFIG) {
        (void)snprintf(reason, SPW_WHOLE_REASON, "%s", spw_last_error());
        return SPW_OK;
    }
    SPW_TRY(status);
    double off[VARIANTS];
    for (unsigned v = 0; v < VARIANTS; v++) {
        const spw_model m = variant_of(out, shared, v);
        off[v] = fabs(parameters_of(&m, expert_parallel) / (double)parameters - 1.0);
        if (off[v] < off[best]) best = v;
    }
    *out = variant_of(out, shared, best);
    spw_plain_text(family, out->name, sizeof out->name);
    if (!(off[best] <= MOST_OFF))
        (void)snprintf(reason, SPW_WHOLE_REASON,
                       "the sizes of the row give %.6g parameters a GPU, its column parameters %.6g",
                       parameters_of(out, expert_parallel), (double)parameters);

cleanup:
    return status;
}
