#include "sim/model/config/model_kin.h"

#include "sim/model/config/model_keys.h"
#include "sim/model/config/model_wrapper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t common_beginning(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i]) i++;
    return i;
}

/* Parts that the family has without a key that says so. A file whose model_type begins otherwise shows no sign of them. */
static bool implies_more(const spw_reading *in) {
    enum { BEGINNING = 4 };
    const spw_family *f = in->family;
    const bool first = spw_reading_find(in, "first_k_dense_replace", NULL) != NULL ||
                       spw_reading_find(in, "mlp_layer_types", NULL) != NULL ||
                       (f->list != NULL && spw_reading_find(in, f->list, NULL) != NULL);
    if (f->first_dense > 0 && !first) return true;
    if (common_beginning(spw_wrapper_type(in), f->model_type) >= BEGINNING) return false;
    const bool beside =
        f->shared == SPW_SHARED_ONE || f->shared == SPW_SHARED_DENSE || f->shared == SPW_SHARED_HIDDEN;
    const bool tied = f->tied && spw_reading_find(in, "tie_word_embeddings", NULL) == NULL;
    return beside || tied || f->query_gate || f->head_gates || f->expert_bias || f->layer_copies > 1;
}

/* Keys of the file that the family reads, by the names that it reads first; then how its model_type begins. */
static size_t likeness(const spw_reading *in) {
    const char *key, *type = spw_wrapper_type(in);
    const spw_attention_kind *kind = spw_attention_said(in);
    json_t *value;
    size_t read = 0;
    json_object_foreach((json_t *)(uintptr_t)in->root, key, value) read +=
        !json_is_null(value) && spw_family_reads(in->family, kind, key);
    const size_t own = (size_t)in->family->qkv_bias +
                       (size_t)(in->family->spelled[0][0] != NULL); /* what the file shows no sign of */
    return read > 0
               ? read * SPW_MODEL_NAME + common_beginning(type, in->family->model_type) % SPW_MODEL_NAME - own
               : 0;
}

spw_status spw_kin_read(spw_reading *in, spw_model *out) {
    spw_model *tried = malloc(sizeof *tried);
    const spw_family *best = NULL;
    size_t most = 0;
    char why[SPW_KIN_WHY];
    if (tried == NULL) return spw_fail(SPW_ENOMEM, "no memory for a model of %zu bytes", sizeof *tried);
    in->kin = true;
    for (size_t i = 0; spw_family_at(i) != NULL; i++) {
        in->family = spw_family_at(i);
        if (in->family->any_attention || implies_more(in) || spw_reading_model(in, tried) != SPW_OK) continue;
        const size_t alike = likeness(in);
        if (alike <= most) continue;
        most = alike;
        best = in->family;
        *out = *tried;
    }
    free(tried);
    if (best != NULL) {
        in->family = best;
        return SPW_OK;
    }
    in->family = &spw_meant_family;
    if (spw_reading_model(in, out) == SPW_OK) return SPW_OK;
    const char *said = spw_last_error();
    const size_t where = strlen(in->where);
    if (strncmp(said, in->where, where) == 0 && strncmp(said + where, ": ", 2) == 0) said += where + 2;
    (void)snprintf(why, sizeof why, "%s", said);
    return spw_wrapper_unknown(in, why);
}
