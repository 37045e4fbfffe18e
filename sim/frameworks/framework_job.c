#include "sim/frameworks/framework_job.h"

#include "base/memory.h"
#include "sim/frameworks/comment.h"
#include "sim/job/job_override.h"
#include "sim/job/replicas.h"
#include "sim/machine/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = SPW_COMMENT_LINE, MOST_SUMMARY = 400 };

spw_status spw_framework_open(const char *said, spw_draft *out) {
    const char *colon = strchr(said, ':');
    const spw_framework *framework = colon != NULL ? spw_framework_find(said, (size_t)(colon - said)) : NULL;
    if (framework == NULL && colon != NULL && access(said, F_OK) != 0)
        return spw_fail(
            SPW_EARG,
            "--from %s: '%.*s' is no framework whose files are read, and there is no such file; before ':' "
            "stands one of %s, or nothing, where the file says whose it is",
            said, (int)(colon - said), said, spw_framework_names());
    return spw_draft_read(framework != NULL ? colon + 1 : said, framework, out);
}

/* --- The job --- */

static bool is_given(const spw_job_override *override, size_t overrides, const char *key) {
    for (size_t i = 0; i < overrides; i++)
        if (strcmp(override[i].key, key) == 0) return true;
    return false;
}

enum { MODEL_TEXT = SPW_ENTRY_NAME + SPW_NOTE_WHY + 80 };
static bool says_model(const char *fact) {
    static const char *const facts[] = {"@model_name", "@flavor", "@moe_layers",  "@pattern",
                                        "@variant",    "@spec",   "@output_gate", NULL};
    const char *const *f = facts;
    while (*f != NULL && strcmp(*f, fact) != 0) f++;
    return *f != NULL;
}

/* What is wrong with the model that the file names, or with its sizes; NULL: neither is there. */
static const char *named_model(const spw_draft *d, char text[MODEL_TEXT]) {
    for (size_t i = 0; i < d->facts; i++) {
        const spw_draft_fact_entry *f = &d->fact[i];
        if (!says_model(f->name)) continue;
        for (size_t n = 0; n < d->notes; n++) {
            if (d->note[n].entry == NULL || d->note[n].entry != f->entry || d->note[n].kind == SPW_NOTE_MORE)
                continue;
            (void)snprintf(text, MODEL_TEXT, "%.60s '%.60s': %.240s%s", d->note[n].name, d->note[n].value,
                           d->note[n].why,
                           strstr(d->note[n].why, "--model") != NULL ? ", or --model config.json" : "");
            return text;
        }
    }
    for (size_t n = 0; n < d->notes; n++) {
        const spw_draft_note *note = &d->note[n];
        if (note->entry == NULL && note->kind == SPW_NOTE_LACKS && strcmp(note->name, "model") == 0)
            return note->why;
    }
    return NULL;
}

static spw_status check_said(const spw_draft *d, const spw_job_override *override, size_t overrides) {
    static const struct {
        const char *key, *example;
    } needed[] = {{"model", "--model NAME (spillway help models lists them) or --model config.json"},
                  {"cluster", "--cluster h100:8x16 (GPUs a node x nodes)"}};
    for (size_t i = 0; i < 2; i++)
        if (spw_draft_key_value(d, needed[i].key) == NULL && !is_given(override, overrides, needed[i].key)) {
            char text[MODEL_TEXT];
            const char *near = i == 0 ? named_model(d, text) : NULL;
            if (near != NULL) return spw_fail(SPW_ECONFIG, "%s: %s", d->where, near);
            return spw_fail(SPW_ECONFIG, "%s does not say the %s; add %s", d->where, needed[i].key,
                            needed[i].example);
        }
    return SPW_OK;
}

static const char *given_value(const spw_draft *d, const spw_job_override *override, size_t overrides,
                               const char *key) {
    const char *value = spw_draft_key_value(d, key);
    for (size_t i = 0; i < overrides; i++)
        if (strcmp(override[i].key, key) == 0) value = override[i].value;
    return value;
}

