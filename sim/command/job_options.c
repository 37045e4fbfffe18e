#include "sim/command/job_options.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/command/command.h"
#include "sim/job/software.h"
#include "sim/job/trainer.h"
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/print/plural.h"
#include "sim/read/settings.h"
#include "sim/schemes/point.h"

#include <string.h>
#include <unistd.h>

enum { MOST_OPTIONS = 52, MOST_NAMED = 32 };

/* Those written down, then one for each row of the job's table that has a name, filled in by spw_job_argp_fill. */
static struct argp_option job_options[MOST_OPTIONS] = {SPW_JOB_ARGP_OPTIONS, {0}};
static struct { char key[SPW_JOB_KEY_TEXT], help[256]; } named[MOST_NAMED];
static size_t names;

static const char *argument_of(const spw_setting *row) {
    static const char *const words[] = {
        [SPW_SETTING_COUNT] = "N",        [SPW_SETTING_REAL] = "X",      [SPW_SETTING_FLAG] = "BOOL",
        [SPW_SETTING_TEXT] = "NAME|FILE", [SPW_SETTING_CHOICE] = "NAME", [SPW_SETTING_COUNTS] = "LIST",
        [SPW_SETTING_TEXTS] = "LIST",     [SPW_SETTING_GROUP] = "NAME"};
    return words[row->kind];
}

static void fill_options(const spw_setting *row, const char *prefix, struct argp_option **next) {
    for (; row->key != NULL; row++) {
        char path[SPW_JOB_KEY_TEXT];
        (void)snprintf(path, sizeof path, "%s%s", prefix, row->key);
        if (row->option != NULL && names < MOST_NAMED && *next < job_options + MOST_OPTIONS - 1) {
            (void)snprintf(named[names].key, sizeof named[names].key, "%s", path);
            (void)snprintf(named[names].help, sizeof named[names].help, "%s (default: the job's)", row->help);
            *(*next)++ = (struct argp_option){.name = row->option,
                                              .key = SPW_OPTION_KEYS + (int)names,
                                              .arg = argument_of(row),
                                              .flags = row->kind == SPW_SETTING_TEXT ? 0 : SPW_OPTION_LAST,
                                              .doc = named[names].help};
            names++;
        }
        (void)snprintf(path, sizeof path, "%s%s.", prefix, row->key);
        if (row->kind == SPW_SETTING_GROUP) fill_options(row->fields, path, next);
    }
}

void spw_job_argp_fill(void) {
    struct argp_option *next = job_options;
    if (names > 0) return;
    while (next->name != NULL) next++;
    fill_options(spw_job_settings(), "", &next);
}

static bool is_key(const char *word, const char *key) {
    while (*word != '\0' && (*word == *key || (*word == '-' && *key == '_'))) word++, key++;
    return *word == '\0' && *key == '\0';
}

static bool find_key(const spw_setting *row, const char *prefix, const char *word,
                     char out[SPW_JOB_KEY_TEXT]) {
    for (; row->key != NULL; row++) {
        char path[SPW_JOB_KEY_TEXT];
        if (row->kind == SPW_SETTING_GROUP) {
            (void)snprintf(path, sizeof path, "%s%s.", prefix, row->key);
            if (find_key(row->fields, path, word, out)) return true;
        } else if (is_key(word, row->key)) {
            (void)snprintf(out, SPW_JOB_KEY_TEXT, "%s%s", prefix, row->key);
            return true;
        }
    }
    return false;
}

bool spw_job_key_of_word(const char *word, char out[SPW_JOB_KEY_TEXT]) {
    return find_key(spw_job_settings(), "", word, out);
}

static bool has_control(const char *text) {
    for (; *text != '\0'; text++)
        if (iscntrl((unsigned char)*text)) return true;
    return false;
}

