#include "sim/frameworks/flags.h"

#include "base/memory.h"
#include "sim/frameworks/comment.h"
#include "sim/frameworks/framework_job.h"
#include "sim/job/grid.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/read/settings.h"
#include "sim/read/settings_json.h"
#include "sim/schemes/point.h"
#include "sim/weights/pipeline.h"

#include <string.h>

enum { PATH = 96, OPTION_VALUE = 1100 };

static void add_option(spw_flag_draft *f, const char *option, const char *value) {
    const size_t used = strlen(f->options);
    const bool plain = value[strcspn(value, " |&;<>()$`\\\"'*?[]#~{}")] == '\0';
    (void)snprintf(f->options + used, sizeof f->options - used, " %s %s%s%s", option, plain ? "" : "'", value,
                   plain ? "" : "'");
}

/* --- Values of a job, by the table of its keys --- */

static const json_t *leaf(const json_t *root, const char *path) {
    char part[PATH];
    for (;;) {
        const size_t length = strcspn(path, ".");
        (void)snprintf(part, sizeof part, "%.*s", (int)length, path);
        root = json_object_get(root, part);
        if (root == NULL || path[length] == '\0') return root;
        path += length + 1;
    }
}

/* The shortest that is read as the same number. */
static void real_text(double value, char *out, size_t size) {
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

/* As one would write it behind --set; a list between commas. */
static void leaf_text(const json_t *value, char *out, size_t size) {
    size_t index = 0, used = 0;
    const json_t *item = NULL;
    out[0] = '\0';
    if (json_is_string(value))
        (void)snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        (void)snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        real_text(json_real_value(value), out, size);
    else if (json_is_boolean(value))
        (void)snprintf(out, size, "%s", json_is_true(value) ? "true" : "false");
    json_array_foreach(value, index, item) {
        if (used + 64 > size) return;
        if (used > 0) out[used++] = ',';
        leaf_text(item, out + used, size - used);
        used += strlen(out + used);
    }
}

/* --- Keys that have names --- */

static bool is_said(const spw_flag_draft *f, const char *ours) {
    const spw_framework_row *row = spw_framework_row_for(f->framework, ours);
    for (size_t i = 0; row != NULL && i < f->flags; i++)
        if (strcmp(f->flag[i].name, spw_framework_row_name(row)) == 0) return true;
    return false;
}

static spw_status say_keys(spw_flag_draft *f, const json_t *root, const spw_setting *table,
                           const char *prefix) {
    spw_status status = SPW_OK;
    for (const spw_setting *row = table; status == SPW_OK && row->key != NULL; row++) {
        char path[PATH], value[SPW_FLAG_VALUE];
        (void)snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", row->key);
        if (row->kind == SPW_SETTING_GROUP) {
            status = say_keys(f, root, row->fields, path);
            continue;
        }
        leaf_text(leaf(root, path), value, sizeof value);
        const bool unsaid = value[0] == '\0' || (row->fallback != NULL && strcmp(value, row->fallback) == 0);
        /* validate_args of Megatron-LM takes one of the two; a layout has the blocks of a stage */
        if (strcmp(path, "parallel.virtual_stages") == 0 && f->framework->print != SPW_PRINT_YAML &&
            (is_said(f, "parallel.pipeline_model_parallel_layout") || f->job->stage_layout.text[0] != '\0'))
            continue;
        const bool size = strncmp(path, "parallel.", 9) == 0 && strcmp(value, "1") == 0;
        if (!unsaid || size) status = spw_flags_say(f, path, value);
    }
    return status;
}

/* --- What would be read back --- */

/* Two jobs are the same when these are: what was worked out, and what counts where nothing is said, is written out. */
static void normalise(spw_job *job, const spw_scheme *scheme) {
    const spw_grid grid = spw_grid_of(job);
    const spw_pipeline pipeline = spw_pipeline_of(job);
    char layout[SPW_LAYOUT_TEXT];
    if (spw_assumed_layout(&pipeline, job, scheme, layout))
        (void)snprintf(job->stage_layout.text, sizeof job->stage_layout.text, "%s", layout);
    job->global_batch = 0;
    job->gpus = spw_job_gpus(job);
    job->expert_tensor = grid.expert_tensor;
    job->data = grid.data;
    job->cross_entropy = spw_cross_entropy_of(job, scheme);
    job->master_bytes = spw_master_bytes(job);
    if (!spw_scheme_trainer(scheme)->has_turns && job->virtual_stages == 0) job->virtual_stages = 1;
    if (job->micro_batches == 0) job->micro_batches = 1;
    const char *preset = spw_model_preset_of(job->model_text); /* which may be the text itself */
    if (job->model_text[0] != '{' && preset != job->model_text)
        (void)snprintf(job->model_text, sizeof job->model_text, "%s", preset);
    job->cluster_text[0] = '\0';
    job->schemes = 0;
}

static bool same_scheme(const spw_scheme *a, const spw_job *b) {
    spw_scheme read;
    if (b->schemes != 1 || spw_scheme_parse(b->scheme[0], &read) != SPW_OK ||
        spw_scheme_settle(b, &read) != SPW_OK || read.type != a->type)
        return false;
    for (size_t i = 0; a->type->options[i].name != NULL && i < SPW_SCHEME_OPTIONS; i++)
        if (!(read.option[i] == a->option[i]) &&
            !(read.option[i] != read.option[i] && a->option[i] != a->option[i]))
            return false;
    return true;
}

/* A config.json and the sizes that the text says: are they one model? */
static bool same_sizes(const spw_model *a, const spw_model *b) {
    return a->layers == b->layers && a->hidden == b->hidden && a->vocab == b->vocab &&
           a->experts == b->experts && a->top_k == b->top_k && a->expert_ffn == b->expert_ffn &&
           a->moe_layers == b->moe_layers && spw_model_parameters(a).total == spw_model_parameters(b).total &&
           spw_model_parameters(a).active == spw_model_parameters(b).active;
}

/* An option for every key whose value would be another. */
static void add_differences(spw_flag_draft *f, const json_t *want, const json_t *got,
                            const spw_setting *table, const char *prefix) {
    for (const spw_setting *row = table; row->key != NULL; row++) {
        char path[PATH], value[OPTION_VALUE], option[OPTION_VALUE + PATH];
        (void)snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", row->key);
        if (row->kind == SPW_SETTING_GROUP) {
            add_differences(f, want, got, row->fields, path);
            continue;
        }
        const json_t *a = leaf(want, path), *b = leaf(got, path);
        if ((a == NULL && b == NULL) || (a != NULL && b != NULL && json_equal(a, b)) ||
            strcmp(path, "gpus") == 0)
            continue;
        leaf_text(a, value, sizeof value);
        if (value[0] == '\0' && row->fallback != NULL)
            (void)snprintf(value, sizeof value, "%s", row->fallback[0] != '\0' ? row->fallback : "[]");
        if (strcmp(path, "model") == 0) {
            if (!f->same_model) add_option(f, "--model", value);
            continue;
        }
        (void)snprintf(option, sizeof option, "%s=%s", path, value);
        add_option(f, "--set", option);
    }
}

/* The text as it stands, read with the options that are given already. NULL keys: the model where the text does not say one. */
static spw_status read_back(spw_flag_draft *f, const char *text, const spw_job *want, spw_job *got) {
    spw_draft *draft = NULL;
    spw_cluster *cluster = NULL;
    spw_job_override given[3];
    char gpus[24];
    size_t givens = 0;
    spw_status status = SPW_OK;
    const bool yaml = f->framework->print == SPW_PRINT_YAML || f->framework->print == SPW_PRINT_PRIMUS;
    SPW_TRY(SPW_ALLOC(1, &draft));
    SPW_TRY(spw_draft_parse(yaml ? "flags.yaml" : "flags.sh", text, strlen(text), f->framework, draft));
    given[givens++] = (spw_job_override){"cluster", want->cluster_text, "--cluster"};
    SPW_TRY(SPW_ALLOC(1, &cluster));
    SPW_TRY(spw_cluster_read(want->cluster_text, NULL, cluster));
    if (want->gpus > 0 && want->gpus != cluster->nodes * cluster->gpus_per_node) {
        (void)snprintf(gpus, sizeof gpus, "%zu", want->gpus);
        given[givens++] = (spw_job_override){"gpus", gpus, "--gpus"};
        add_option(f, "--gpus", gpus);
    }
    if (spw_draft_key_value(draft, "model") == NULL) {
        given[givens++] = (spw_job_override){"model", want->model_text, "--model"};
        add_option(f, "--model", want->model_text);
    }
    SPW_TRY(spw_framework_job_read(draft, given, givens, got));

cleanup:
    if (draft != NULL) spw_draft_close(draft);
    spw_free(cluster);
    spw_free(draft);
    return status;
}

static spw_status compare(spw_flag_draft *f, const char *text, const spw_job *point) {
    spw_json json = {.failed = false};
    json_t *want_json = NULL, *got_json = NULL;
    spw_job *want = NULL, *got = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &want));
    SPW_TRY(SPW_ALLOC(1, &got));
    *want = *point;
    SPW_TRY(read_back(f, text, point, got));
    f->same_model = same_sizes(&point->model, &got->model);
    if (!same_scheme(f->scheme, got)) add_option(f, "--scheme", f->scheme->text);
    normalise(want, f->scheme);
    normalise(got, f->scheme);
    want_json = spw_settings_json(&json, spw_job_settings(), want);
    got_json = spw_settings_json(&json, spw_job_settings(), got);
    if (json.failed || want_json == NULL || got_json == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "out of memory"));
    add_differences(f, want_json, got_json, spw_job_settings(), "");