bool spw_framework_cluster_is_sized(const char *name) {
    char words[SPW_CLUSTER_WORDS];
    return name[strcspn(name, ":./")] != '\0' || spw_cluster_name_words(name, words)[0] != '\0';
}

static bool is_sized(const spw_job_override *override, size_t overrides) {
    for (size_t i = 0; i < overrides; i++)
        if (strcmp(override[i].key, "cluster") == 0) return spw_framework_cluster_is_sized(override[i].value);
    return false;
}

/* What the framework makes of this cluster, unless an option says who shares the weights. */
static spw_status settle(const spw_draft *d, const spw_job_override *override, size_t overrides,
                         spw_settled *out) {
    const char *name = given_value(d, override, overrides, "cluster"),
               *said = given_value(d, override, overrides, "gpus");
    spw_cluster *cluster = NULL;
    char plain[SPW_JOB_NAME];
    spw_status status = SPW_OK;
    if (d->framework->settle == NULL || name == NULL) return SPW_OK;
    for (size_t i = 0; i < overrides; i++)
        if (strcmp(override[i].key, "parallel.fsdp") == 0 ||
            (d->devices > 0 && (strncmp(override[i].key, "parallel.", 9) == 0 ||
                                strcmp(override[i].key, "fsdp2.replicas") == 0)))
            return SPW_OK;
    if (spw_draft_key_value(d, "parallel.fsdp") != NULL && d->mesh.node[SPW_AXIS_EXPERT] > 0 &&
        d->mesh.nodes[SPW_AXIS_EXPERT] > 0)
        return SPW_OK; /* put there for an option */
    (void)snprintf(plain, sizeof plain, "%s", name[0] == '\'' ? name + 1 : name);
    if (name[0] == '\'') plain[strcspn(plain, "'")] = '\0';
    SPW_TRY(SPW_ALLOC(1, &cluster));
    SPW_TRY(spw_cluster_read(plain, NULL, cluster));
    const bool all = is_sized(override, overrides) && !is_given(override, overrides, "gpus");
    const size_t gpus = said != NULL && !all ? strtoul(said, NULL, 10) : 0, node = cluster->gpus_per_node,
                 chips = gpus > 0 ? gpus : cluster->nodes * node, slices = spw_mesh_product(d->mesh.nodes);
    /* Of TPUs the chips of a slice are linked, whatever host they are in; the axes between slices say how many there are. */
    if (d->mesh.there && cluster->gpu_generation == SPW_GPU_NONE && chips % slices == 0)
        status = d->framework->settle(d, cluster, slices, chips / slices, out);
    else if (gpus == 0)
        status = d->framework->settle(d, cluster, cluster->nodes, node, out);
    else
        status =
            d->framework->settle(d, cluster, gpus > node ? gpus / node : 1, gpus > node ? node : gpus, out);

cleanup:
    spw_free(cluster);
    return status;
}

/* Is the setting, which has no value here, said by another line? */
static bool is_said_elsewhere(const spw_draft *d, const spw_draft_note *n) {
    const spw_framework_row *row = spw_framework_row_of(d->framework, n->name);
    for (size_t i = 0; row != NULL && row->ours != NULL && i < d->facts; i++)
        if (strcmp(d->fact[i].name, row->ours) == 0) return d->fact[i].entry != NULL;
    return false;
}

static bool is_doubt(const spw_draft *d, const spw_draft_note *n, bool amd) {
    if (n->kind == SPW_NOTE_UNSAID) return n->doubt && !is_said_elsewhere(d, n);
    return n->kind == SPW_NOTE_MORE && !(n->but_amd && amd);
}