/* argp_error() comes back where a library asks. Remembers a value of a key; a message about it begins with the option as it was written. */
static void add_override(spw_job_options *o, struct argp_state *state, const char *option, const char *key,
                         size_t key_length, const char *value) {
    if (o->overrides == SPW_JOB_OVERRIDES) {
        argp_error(state, "more than %d values of keys", (int)SPW_JOB_OVERRIDES);
        return;
    }
    if (strcmp(option, "set") != 0 && has_control(value)) {
        char plain[256];
        spw_plain_text(value, plain, sizeof plain);
        argp_error(state,
                   "--%s '%s': a line feed or another control character, shown as ?; a name or path without "
                   "one would be right",
                   option, plain);
        return;
    }
    if (key_length == 0 || key_length >= sizeof o->override_text[0].key || value[0] == '\0') {
        argp_error(state, "--%s '%s': write KEY=VALUE, as in batch.micro_batches=4", option, key);
        return;
    }
    if (value[strlen(value) - 1] == ':') {
        argp_error(state, "--%s '%s': something is missing behind the last ':', as in --cluster h200:8x32",
                   option, strcmp(option, "set") == 0 ? key : value);
        return;
    }
    char *name = o->override_text[o->overrides].key, *label = o->override_text[o->overrides].label;
    const size_t size = sizeof o->override_text[0].label;
    (void)snprintf(name, sizeof o->override_text[0].key, "%.*s", (int)key_length, key);
    if (strcmp(option, "set") == 0)
        (void)snprintf(label, size, "--set %.*s=%.100s", (int)key_length, key, value);
    else
        (void)snprintf(label, size, "--%s %.100s", option, value);
    o->override[o->overrides++] = (spw_job_override){name, value, label};
}

static bool parse_key_option(spw_job_options *o, struct argp_state *state, int key, const char *text) {
    if (key == SPW_OPTION_SET) {
        const size_t length = strcspn(text, "=");
        add_override(o, state, "set", text, length, text[length] == '=' ? text + length + 1 : "");
        return true;
    }
    if (key < SPW_OPTION_KEYS || (size_t)(key - SPW_OPTION_KEYS) >= names) return false;
    const char *path = named[key - SPW_OPTION_KEYS].key, *option = "";
    for (const struct argp_option *row = job_options; row->name != NULL; row++)
        if (row->key == key) option = row->name;
    if (text[0] == '\0')
        argp_error(state, "--%s: a value is missing", option);
    else
        add_override(o, state, option, path, strlen(path), text);
    return true;
}

