/* MaxText's remat_policy: a name, or custom with tensors one by one, which counts as the policy that keeps the same set
 * (sim/job/recipe/maxtext_custom.h). */
#include "sim/frameworks/rules.h"

#include "sim/job/job.h"
#include "sim/job/recipe/maxtext_custom.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TENSOR_TEXT = 1024 };

static const char *const policies[] = {"none",
                                       "full",
                                       "minimal",
                                       "minimal_with_context",
                                       "save_out_proj",
                                       "save_qkv_proj",
                                       "save_dot_except_mlp",
                                       "save_dot_except_mlpwi",
                                       "save_dot_with_context_except_mlp",
                                       "qkv_proj_offloaded",
                                       NULL};

/* Every tensor that the file names, as "query_proj=device ..."; outside of custom MaxText does not look at them. */
static spw_status read_tensors(spw_draft *d, bool custom, char out[TENSOR_TEXT]) {
    spw_status status = SPW_OK;
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < d->entries.count && status == SPW_OK; i++) {
        char name[SPW_ENTRY_NAME], fact[SPW_ENTRY_NAME + 1];
        (void)spw_framework_plain_name(d->framework, d->entries.entry[i].name, name);
        if (spw_maxtext_tensor_find(name, strlen(name), NULL, 0) == NULL) continue;
        (void)snprintf(fact, sizeof fact, "@%s", name);
        const char *value = spw_draft_fact(d, fact);
        if (!custom)
            status = spw_draft_note_fact(d, SPW_NOTE_QUIET, fact, "");
        else if (value != NULL && strlen(name) + strlen(value) + 3 < sizeof(char[TENSOR_TEXT]) - used)
            used += (size_t)snprintf(out + used, TENSOR_TEXT - used, "%s=%s ", name, value);
    }
    return status;
}

spw_status spw_compose_maxtext_remat(spw_draft *d) {
    const char *said = spw_draft_fact(d, "@remat");
    const bool custom = said != NULL && strcasecmp(said, "custom") == 0;
    char text[TENSOR_TEXT];
    spw_remat kept = SPW_REMAT_FULL;
    spw_status status = SPW_OK;
    SPW_TRY(read_tensors(d, custom, text));
    if (said == NULL) goto cleanup;
    if (custom && spw_maxtext_custom_policy(text, &kept))
        return spw_draft_put(d, "remat", spw_remat_name(kept), "@remat");
    if (strcasecmp(said, "minimal_flash") == 0) said = "minimal_with_context";
    for (const char *const *policy = policies; *policy != NULL; policy++)
        if (strcasecmp(*policy, said) == 0) return spw_draft_put(d, "remat", *policy, "@remat");
    const spw_maxtext_setting *known = spw_maxtext_setting_find("remat_policy", 12, said, strlen(said));
    SPW_TRY(spw_draft_note_more(d, "@remat", "remat",
                                known != NULL
                                    ? known->note
                                    : "of remat policies those of docs/schemes.md are modelled; full is "
                                      "planned, which needs least"));

cleanup:
    return status;
}

spw_status spw_express_maxtext_remat(spw_flag_draft *f) {
    if (f->job->remat == SPW_REMAT_INPUT_OFFLOADED) {
        const spw_status status = spw_flags_say(f, "@remat", "custom");
        return status == SPW_OK ? spw_flags_say(f, "@decoder_layer_input", "offload") : status;
    }
    for (const char *const *policy = policies; *policy != NULL; policy++)
        if (strcmp(*policy, spw_remat_name(f->job->remat)) == 0)
            return f->job->remat == SPW_REMAT_FULL ? SPW_OK : spw_flags_say(f, "@remat", *policy);
    return SPW_OK;
}