/* What of the file may need more memory than is planned, or less, but for what options or the GPUs' stacks say better. */
static void say_notes(const spw_draft *d, const spw_job_override *override, size_t overrides, spw_job *job,
                      bool less) {
    char *out = less ? job->less : job->more;
    const bool amd = job->cluster.gpu_vendor == SPW_VENDOR_AMD;
    out[0] = '\0';
    for (size_t i = 0; i < d->notes; i++) {
        const spw_draft_note *n = &d->note[i];
        const size_t used = strlen(out);
        if (less ? !n->less : !is_doubt(d, n, amd)) continue;
        if (n->key != NULL && (is_given(override, overrides, n->key) ||
                               (strcmp(n->key, "batch.global_batch") == 0 &&
                                is_given(override, overrides, "batch.sequences_per_gpu"))))
            continue;
        (void)snprintf(out + used, SPW_JOB_MORE - used, "%s%s%s%s: %s", used > 0 ? "; " : "", n->name,
                       n->value[0] != '\0' ? " " : "", n->value, n->why);
    }
}

/* What is assumed as the file does not say it, but for what is among the doubts, and the keys ("optimizer: replicated") that an option
 * gives. One reason of several in a row is said once. */
static void say_unsaid(const spw_draft *d, const spw_job_override *override, size_t overrides, spw_job *job) {
    const spw_draft_note *last = NULL;
    job->unsaid[0] = '\0';
    for (size_t i = 0; i <= d->notes; i++) {
        const spw_draft_note *n = i < d->notes ? &d->note[i] : NULL;
        char key[SPW_DRAFT_KEY];
        if (n != NULL && (n->kind != SPW_NOTE_ASSUMED || n->less)) continue;
        if (n != NULL) (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(n->name, ":"), n->name);
        if (n != NULL && is_given(override, overrides, key)) continue;
        size_t used = strlen(job->unsaid);
        const bool same = n != NULL && last != NULL && strcmp(n->why, last->why) == 0;
        if (last != NULL && !same)
            (void)snprintf(job->unsaid + used, SPW_JOB_UNSAID - used, " (%s)%s", last->why,
                           n != NULL ? "; " : "");
        used = strlen(job->unsaid);
        if (n != NULL)
            (void)snprintf(job->unsaid + used, SPW_JOB_UNSAID - used, "%s%s", same ? ", " : "", n->name);
        last = n;
    }
}

/* A list of batches has one number of micro-batches, so it keeps the file's; 0: there is no list, or the file has none. */
static size_t listed_parts(const spw_draft *d, const spw_job_override *override, size_t overrides) {
    const char *own = spw_draft_key_value(d, "batch.sequences_per_gpu");
    const size_t sequences = own != NULL ? strtoul(own, NULL, 10) : 0;
    bool list = false;
    for (size_t i = 0; i < overrides; i++)
        list = list || (strcmp(override[i].key, "batch.sequences_per_gpu") == 0 &&
                        strchr(override[i].value, ',') != NULL);
    return list && d->micro_batch > 0 && sequences % d->micro_batch == 0 ? sequences / d->micro_batch : 0;
}

/* Which setting of the mesh makes replicas. */
static void name_data_axis(const spw_draft *d, const spw_settled *settled, char *out, size_t size) {
    static const char *const facts[] = {"@dcn_data", "@ici_data"};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < d->facts; i++) {
            const spw_draft_fact_entry *said = &d->fact[i];
            if (strcmp(said->name, facts[f]) != 0 || said->entry == NULL || strcmp(said->value, "1") == 0)
                continue;
            (void)snprintf(out, size, "the file's %s_data_parallelism %.20s", f == 0 ? "dcn" : "ici",
                           said->value);
            return;
        }
    (void)snprintf(
        out, size,
        "the mesh has a data axis of %zu, which base.yml's dcn_data_parallelism makes of all nodes",
        settled->replicas);
}

