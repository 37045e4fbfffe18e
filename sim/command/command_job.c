#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/command/job_options.h"
#include "sim/frameworks/framework_job.h"
#include "sim/job/job_json.h"

#include <stdint.h>
#include <string.h>

static error_t job_parse(int key, char *text, struct argp_state *state) {
    spw_job_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = o; return 0;
    case ARGP_KEY_ARG:
        if (o->from != NULL) argp_error(state, "more than one file");
        o->from = text;
        return 0;
    case ARGP_KEY_END:
        if (o->from == NULL) argp_error(state, "no file; give a configuration of a training framework");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_job_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .parser = job_parse,
    .args_doc = "[NAME:]FILE",
    .doc = "The job that a training framework's configuration is, as YAML for --job, with the line of every "
           "value and what of the "
           "file has no counterpart. Read are: arguments of Megatron-LM (a shell script, YAML, or the block "
           "of a log), "
           "Megatron-Bridge's saved configuration, Primus, MaxText (YAML or a command line), torchtitan "
           "(TOML or a command line), "
           "DeepSpeed's JSON, YAML of Axolotl and TRL. Options take the place of the file's values; "
           "--cluster says what such files "
           "do not. Nothing in a file is executed, and no other file is opened.",
    .children = children,
};

/* An option counts, whatever the file says. */
static spw_status put(spw_draft *draft, const char *key, const char *value) {
    for (size_t i = 0; i < draft->keys; i++)
        if (strcmp(draft->key[i].key, key) == 0) draft->key[i].key[0] = '\0';
    const bool plain =
        value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-,")] == '\0';
    return plain ? spw_draft_put(draft, key, value, NULL) : spw_draft_put_text(draft, key, value, NULL);
}

static spw_status put_options(const spw_job_options *o, spw_draft *draft) {
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < o->overrides; i++) {
        status = put(draft, o->override[i].key, o->override[i].value);
        const bool counts = strcmp(o->override[i].key, "cluster") == 0 &&
                            spw_framework_cluster_is_sized(o->override[i].value);
        for (size_t k = 0; k < draft->keys && counts; k++)
            if (strcmp(draft->key[k].key, "gpus") == 0)
                draft->key[k].key[0] = '\0'; /* the cluster says how many */
        if (strcmp(o->override[i].key, "batch.micro_batches") == 0) draft->micro_batch = 0;
    }
    return status;
}

/* Where model and cluster are known, the parts of the batch are worked out. */
static spw_status fill(spw_draft *draft, spw_job *job) {
    spw_status status = SPW_OK;
    if (spw_draft_key_value(draft, "model") == NULL || spw_draft_key_value(draft, "cluster") == NULL)
        return SPW_OK;
    SPW_TRY(spw_framework_job_read(draft, NULL, 0, job));
    SPW_TRY(spw_draft_put_count(draft, "batch.micro_batches", job->micro_batches, NULL));
    draft->micro_batch = 0;

cleanup:
    return status;
}

static spw_status print_json(const spw_job_options *o, FILE *out) {
    static const char *const kinds[SPW_NOTE_KINDS] = {
        [SPW_NOTE_LACKS] = "no_counterpart", [SPW_NOTE_MORE] = "may_need_more",
        [SPW_NOTE_UNSAID] = "not_said",      [SPW_NOTE_ASSUMED] = "assumed",
        [SPW_NOTE_TWICE] = "given_twice",    [SPW_NOTE_OFF] = "off",
        [SPW_NOTE_QUIET] = "no_part"};
    const spw_draft *d = o->draft;
    spw_json json = {.failed = false};
    json_t *root = json_object(), *notes = json_object();
    spw_json_put(&json, root, "framework", spw_json_text(d->framework->name));
    spw_json_put(&json, root, "job", spw_job_json(&json, &o->job));
    for (size_t kind = 0; kind < SPW_NOTE_KINDS; kind++) {
        json_t *list = json_array();
        for (size_t i = 0; i < d->notes; i++) {
            const spw_draft_note *n = &d->note[i];
            if (n->kind != (spw_note_kind)kind) continue;
            json_t *note = json_object();
            spw_json_put(&json, note, "name", spw_json_text(n->name));
            spw_json_put(&json, note, "line", spw_json_count(n->line));
            spw_json_put(&json, note, "why", spw_json_text(n->why));
            spw_json_add(&json, list, note);
        }
        spw_json_put(&json, notes, kinds[kind], list);
    }
    json_t *counts = json_array();
    for (size_t i = 0; i < d->entries.count; i++) {
        char name[SPW_ENTRY_NAME];
        if (spw_draft_use_of(d, i) == SPW_USE_NOTE) continue;
        json_t *setting = json_object();
        (void)spw_framework_plain_name(d->framework, d->entries.entry[i].name, name);
        spw_json_put(&json, setting, "name", spw_json_text(name));
        spw_json_put(&json, setting, "line", spw_json_count(d->entries.entry[i].line));
        spw_json_add(&json, counts, setting);
    }
    spw_json_put(&json, root, "settings", spw_json_count(d->entries.count));
    spw_json_put(&json, root, "counts", counts);
    spw_json_put(&json, root, "notes", notes);
    return spw_json_print(&json, root, JSON_INDENT(1), "the job", out);
}

static spw_status print_yaml(spw_job_options *o) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_lines_at(SIZE_MAX)); /* YAML has no broken lines */
    SPW_TRY(SPW_ALLOC(1, &o->draft));
    SPW_TRY(spw_framework_open(o->from, o->draft));
    if (o->sequences != NULL) SPW_TRY(put(o->draft, "batch.sequences_per_gpu", o->sequences));
    if (o->expert_parallel != NULL) SPW_TRY(put(o->draft, "parallel.expert", o->expert_parallel));
    SPW_TRY(put_options(o, o->draft));
    SPW_TRY(fill(o->draft, &o->job));
    spw_framework_print_job(o->draft, spw_command_out());

cleanup:
    return status;
}

spw_status spw_command_job(int argc, char **argv) {
    spw_status status = SPW_OK;
    spw_job_options *o = NULL;
    spw_format format = SPW_FORMAT_TABLE;
    SPW_TRY(SPW_ALLOC(1, &o));
    o->points_alone = true;
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    if (o->format_text != NULL) SPW_TRY(spw_command_format(o->format_text, &format));
    if (format == SPW_FORMAT_TABLE) {
        SPW_TRY(print_yaml(o));
        goto cleanup;
    }
    SPW_TRY(spw_job_options_finish(o));
    SPW_TRY(print_json(o, spw_command_out()));

cleanup:
    if (o != NULL) spw_job_options_close(o);
    spw_free(o);
    return status;
}