cleanup:
    json_decref(want_json);
    json_decref(got_json);
    spw_free(want);
    spw_free(got);
    return status;
}

/* --- All of it --- */

static spw_status say_all(spw_flag_draft *f) {
    spw_json json = {.failed = false};
    json_t *root = spw_settings_json(&json, spw_job_settings(), f->job);
    spw_status status = SPW_OK;
    if (root == NULL || json.failed) SPW_TRY(spw_fail(SPW_ENOMEM, "out of memory"));
    SPW_TRY(f->framework->express(f));
    SPW_TRY(say_keys(f, root, spw_job_settings(), ""));

cleanup:
    json_decref(root);
    return status;
}

spw_status spw_flags_fill(const spw_framework *framework, const spw_job *job, const spw_scheme *scheme,
                          spw_flag_draft *out, char **text) {
    spw_status status = SPW_OK;
    *text = NULL;
    *out = (spw_flag_draft){.framework = framework, .job = job, .scheme = scheme};
    SPW_TRY(say_all(out));
    add_option(out, "--cluster", job->cluster_text);
    out->differences = out->options + strlen(out->options);
    SPW_TRY(spw_flags_text(out, text));
    SPW_TRY(compare(out, *text, job));

cleanup:
    return status;
}

/* Is the line's first argument said already? */
static bool is_printed(const spw_flag_draft *f, const char *line) {
    char name[PATH];
    const size_t dashes = strspn(line, "-");
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(line + dashes, " ="), line + dashes);
    for (char *c = name; *c != '\0'; c++) *c = (char)(*c == '-' ? '_' : *c);
    for (size_t i = 0; i < f->flags; i++)
        if (strcmp(f->flag[i].name, name) == 0) return true;
    return false;
}