/* One replica is planned. */
static void say_replica(const spw_draft *d, const spw_settled *settled, spw_job *job) {
    const size_t used = strlen(job->unsaid);
    char axis[120];
    name_data_axis(d, settled, axis, sizeof axis);
    job->mesh_replicas = settled->replicas;
    job->mesh_between = settled->between;
    (void)snprintf(
        job->unsaid + used, SPW_JOB_UNSAID - used,
        "%sone of %zu replicas of %zu GPUs is planned (%s): each holds all state, and memory, drops and "
        "exchanges "
        "of a GPU are those of any; tokens a day, days and cost are of all %zu GPUs, and have the sum of "
        "gradients over replicas, which is not in the step: %.2f s at the %s rate where nothing hides it",
        used > 0 ? "; " : "", settled->replicas, settled->gpus, axis, settled->replicas * settled->gpus,
        spw_job_replicas_s(job, settled->gpus), job->mesh_between > 1 ? "NICs'" : "links'");
}

/* The options with the number of GPUs of one replica. */
static spw_status take_replica(const spw_settled *settled, const spw_job_override *override, size_t overrides,
                               char number[24], spw_job_override **out, size_t *count) {
    spw_job_override *all = NULL;
    const spw_status status = SPW_ALLOC(overrides + 1, &all);
    if (status != SPW_OK) return status;
    *count = 0;
    for (size_t i = 0; i < overrides; i++)
        if (strcmp(override[i].key, "gpus") != 0) all[(*count)++] = override[i];
    (void)snprintf(number, 24, "%zu", settled->gpus);
    all[(*count)++] = (spw_job_override){"gpus", number, spw_replica_label};
    *out = all;
    return SPW_OK;
}

static spw_status read_job(const spw_draft *d, const spw_job_override *override, size_t overrides,
                           spw_job *out) {
    static const char base[] = "parallel: {expert: 0, fsdp: 0}\nbatch: {sequence_length: 4096}\n";
    spw_job_override given[SPW_DRAFT_KEYS + 1];
    char number[24];
    size_t givens = 0;
    for (size_t i = 0; i < d->keys; i++) {
        if (d->key[i].key[0] == '\0') continue;
        if (strcmp(d->key[i].key, "gpus") == 0 && is_sized(override, overrides))
            continue; /* it says as many */
        given[givens++] = (spw_job_override){d->key[i].key, d->key[i].value, d->key[i].label};
    }
    const bool said = is_given(override, overrides, "batch.micro_batches");
    const size_t parts = said ? 0 : listed_parts(d, override, overrides);
    if (parts > 0) {
        (void)snprintf(number, sizeof number, "%zu", parts);
        given[givens++] = (spw_job_override){"batch.micro_batches", number, d->where};
    }
    const spw_job_place at = {.where = d->where,
                              .override = override,
                              .overrides = overrides,
                              .given = given,
                              .givens = givens,
                              .micro_batch = said || parts > 0 ? 0 : d->micro_batch};
    const spw_status status = spw_job_parse_at(&at, base, sizeof base - 1, out);
    if (status != SPW_OK) return status;
    say_notes(d, override, overrides, out, false);
    say_notes(d, override, overrides, out, true);
    say_unsaid(d, override, overrides, out);
    if (d->framework->express == NULL)
        (void)snprintf(out->origin, sizeof out->origin, "%s", spw_draft_title(d));
    return status;
}

spw_status spw_framework_job_read(const spw_draft *d, const spw_job_override *override, size_t overrides,
                                  spw_job *out) {
    spw_settled settled = {.replicas = 0};
    spw_job_override *one = NULL;
    char number[24];
    size_t count = 0;
    spw_status status = SPW_OK;
    SPW_TRY(check_said(d, override, overrides));
    SPW_TRY(settle(d, override, overrides, &settled));
    if (settled.gpus == 0) return read_job(d, override, overrides, out);
    SPW_TRY(take_replica(&settled, override, overrides, number, &one, &count));
    SPW_TRY(read_job(d, one, count, out));
    say_replica(d, &settled, out);

cleanup:
    spw_free(one);
    return status;
}