static error_t parse_job_option(int key, char *text, struct argp_state *state) {
    spw_job_options *o = state->input;
    switch (key) {
    case SPW_OPTION_JOB: o->job_path = text; return 0;
    case SPW_OPTION_FROM: o->from = text; return 0;
    case SPW_OPTION_SEQUENCES: o->sequences = text; return 0;
    case SPW_OPTION_EXPERT: o->expert_parallel = text; return 0;
    case SPW_OPTION_FORMAT: o->format_text = text; return 0;
    case SPW_OPTION_SCHEME:
        if (text[0] == '\0')
            argp_failure(state, argp_err_exit_status, 0,
                         "--scheme: a value is missing; spillway help schemes lists them");
        spw_command_add_word(text, state, o->scheme_text, &o->scheme_texts, SPW_JOB_MAX_SCHEMES, "schemes");
        return 0;
    default: return parse_key_option(o, state, key, text) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

const struct argp spw_job_argp = {.options = job_options, .parser = parse_job_option};

static bool has_key(const spw_job_options *o, const char *key) {
    for (size_t i = 0; i < o->overrides; i++)
        if (strcmp(o->override[i].key, key) == 0) return true;
    return false;
}

/* A value of a key after all that were given before. `key` and `value` live as long as the options. */
static spw_status put_override(spw_job_options *o, const char *key, const char *value, const char *option) {
    if (o->overrides == SPW_JOB_OVERRIDES)
        return spw_fail(SPW_EARG, "more than %d values of keys", (int)SPW_JOB_OVERRIDES);
    char *label = o->override_text[o->overrides].label;
    (void)snprintf(label, sizeof o->override_text[0].label, "%s %.100s", option, value);
    o->override[o->overrides++] = (spw_job_override){key, value, label};
    return SPW_OK;
}

/* The batches become the last override, so that all checks of the job see them. */
static spw_status set_sequences(spw_job_options *o, const char *text) {
    char copy[256], *rest = NULL;
    size_t batches = 0;
    if (strlen(text) >= sizeof copy)
        return spw_fail(SPW_EARG, "--sequences-per-gpu: a list of more than %zu characters", sizeof copy - 1);
    (void)snprintf(copy, sizeof copy, "%s", text);
    if (spw_text_has_gap(text))
        return spw_fail(SPW_EARG, "--sequences-per-gpu '%s': an empty place; write a list as in 1,2,4", text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        uint64_t value = 0;
        if (spw_parse_count("--sequences-per-gpu", part, 1 << 20, &value) != SPW_OK)
            return spw_fail(SPW_EARG,
                            "--sequences-per-gpu %s: '%s' is no whole number of 1 to %d; write a list "
                            "between commas, as in 1,2,4,8",
                            text, part, 1 << 20);
        if (value == 0 || ++batches > SPW_JOB_MAX_BATCHES)
            return spw_fail(SPW_EARG, "--sequences-per-gpu %s: write 1 to %d numbers above 0, as in 1,2,4",
                            text, SPW_JOB_MAX_BATCHES);
    }
    if (batches == 0) return spw_fail(SPW_EARG, "--sequences-per-gpu '%s': write a list as in 1,2,4", text);
    return put_override(o, "batch.sequences_per_gpu", text, "--sequences-per-gpu");
}

/* The schemes as a value of the job's key, so that all that follows from them sees them. */
static spw_status list_schemes(spw_job_options *o) {
    size_t used = 0;
    for (size_t i = 0; i < o->scheme_texts; i++) {
        if (strlen(o->scheme_text[i]) >= SPW_SCHEME_TEXT)
            return spw_fail(SPW_ECONFIG, "scheme '%.40s...' is too long", o->scheme_text[i]);
        o->scheme_list[used++] = i == 0 ? '[' : ',';
        o->scheme_list[used++] = '\'';
        for (const char *at = o->scheme_text[i]; *at != '\0'; at++) {
            if (*at == '\'') o->scheme_list[used++] = *at; /* YAML doubles it */
            o->scheme_list[used++] = *at;
        }
        o->scheme_list[used++] = '\'';
    }
    o->scheme_list[used++] = ']';
    return SPW_OK;
}

/* What --expert-parallel may be. */
static spw_status check_expert_parallel(const spw_job_options *o, const char *text) {
    const bool several = strcmp(text, "all") == 0 || strchr(text, ',') != NULL;
    if (!o->expert_lists && several)
        return spw_fail(
            SPW_EARG,
            "--expert-parallel %s: one size at a time here; spillway plan --job JOB.yaml --trace TRACE.h5 "
            "--expert-parallel %s takes several",
            text, text);
    if (text[0] != '\0' && text[strspn(text, "0")] == '\0')
        return spw_fail(SPW_EARG,
                        "--expert-parallel %s: write a size of 1 or more; without the option it is the job's",
                        text);
    if (several && has_key(o, "parallel.fsdp"))
        return spw_fail(SPW_EARG,
                        "--expert-parallel %s: each size has a number of replicas of its own, so fsdp "
                        "cannot be given; leave it out, or write one size",
                        text);
    return SPW_OK;
}

/* The job with the first `length` letters of a size among its options; 0: as it is. */
static spw_status read_with_size(spw_job_options *o, const char *size, size_t length) {
    const size_t given = o->overrides;
    spw_job_override all[SPW_JOB_OVERRIDES + 1];
    spw_status status = SPW_OK;
    (void)snprintf(o->expert_first, sizeof o->expert_first, "%.*s", (int)length, size);
    if (size[0] != '\0') status = put_override(o, "parallel.expert", o->expert_first, "--expert-parallel");
    memcpy(all, o->override, o->overrides * sizeof *all);
    if (o->scheme_texts > 0) all[o->overrides] = (spw_job_override){"schemes", o->scheme_list, ""};
    if (status == SPW_OK)
        status = o->draft != NULL
                     ? spw_framework_job_read(o->draft, all, o->overrides + (o->scheme_texts > 0), &o->job)
                     : spw_job_read_with(o->job_path, all, o->overrides + (o->scheme_texts > 0), &o->job);
    if (status != SPW_OK) o->overrides = given;
    return status;
}

/* The job with its options, checked once. Of several expert-parallel sizes it has the first with which it can be; of all, its own or
 * the smallest. What is refused is what the first was refused for. */
static spw_status read_job(spw_job_options *o) {
    enum { MOST_TRIED = 512 };
    const char *text = o->expert_parallel != NULL ? o->expert_parallel : "";
    const bool all = strcmp(text, "all") == 0;
    char refused[1024], size[32];
    spw_status status = check_expert_parallel(o, text);
    if (status == SPW_OK) status = read_with_size(o, all ? "" : text, strcspn(text, ","));
    (void)snprintf(refused, sizeof refused, "%s", status != SPW_OK ? spw_last_error() : "");
    for (const char *comma = strchr(text, ','); status == SPW_ECONFIG && comma != NULL;
         comma = strchr(comma + 1, ','))
        status = read_with_size(o, comma + 1, strcspn(comma + 1, ","));
    for (size_t i = 1; i <= MOST_TRIED && status == SPW_ECONFIG && all; i++) {
        (void)snprintf(size, sizeof size, "%zu", i);
        status = read_with_size(o, size, strlen(size));
    }
    if (all || strchr(text, ',') != NULL) o->job.implied[0] = '\0'; /* each size leaves another number */
    return status == SPW_ECONFIG ? spw_fail(SPW_ECONFIG, "%s", refused) : status;
}

/* Each KEY:VALUE of --allocator as an override, whose value stands at the end of its own label. */
spw_status spw_job_options_put_allocator(spw_job_options *o, const char *text) {
    spw_job_allocator read = {.expandable_segments = false};
    char copy[256], key[64], *rest = NULL;
    spw_status status = spw_allocator_conf_parse("--allocator", text, &read);
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL && status == SPW_OK;
         part = strtok_r(NULL, ",", &rest)) {
        const size_t at = o->overrides;
        char *value = strchr(part, ':');
        for (char *c = value; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c); /* True */
        (void)snprintf(key, sizeof key, "allocator.%.*s", (int)(value - part), part);
        status = put_override(o, key, part, "--allocator");
        if (status != SPW_OK) break;
        (void)snprintf(o->override_text[at].key, sizeof o->override_text[at].key, "%s", key);
        o->override[at].key = o->override_text[at].key;
        o->override[at].value = strchr(o->override_text[at].label, ':') + 1;
    }
    return status;
}

/* Keeps the batches that micro_batches divides, if there are any; the others are noted. */
static void leave_out(spw_job_options *o) {
    spw_job *job = &o->job;
    const size_t pieces = spw_job_micro_batches(job);
    size_t kept = 0;
    for (size_t i = 0; i < job->batches; i++) kept += job->sequences_per_gpu[i] % pieces == 0;
    if (kept == 0) return;
    kept = 0;
    for (size_t i = 0; i < job->batches; i++) {
        const size_t sequences = job->sequences_per_gpu[i];
        *(sequences % pieces == 0 ? &job->sequences_per_gpu[kept++] : &o->left_out[o->left_outs++]) =
            sequences;
    }
    job->batches = kept;
}

/* --set a=b,c=d: the comma is taken as part of the value, which a failure about either says. */
static spw_status hint_comma(const spw_job_options *o, spw_status failed) {
    const char *const message = spw_last_error();
    for (size_t i = 0; i < o->overrides; i++) {
        const char *label = o->override[i].label, *value = o->override[i].value, *comma = value;
        if (label == NULL || strncmp(label, "--set ", strlen("--set ")) != 0) continue;
        while ((comma = strchr(comma, ',')) != NULL) {
            const char *next = ++comma;
            const size_t word = strspn(next, "abcdefghijklmnopqrstuvwxyz_.0123456789");
            if (word == 0 || next[word] != '=' || (!strstr(message, label) && !strstr(message, next)))
                continue;
            return spw_fail(
                failed,
                "%s; a comma does not part keys: give --set once for each, as in --set %s=%.*s --set %s",
                message, o->override[i].key, (int)(next - 1 - value), value, next);
        }
    }
    return failed;
}

/* A file behind --job or --model that is a training framework's own: its settings are recognised, and there are more than a few. */
static spw_status hint_framework(const spw_job_options *o, spw_status failed) {
    enum { ENOUGH = 3 };
    char message[1024];
    spw_draft *draft = NULL;
    const char *path = o->job_path;
    for (size_t i = 0; i < o->overrides && path == NULL && o->from == NULL; i++)
        if (strcmp(o->override[i].key, "model") == 0 && access(o->override[i].value, R_OK) == 0)
            path = o->override[i].value;
    if (failed != SPW_ECONFIG || path == NULL || path[0] == '{') return failed;
    (void)snprintf(message, sizeof message, "%s", spw_last_error());
    if (SPW_ALLOC(1, &draft) != SPW_OK) return failed;
    (void)!spw_draft_read(path, NULL, draft); /* what it says of the file plays no part */
    const char *title = draft->framework != NULL && draft->taken >= ENOUGH ? draft->framework->title : NULL;
    const bool model =
        draft->framework == NULL && strstr(spw_last_error(), "the config.json of a model") != NULL;
    spw_draft_close(draft);
    spw_free(draft);
    if (model && o->job_path != NULL)
        return spw_fail(failed, "%s: the config.json of a model, and no job: --model %s instead of --job",
                        path, path);
    if (title != NULL && o->job_path == NULL)
        return spw_fail(failed, "--model %s: it is a configuration of %s: --from %s instead of --model", path,
                        title, path);
    return title != NULL ? spw_fail(failed, "%s; it is a configuration of %s: --from %s instead of --job",
                                    message, title, path)
                         : spw_fail(failed, "%s", message);
}

/* A size written the other way round, "h200:4x8" for 8 nodes of 4: notations differ. */
static void warn_node(const spw_cluster *c) {
    char words[SPW_CLUSTER_WORDS], other[160] = "";
    const int stem = (int)strcspn(c->name, "-");
    if (c->preset_node == 0 || c->preset_node == c->gpus_per_node || c->nodes == 1) return;
    if (c->nodes == c->preset_node)
        (void)snprintf(other, sizeof other,
                       "; %zu nodes of %zu are %.*s-%zux%zu (nodes x GPUs) or %.*s:%zux%zu (GPUs x nodes)",
                       c->gpus_per_node, c->nodes, stem, c->name, c->gpus_per_node, c->nodes, stem, c->name,
                       c->nodes, c->gpus_per_node);
    (void)fprintf(spw_command_notes(), "spillway: the cluster has %s, and a node of %.*s has %zu%s\n",
                  spw_cluster_words(c, words), stem, c->name, c->preset_node, other);
}

/* --from: the file becomes a draft of the job; what of it has no counterpart is said at once. */
static spw_status open_framework(spw_job_options *o) {
    spw_status status = SPW_OK;
    if (o->job_path != NULL)
        return spw_fail(SPW_EARG, "--job and --from both say what the job is; write one");
    if (o->from[0] == '\0')
        return spw_fail(SPW_EARG, "--from '': write the path of a framework's configuration");
    status = SPW_ALLOC(1, &o->draft);
    if (status == SPW_OK) status = spw_framework_open(o->from, o->draft);
    if (status == SPW_OK) spw_framework_print_summary(o->draft, spw_command_notes());
    return status;
}

void spw_job_options_close(spw_job_options *o) {
    if (o->draft == NULL) return;
    spw_draft_close(o->draft);
    spw_free(o->draft);
    o->draft = NULL;
}

spw_status spw_job_options_newest(const spw_job_options *o, spw_software *out) {
    const bool compiled =
        o->job.part == SPW_PART_WHOLE && spw_schemes_have_programs(o->scheme, o->job.schemes);
    bool megatron = false;
    for (size_t i = 0; i < o->job.schemes; i++)
        megatron = megatron || spw_scheme_asks_megatron(o->scheme[i].type);
    return spw_software_newest(&o->job, compiled, megatron, out);
}

/* Micro-batches that MaxText makes by itself, where all schemes are its own: every figure is then of one form of the job. */
static spw_status say_micro_batches(spw_job_options *o) {
    for (size_t i = 0; i < o->job.schemes; i++)
        if (!spw_scheme_trainer(&o->scheme[i])->has_turns) return SPW_OK;
    if (!spw_scheme_say_micro_batches(&o->scheme[0], &o->job)) return SPW_OK;
    const size_t parts = o->job.pipeline, each = o->job.sequences_per_gpu[0];
    if (o->job.global_batch == 0 || each % parts == 0) return spw_job_check(&o->job);
    return spw_fail(
        SPW_ECONFIG,
        "global_batch %zu is %zu sequence%s a data-parallel rank, and MaxText's pipeline cuts them "
        "into %zu micro-batches, as many as its stages; use global_batch %zu",
        o->job.global_batch, each, spw_plural(each), parts,
        o->job.global_batch / each * (each / parts + 1) * parts);
}

/* An empty list is none of all schemes, and no wish for those that are assumed. */
static spw_status check_schemes(const spw_job_options *o) {
    for (size_t i = 0; i < o->overrides; i++) {
        const char *value = o->override[i].value;
        if (strcmp(o->override[i].key, "schemes") == 0 && value[strspn(value, "[] ")] == '\0')
            return spw_fail(SPW_EARG,
                            "schemes: no scheme in '%s'; name some, as in --scheme gmm, or leave the "
                            "key out for those that the cluster's users run",
                            value);
    }
    return SPW_OK;
}

/* Schemes whose GPUs have every expert have one split alone. */
static spw_status imply_split(spw_job_options *o) {
    bool alone = o->split_unsaid && o->scheme_texts > 0;
    spw_scheme scheme;
    for (size_t i = 0; i < o->scheme_texts && alone; i++)
        alone = spw_scheme_parse(o->scheme_text[i], &scheme) == SPW_OK && spw_scheme_is_of_one_rank(&scheme);
    if (!alone) return SPW_OK; /* what cannot be parsed is refused where the job is read */
    o->split_unsaid = false;
    return put_override(o, "parallel.expert", "1", "--scheme");
}

static spw_status finish(spw_job_options *o) {
    spw_status status = SPW_OK;
    spw_job *job = &o->job;
    if (o->format_text != NULL) SPW_TRY(spw_command_format(o->format_text, &o->format));
    if (o->job_path != NULL && o->job_path[0] == '\0')
        return spw_fail(
            SPW_EARG, "--job '': write the path of a job's file (examples are in sim/jobs/), or leave it out "
                      "and write --model and --cluster");
    if (o->from != NULL) SPW_TRY(open_framework(o));
    const bool file = o->job_path != NULL || o->draft != NULL;
    o->batch_unsaid = !file && o->sequences == NULL && !has_key(o, "batch.sequences_per_gpu") &&
                      !has_key(o, "batch.global_batch");
    if (!file && has_key(o, "model") != has_key(o, "cluster"))
        return spw_fail(SPW_EARG,
                        "no %s given; write --%s NAME too, or --job FILE (examples are in sim/jobs/)",
                        has_key(o, "model") ? "cluster" : "model", has_key(o, "model") ? "cluster" : "model");
    if (!file && !has_key(o, "model"))
        return spw_fail(
            SPW_EARG, "no job given; write --job FILE (examples are in sim/jobs/), or --model and --cluster");
    if (o->sequences != NULL) SPW_TRY(set_sequences(o, o->sequences));
    if (o->scheme_texts > 0) SPW_TRY(list_schemes(o));
    o->split_unsaid =
        !file && o->expert_parallel == NULL && !has_key(o, "parallel.expert") && !has_key(o, "parallel.fsdp");
    SPW_TRY(imply_split(o));
    SPW_TRY(check_schemes(o));
    o->schemes_unsaid = !file && o->scheme_texts == 0 && !has_key(o, "schemes");
    status = read_job(o);
    if (status != SPW_OK) SPW_TRY(hint_framework(o, status));
    warn_node(&job->cluster);
    if (o->points_alone) leave_out(o);
    SPW_TRY(spw_job_check(job));
    if (job->schemes == 0)
        return spw_fail(SPW_EARG, "no scheme: name some in the job (schemes: [gmm, ...]) or with --scheme");
    for (size_t i = 0; i < job->schemes; i++) SPW_TRY(spw_scheme_parse(job->scheme[i], &o->scheme[i]));
    if (!o->searched) SPW_TRY(say_micro_batches(o));
    for (size_t i = 0; i < job->schemes; i++) {
        SPW_TRY(spw_scheme_settle(job, &o->scheme[i]));
        memcpy(job->scheme[i], o->scheme[i].text, sizeof job->scheme[i]);
        if (!o->points_alone && !o->schemes_alone) SPW_TRY(spw_footprint_check(job, &o->scheme[i]));
    }

cleanup:
    return status;
}

spw_status spw_job_options_finish(spw_job_options *o) {
    const spw_status status = finish(o);
    return status == SPW_OK ? SPW_OK : hint_comma(o, status);
}

void spw_print_model_doubts(const spw_model *model, const char *label, FILE *out) {
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (model->doubt[i][0] != '\0') fprintf(out, "%s%s\n", label, model->doubt[i]);
}
