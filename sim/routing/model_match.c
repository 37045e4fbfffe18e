#include "sim/routing/model_match.h"

#include "traces/trace.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Letters and digits of a name without its publisher: "openai/gpt-oss-20b" is gptoss20b. */
static void plain_name(const char *name, char out[SPW_MODEL_NAME]) {
    const char *slash = strrchr(name, '/');
    size_t used = 0;
    for (const char *c = slash != NULL ? slash + 1 : name; *c != '\0' && used + 1 < SPW_MODEL_NAME; c++) {
        if (isalnum((unsigned char)*c)) out[used++] = (char)tolower((unsigned char)*c);
    }
    out[used] = '\0';
}

/* Names are the same when one goes on where the other ends: a date, a variant. A model that is read from a file has the
 * file's name, which says nothing. */
static bool names_differ(const char *of_trace, const spw_model *model) {
    char trace[SPW_MODEL_NAME], job[SPW_MODEL_NAME];
    bool preset = false;
    for (const char *const *name = spw_model_presets(); *name != NULL; name++)
        preset = preset || strcmp(*name, model->name) == 0;
    plain_name(spw_model_preset_of(of_trace), trace);
    plain_name(model->name, job);
    const size_t shorter = strlen(trace) < strlen(job) ? strlen(trace) : strlen(job);
    return preset && shorter > 0 && strncmp(trace, job, shorter) != 0;
}

typedef struct differences {
    char text[SPW_ASSUMPTION_TEXT];
    size_t used;
} differences;

static void model_match_add(differences *d, const char *what, size_t of_trace, size_t of_job) {
    if (of_trace == 0 || of_trace == of_job) return;
    d->used += (size_t)snprintf(d->text + d->used, sizeof d->text - d->used, "%s%s %zu for the job's %zu",
                                d->used > 0 ? ", " : "", what, of_trace, of_job);
}

/* The first layer of the trace that has no experts in the job; SIZE_MAX if there is none. */
static size_t first_dense(const spw_trace_info *info, size_t begin, size_t end, const spw_model *model) {
    for (size_t l = begin; l < end; l++) {
        const int32_t id = info->layer_id[l];
        if (id < 0 || (size_t)id >= model->layers || !model->is_moe[id]) return l;
    }
    return SIZE_MAX;
}

spw_model_match spw_trace_model_match(const spw_trace_info *info, size_t begin, size_t end,
                                      const spw_model *model, char text[SPW_ASSUMPTION_TEXT]) {
    const bool of_none = info->synthetic && strcmp(info->model_name, "synthetic") == 0,
               named = info->model_name[0] != '\0' && !of_none;
    differences d = {.used = 0};
    char name[SPW_MODEL_NAME];
    spw_plain_text(info->model_name, name, sizeof name);
    text[0] = '\0';
    model_match_add(&d, "hidden size", info->model_hidden, model->hidden);
    model_match_add(&d, "expert width", info->model_ffn, model->expert_ffn);
    if (!of_none) model_match_add(&d, "layers", info->model_layers, model->layers);
    if (d.used > 0 || (named && names_differ(info->model_name, model))) {
        (void)snprintf(text, SPW_ASSUMPTION_TEXT,
                       "the trace is of another model%s%s%s%.180s%s: its routing stands for that of %s",
                       named ? ", " : "", named ? name : "", d.used > 0 ? " (" : "", d.text,
                       d.used > 0 ? ")" : "", model->name);
        return SPW_MODEL_OTHER;
    }
    const size_t dense = first_dense(info, begin, end, model);
    if (of_none && (dense < SIZE_MAX || info->model_layers != model->layers)) return SPW_MODEL_OF_NONE;
    if (dense < SIZE_MAX) {
        (void)snprintf(text, SPW_ASSUMPTION_TEXT,
                       "layer %" PRId32 " of the trace has no experts in the job's %s: layers are taken by "
                       "their place, not by their number",
                       info->layer_id[dense], model->name);
        return SPW_MODEL_OTHER;
    }
    return named || info->model_hidden > 0 || info->model_layers > 0 ? SPW_MODEL_SAME : SPW_MODEL_UNSAID;
}