/* --- Text --- */

static size_t count_of(const spw_draft *d, spw_note_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < d->notes; i++) count += d->note[i].kind == kind;
    return count;
}

static bool is_under(const spw_draft_note *n, bool unset) {
    return unset ? n->kind == SPW_NOTE_UNSAID : n->kind == SPW_NOTE_LACKS || n->kind == SPW_NOTE_MORE;
}

/* Names of one heading, or of another, once each, as many as fit. */
static void print_some(const spw_draft *d, bool unset, FILE *out) {
    size_t used = 0, left = 0;
    for (size_t i = 0; i < d->notes; i++) {
        const spw_draft_note *n = &d->note[i];
        size_t first = 0;
        while (first < i && (!is_under(&d->note[first], unset) || strcmp(d->note[first].name, n->name) != 0))
            first++;
        if (!is_under(n, unset) || first < i) continue;
        if (used > MOST_SUMMARY) {
            left++;
            continue;
        }
        used += (size_t)fprintf(out, "%s%s",
                                used > 0 ? ", "
                                : unset  ? "; no value: "
                                         : "; no counterpart: ",
                                n->name);
    }
    if (left > 0) fprintf(out, " and %zu more", left);
}

void spw_framework_print_summary(const spw_draft *d, FILE *out) {
    size_t counts = 0;
    for (size_t i = 0; i < d->entries.count; i++) counts += spw_draft_use_of(d, i) != SPW_USE_NOTE;
    fprintf(out, "from %s (%s): %zu of %zu settings count, %zu play no part or are off", d->where,
            spw_draft_title(d), counts, d->entries.count,
            count_of(d, SPW_NOTE_QUIET) + count_of(d, SPW_NOTE_OFF));
    print_some(d, false, out);
    print_some(d, true, out);
    fprintf(out, "; spillway job %s says why\n", d->where);
}

/* One comment of a kind: names alone, wrapped. */
static void print_names(const spw_draft *d, spw_note_kind kind, const char *title, FILE *out) {
    size_t column = 0;
    if (count_of(d, kind) == 0) return;
    fprintf(out, "# %s:", title);
    column = strlen(title) + 3;
    for (size_t i = 0; i < d->notes; i++) {
        if (d->note[i].kind != kind) continue;
        const size_t width = strlen(d->note[i].name) + 1;
        if (column + width > LINE) {
            fprintf(out, "\n#  ");
            column = 3;
        }
        fprintf(out, " %s", d->note[i].name);
        column += width;
    }
    fputc('\n', out);
}

static void print_reasons(const spw_draft *d, spw_note_kind kind, const char *title, FILE *out) {
    char text[SPW_ENTRY_NAME + SPW_NOTE_WHY + 128], line[32] = "";
    if (count_of(d, kind) == 0) return;
    fprintf(out, "# %s:\n", title);
    for (size_t i = 0; i < d->notes; i++) {
        const spw_draft_note *n = &d->note[i];
        if (n->kind != kind) continue;
        (void)snprintf(line, sizeof line, " (line %zu)", n->line);
        (void)snprintf(text, sizeof text, "%s%s%s%s%s%s", n->name, n->value[0] != '\0' ? " " : "", n->value,
                       n->line > 0 ? line : "", n->why[0] != '\0' ? ": " : "", n->why);
        spw_comment_print(text, "#   ", "#     ", " ", out);
    }
}

/* Settings that count without being a value's own line: sizes that are a model's, and what rules read beside others. */
static void print_read(const spw_draft *d, FILE *out) {
    char name[SPW_ENTRY_NAME];
    size_t column = 0;
    for (size_t i = 0; i < d->entries.count; i++) {
        if (spw_draft_use_of(d, i) != SPW_USE_READ) continue;
        (void)spw_framework_plain_name(d->framework, d->entries.entry[i].name, name);
        if (column == 0) column = (size_t)fprintf(out, "# counts beside the values above:");
        if (column + strlen(name) + 1 > LINE) column = (size_t)fprintf(out, "\n#  ") - 1;
        column += (size_t)fprintf(out, " %s", name);
    }
    if (column > 0) fputc('\n', out);
}

