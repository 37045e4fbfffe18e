/* A job of its text and of options. */
#include "base/memory.h"
#include "sim/job/common_names.h"
#include "sim/job/job.h"
#include "sim/job/job_check.h"
#include "sim/job/job_override.h"
#include "sim/job/job_software.h"
#include "sim/job/job_split.h"
#include "sim/job/recipe/precision_fill.h"
#include "sim/job/replicas.h"
#include "sim/job/trainer.h"
#include "sim/machine/stack_defaults.h"

#include <string.h>

/* A layout says how many blocks a stage has, unless the job does, and whether there is multi-token prediction. */
static void fill_layout(spw_job *job) {
    const size_t blocks = job->stage_layout.blocks;
    if (job->virtual_stages == 0 && blocks > 0 && blocks % job->pipeline == 0)
        job->virtual_stages = blocks / job->pipeline;
    if (job->stage_layout.behind > 0) job->model.mtp_layers = job->stage_layout.behind;
    if (job->stage_layout.predictions > 0) spw_model_count_mtp(&job->model);
}

/* As many as the sequences of a rank make. */
static spw_status fill_micro_batches(size_t micro_batch, spw_job *job) {
    const size_t sequences = job->sequences_per_gpu[0];
    if (micro_batch == 0) return SPW_OK;
    if (sequences % micro_batch != 0)
        return spw_fail(
            SPW_ECONFIG,
            "micro-batches of %zu do not divide the %zu sequences of a rank; change one of them, as by "
            "--global-batch or --sequences-per-gpu",
            micro_batch, sequences);
    job->micro_batches = sequences / micro_batch;
    return SPW_OK;
}

/* The option that says the batch, which is what does not divide; the file's line where none does. */
static const char *batch_key(const spw_job_place *at) {
    static const char *const keys[] = {"batch.sequences_per_gpu", "batch.global_batch"};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < at->overrides; i++)
            if (strcmp(at->override[i].key, keys[k]) == 0) return keys[k];
    return "batch.micro_batches";
}

static const char *folder_of(const spw_job_place *at, const char *key) {
    for (size_t i = 0; i < at->overrides; i++)
        if (strcmp(at->override[i].key, key) == 0) return NULL;
    return at->folder;
}

/* Where a failure about a key is to be mended: line of the file, or the option. Without a file the options of the key's group,
 * or all of them where none is. */
static const char *place_of(const spw_job_place *at, const spw_settings *settings, const char *key,
                            char out[SPW_SETTINGS_PLACE]) {
    const size_t group = strcspn(key, ".");
    bool of_group = false;
    (void)spw_settings_place(settings, key, out);
    if (!at->bare || strncmp(out, at->where, strlen(at->where)) != 0) return out;
    for (size_t i = 0; i < at->overrides; i++)
        of_group = of_group || strncmp(at->override[i].key, key, group) == 0;
    out[0] = '\0';
    for (size_t i = 0; i < at->overrides; i++) {
        const size_t used = strlen(out);
        if (of_group && strncmp(at->override[i].key, key, group) != 0) continue;
        if (at->override[i].label[0] == '\0') continue;
        (void)snprintf(out + used, SPW_SETTINGS_PLACE - used, "%s%s", used > 0 ? ", " : "",
                       at->override[i].label);
    }
    return out;
}

/* Two options that say how many GPUs there are, "--cluster h100:8x4 --gpus 64": what the second did. */
static void say_resized(const spw_job_place *at, size_t whole, spw_job *job) {
    const spw_job_override *cluster = NULL, *gpus = NULL;
    for (size_t i = 0; i < at->overrides; i++) {
        if (strcmp(at->override[i].key, "cluster") == 0) cluster = &at->override[i];
        if (strcmp(at->override[i].key, "gpus") == 0) gpus = &at->override[i];
    }
    const size_t used = strlen(job->implied);
    if (cluster == NULL || gpus == NULL || strchr(cluster->value, ':') == NULL || whole == job->gpus) return;
    if (strcmp(gpus->label, spw_replica_label) == 0) return; /* the others count as replicas */
    (void)snprintf(job->implied + used, sizeof job->implied - used,
                   "%s%.60s counts, and the %zu GPUs of %.60s do not", used > 0 ? "; " : "", gpus->label,
                   whole, cluster->label);
}

static void fill_fraction(spw_job *job) {
    job->fraction_unsaid = !(job->memory_fraction > 0.0);
    if (job->fraction_unsaid) job->memory_fraction = spw_default_outside_fraction.value;
}

/* Whose adapters they are. */
static void fill_finetune(spw_job *job) {
    bool wraps = job->schemes > 0;
    for (size_t i = 0; i < job->schemes; i++) {
        const spw_trainer_id of = spw_trainer_of_scheme(job->scheme[i]);
        wraps = wraps && of != SPW_TRAINERS && spw_trainer_row(of)->wraps_experts;
    }
    job->finetune.wraps_experts = wraps;
}

spw_status spw_job_parse_at(const spw_job_place *at, const char *text, size_t length, spw_job *out) {
    spw_status status = SPW_OK;
    spw_settings *settings = NULL;
    spw_job *read = NULL;
    spw_implied_sizes implied;
    const char *key = NULL; /* whose line a failure belongs to */
    char place[SPW_SETTINGS_PLACE];
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_settings_open(at->where, text, length, &settings));
    spw_settings_advise(settings, spw_common_key_advice);
    SPW_TRY(SPW_ALLOC(1, &read));
    if (at->given != NULL) spw_settings_hide_lines(settings);
    SPW_TRY(spw_job_given_put(settings, at->given, at->givens));
    SPW_TRY(spw_job_overrides_put(settings, at->override, at->overrides, &implied));
    SPW_TRY(spw_settings_read(settings, spw_job_settings(), read));
    key = "model";
    SPW_TRY(spw_model_read(read->model_text, folder_of(at, key), &read->model));
    if (read->part == SPW_PART_EXPERT_LAYERS) {
        spw_model *model = &read->model;
        if (read->layers > 0) model->moe_layers = read->layers;
        model->layers = model->moe_layers;
        model->other_layers = model->bare_layers = 0;
        for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) model->mixer[k].layers = 0;
    }
    key = "cluster";
    SPW_TRY(spw_cluster_read(read->cluster_text, folder_of(at, key), &read->cluster));
    if (at->bare) spw_job_schemes_fill(read);
    spw_job_optimizer_fill(read, at->bare);
    spw_precision_fill(read);
    fill_finetune(read);
    fill_fraction(read);
    key = "gpus";
    const size_t whole = read->cluster.nodes * read->cluster.gpus_per_node;
    if (read->gpus > 0) SPW_TRY(spw_cluster_resize(&read->cluster, read->gpus));
    SPW_TRY(spw_job_split_fill(read, &key));
    SPW_TRY(spw_job_batch_fill(read, &key));
    key = batch_key(at);
    SPW_TRY(fill_micro_batches(at->micro_batch, read));
    if (!at->bare) spw_job_say_implied(&implied, read);
    say_resized(at, whole, read);
    key = "parallel.pipeline_model_parallel_layout";
    SPW_TRY(spw_stage_layout_parse(&read->stage_layout));
    fill_layout(read);
    key = "offload_modules";
    SPW_TRY(spw_offload_parse(&read->offload));
    SPW_TRY(spw_job_check_key(read, false, &key));
    *out = *read;

cleanup:
    if (status != SPW_OK && key != NULL)
        status = spw_fail(status, "%s: %s", place_of(at, settings, key, place), spw_last_error());
    spw_free(read);
    spw_settings_close(settings);
    return status;
}