static const char NEXT[] = "#     "; /* before lines that go on */

static void print_comments(const spw_flag_draft *f, const char *doubts, FILE *out) {
    char first[SPW_FLAG_OPTIONS + 64];
    const char *const *line = f->framework->yours;
    (void)snprintf(first, sizeof first, "spillway plan --from FILE%s", f->options);
    spw_comment_print(first, "# ", NEXT, " --", out);
    for (const char *doubt = doubts; doubt != NULL && *doubt != '\0';) {
        spw_comment_print(doubt, "# ", NEXT, " ", out);
        doubt += strcspn(doubt, "\n");
        if (*doubt == '\n') doubt++;
    }
    if (line != NULL) fprintf(out, "# yours to add:\n");
    if (!f->same_model && f->framework->print != SPW_PRINT_PAIRS && f->framework->print != SPW_PRINT_DOTTED)
        fprintf(out,
                "#   parts of the model that its sizes below do not say, without which it is another one\n");
    for (; line != NULL && *line != NULL; line++)
        if (!is_printed(f, *line)) fprintf(out, "#   %s\n", *line);
}

spw_status spw_flags_print(const spw_framework *framework, const spw_job *job, const spw_scheme *scheme,
                           const char *doubts, FILE *out) {
    spw_flag_draft *f = NULL;
    spw_job *point = NULL;
    char *text = NULL;
    spw_status status = SPW_OK;
    if (framework->express == NULL)
        return spw_fail(
            SPW_EARG,
            "--flags %s: nothing is printed for it; write megatron, bridge, primus, maxtext or torchtitan",
            framework->name);
    SPW_TRY(SPW_ALLOC(1, &f));
    SPW_TRY(SPW_ALLOC(1, &point));
    *point = *job;
    point->batches = point->schemes = 1;
    (void)snprintf(point->scheme[0], sizeof point->scheme[0], "%s", scheme->text);
    (void)spw_scheme_say_micro_batches(scheme, point);
    SPW_TRY(spw_flags_fill(framework, point, scheme, f, &text));
    print_comments(f, doubts, out);
    fputs(text, out);

cleanup:
    free(text);
    spw_free(point);
    spw_free(f);
    return status;
}