static void print_label(const spw_draft_key *key, const char *where, FILE *out) {
    const size_t length = strlen(where) < 80 ? strlen(where) : 80;
    const char *rest = key->label + (strncmp(key->label, where, length) == 0 ? length : 0);
    if (rest[0] == ':')
        fprintf(out, "  # line %s", rest + 1);
    else if (rest[0] == ' ')
        fprintf(out, "  # %s", rest + 1);
}

static bool is_list(const char *key) {
    return strcmp(key, "schemes") == 0 || strcmp(key, "batch.sequences_per_gpu") == 0 ||
           strcmp(key, "offload_modules") == 0;
}

static void print_value(const spw_draft_key *key, const char *name, const char *indent, const char *where,
                        FILE *out) {
    fprintf(out, "%s%s: %s%s%s", indent, name, is_list(key->key) ? "[" : "", key->value,
            is_list(key->key) ? "]" : "");
    print_label(key, where, out);
    fputc('\n', out);
}

/* Keys of a group stand together, in the order in which their group was first put. */
static void print_group(const spw_draft *d, const char *group, size_t length, FILE *out) {
    fprintf(out, "%.*s:\n", (int)length, group);
    for (size_t i = 0; i < d->keys; i++)
        if (strncmp(d->key[i].key, group, length) == 0 && d->key[i].key[length] == '.')
            print_value(&d->key[i], d->key[i].key + length + 1, "  ", d->where, out);
    if (strncmp(group, "parallel", length) == 0 && spw_draft_key_value(d, "parallel.fsdp") == NULL)
        fprintf(out, "  fsdp: 0  # what is left of the GPUs\n");
    if (strncmp(group, "batch", length) == 0 && d->micro_batch > 0)
        fprintf(out, "  # micro-batches of %zu: micro_batches is the sequences of a rank over that\n",
                d->micro_batch);
}

void spw_framework_print_job(const spw_draft *d, FILE *out) {
    char head[1024];
    (void)snprintf(head, sizeof head, "%.400s, read as %s (%s)", d->where, spw_draft_title(d),
                   d->framework->source);
    spw_comment_print(head, "# ", "#   ", " ", out);
    if (spw_draft_key_value(d, "model") == NULL)
        fprintf(out, "# model: the file does not say it; add --model NAME|config.json\n");
    if (spw_draft_key_value(d, "cluster") == NULL)
        fprintf(out, "# cluster: the file does not say it; add --cluster h100:8x16\n");
    for (size_t i = 0; i < d->keys; i++) {
        const char *key = d->key[i].key, *point = strchr(key, '.');
        bool first = true;
        if (key[0] == '\0') continue;
        if (point == NULL) {
            print_value(&d->key[i], key, "", d->where, out);
            continue;
        }
        for (size_t j = 0; j < i; j++)
            first = first && strncmp(d->key[j].key, key, (size_t)(point - key) + 1) != 0;
        if (first) print_group(d, key, (size_t)(point - key), out);
    }
    print_read(d, out);
    print_reasons(d, SPW_NOTE_LACKS, "no counterpart", out);
    print_reasons(d, SPW_NOTE_MORE, "may need more memory than is planned", out);
    print_reasons(d, SPW_NOTE_UNSAID, "not said", out);
    print_reasons(d, SPW_NOTE_ASSUMED, "assumed", out);
    print_reasons(d, SPW_NOTE_TWICE, "given twice", out);
    print_names(d, SPW_NOTE_QUIET, "plays no part in memory and time", out);
    print_names(d, SPW_NOTE_OFF, "off, or the framework's default of nothing", out);
}
