#include "sim/plan/search_space.h"

#include "base/text.h"
#include "sim/job/common_names.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/job_check.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/job/state_law.h"
#include "sim/model/attention.h"
#include "sim/print/plural.h"
#include "sim/schemes/traffic.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The dimensions --- */

static spw_status set_gpus(spw_job *job, size_t value) {
    job->gpus = value;
    return spw_cluster_resize(&job->cluster, value);
}

static spw_status set_pipeline(spw_job *job, size_t value) {
    job->pipeline = value;
    return SPW_OK;
}

static spw_status set_tensor(spw_job *job, size_t value) {
    job->tensor = value;
    return SPW_OK;
}

static spw_status set_context(spw_job *job, size_t value) {
    job->context = value;
    return SPW_OK;
}

static spw_status set_expert_tensor(spw_job *job, size_t value) {
    job->expert_tensor = value;
    return SPW_OK;
}

static spw_status set_micro_batches(spw_job *job, size_t value) {
    job->micro_batches = value;
    return SPW_OK;
}

static spw_status set_expert(spw_job *job, size_t value) {
    job->expert = value;
    return SPW_OK;
}

static spw_status set_virtual_stages(spw_job *job, size_t value) {
    job->virtual_stages = value;
    return SPW_OK;
}

static spw_status set_remat(spw_job *job, size_t value) {
    job->remat = (spw_remat)value;
    return SPW_OK;
}

static const struct {
    const char *name;
    spw_status (*set)(spw_job *job, size_t value);
    size_t least; /* of a value that is a number */
    bool policy;  /* its values are names of spw_remat */
} dimensions[SPW_SEARCH_DIMENSIONS] = {
    [SPW_SEARCH_GPUS] = {"gpus", set_gpus, 1, false},
    [SPW_SEARCH_PIPELINE] = {"pipeline", set_pipeline, 1, false},
    [SPW_SEARCH_TENSOR] = {"tensor", set_tensor, 1, false},
    [SPW_SEARCH_CONTEXT] = {"context", set_context, 1, false},
    [SPW_SEARCH_EXPERT_TENSOR] = {"expert-tensor", set_expert_tensor, 0, false},
    [SPW_SEARCH_MICRO_BATCHES] = {"micro-batches", set_micro_batches, 1, false},
    [SPW_SEARCH_EXPERT] = {"expert-parallel", set_expert, 1, false},
    [SPW_SEARCH_VIRTUAL_STAGES] = {"virtual-stages", set_virtual_stages, 0, false},
    [SPW_SEARCH_REMAT] = {"remat", set_remat, 0, true},
};

const char *spw_search_dimension_name(size_t dimension) { return dimensions[dimension].name; }

const char *spw_search_value_text(size_t dimension, size_t value, char out[SPW_REMAT_TEXT]) {
    if (dimensions[dimension].policy) {
        (void)snprintf(out, SPW_REMAT_TEXT, "%s", spw_remat_name((spw_remat)value));
    } else {
        (void)snprintf(out, SPW_REMAT_TEXT, "%zu", value);
    }
    return out;
}

/* --- Values --- */

/* Each value once; what no longer fits in the list is left out. */
static void search_space_add(spw_search_space *s, size_t dimension, size_t value) {
    size_t *count = &s->values[dimension];
    for (size_t i = 0; i < *count; i++)
        if (s->value[dimension][i] == value) return;
    if (*count < SPW_SEARCH_VALUES) s->value[dimension][(*count)++] = value;
}

static void add_doubled(spw_search_space *s, size_t dimension, size_t first, size_t last) {
    for (size_t value = first; value <= last; value *= 2) search_space_add(s, dimension, value);
}

static size_t at_least_one(size_t count) { return count > 0 ? count : 1; }

/* What people make Megatron-Core's layers compute again, from nothing to whole MoE layers: moe_act and layernorm cost almost no
 * time, mla_up_proj and mhc little. A list with MLA's projections is of models that have them, one that leaves them out beside
 * moe of the others; one with mhc is of models with residual streams. */
static void add_megatron_remats(spw_search_space *s, const spw_model *model) {
    enum { ANY = 1, MLA = 2, OTHERS = 4, STREAMS = 8 };
    const unsigned own =
        ANY | (spw_attention_is_latent(model) ? MLA : OTHERS) | (model->streams > 1 ? STREAMS : 0);
    static const struct {
        unsigned modules, models;
    } lists[] = {
        {SPW_MODULE_CORE_ATTN, ANY},
        {SPW_MODULE_MOE_ACT, ANY},
        {SPW_MODULE_MOE_ACT | SPW_MODULE_LAYERNORM, ANY},
        {SPW_MODULE_MOE_ACT | SPW_MODULE_LAYERNORM | SPW_MODULE_MLA_UP_PROJ, MLA},
        {SPW_MODULE_MOE, ANY},
        {SPW_MODULE_MOE | SPW_MODULE_LAYERNORM, OTHERS},
        {SPW_MODULE_MOE | SPW_MODULE_LAYERNORM | SPW_MODULE_MLA_UP_PROJ, MLA},
        {SPW_MODULE_MHC, STREAMS},
        {SPW_MODULE_MHC | SPW_MODULE_MLA_UP_PROJ, STREAMS},
    };
    search_space_add(s, SPW_SEARCH_REMAT, SPW_REMAT_NONE);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if ((lists[i].models & own) != 0)
            search_space_add(s, SPW_SEARCH_REMAT, spw_remat_join(lists[i].modules));
}

void spw_search_space_open(const spw_job *base, size_t gpus_most, bool megatron, bool compiled,
                           spw_search_space *out) {
    const size_t gpus = spw_job_gpus(base), most = gpus_most > 0 && gpus > gpus_most ? gpus_most : gpus;
    const size_t largest = gpus_most > gpus ? gpus_most : most;
    enum { MOST_STAGES = 16, MOST_VIRTUAL = 4, MOST_MICRO_BATCHES = 32 };
    *out = (spw_search_space){.base = base};
    if (gpus_most == 0 || gpus <= gpus_most) search_space_add(out, SPW_SEARCH_GPUS, gpus);
    if (gpus_most > 0) add_doubled(out, SPW_SEARCH_GPUS, base->cluster.gpus_per_node, gpus_most);
    search_space_add(out, SPW_SEARCH_PIPELINE, at_least_one(base->pipeline));
    add_doubled(out, SPW_SEARCH_PIPELINE, 1, MOST_STAGES);
    for (size_t stages = 1; stages <= MOST_STAGES; stages++)
        if (gpus % stages == 0) search_space_add(out, SPW_SEARCH_PIPELINE, stages);
    search_space_add(out, SPW_SEARCH_TENSOR, at_least_one(base->tensor));
    search_space_add(out, SPW_SEARCH_CONTEXT, at_least_one(base->context));
    /* MaxText's axis tensor cuts the experts as well. Megatron-Core's default does, too, and its recipes set 1. */
    const size_t unsaid = spw_state_law_of(base)->expert_tensor;
    search_space_add(out, SPW_SEARCH_EXPERT_TENSOR, base->expert_tensor > 0 ? base->expert_tensor : unsaid);
    search_space_add(out, SPW_SEARCH_MICRO_BATCHES, at_least_one(base->micro_batches));
    add_doubled(out, SPW_SEARCH_MICRO_BATCHES, 1, MOST_MICRO_BATCHES);
    search_space_add(out, SPW_SEARCH_EXPERT, base->expert);
    for (size_t expert = 1; expert <= largest && expert <= base->model.experts; expert++)
        if (base->model.experts % expert == 0) search_space_add(out, SPW_SEARCH_EXPERT, expert);
    search_space_add(out, SPW_SEARCH_VIRTUAL_STAGES, base->virtual_stages);
    search_space_add(out, SPW_SEARCH_VIRTUAL_STAGES, 0);
    add_doubled(out, SPW_SEARCH_VIRTUAL_STAGES, 2, MOST_VIRTUAL);
    search_space_add(out, SPW_SEARCH_REMAT, base->remat);
    search_space_add(out, SPW_SEARCH_REMAT, SPW_REMAT_FULL);
    if (compiled) search_space_add(out, SPW_SEARCH_REMAT, SPW_REMAT_SAVE_OUT_PROJ);
    if (megatron) add_megatron_remats(out, &base->model);
}

static spw_status read_value(size_t dimension, const char *text, size_t *out) {
    spw_remat remat = SPW_REMAT_NONE;
    char *end = NULL;
    if (dimensions[dimension].policy) {
        const spw_status status = spw_remat_parse(text, &remat);
        *out = (size_t)remat;
        return status;
    }
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value > 1u << 20 ||
        value < dimensions[dimension].least)
        return spw_fail(SPW_EARG, "'%.40s' is no whole number from %zu to %u", text,
                        dimensions[dimension].least, 1u << 20);
    *out = (size_t)value;
    return SPW_OK;
}

spw_status spw_search_space_set(spw_search_space *s, const char *text) {
    char copy[1024], known[200] = "", *rest = NULL;
    const size_t name = strcspn(text, "=");
    size_t dimension = 0;
    if (text[name] == '\0' || strlen(text) >= sizeof copy)
        return spw_fail(SPW_EARG, "--over %.60s: write KEY=LIST, as in pipeline=1,2,4", text);
    while (dimension < SPW_SEARCH_DIMENSIONS && (strlen(dimensions[dimension].name) != name ||
                                                 memcmp(dimensions[dimension].name, text, name) != 0))
        dimension++;
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", d > 0 ? ", " : "", dimensions[d].name);
    }
    const spw_common_name *const common = spw_common_name_find(text, name);
    for (size_t d = 0; dimension == SPW_SEARCH_DIMENSIONS && common != NULL && d < SPW_SEARCH_DIMENSIONS; d++)
        if (common->option != NULL && strcmp(common->option, dimensions[d].name) == 0)
            return spw_fail(SPW_EARG, "--over %.60s: did you mean %s%s? a search is over %s", text,
                            dimensions[d].name, text + name, known);
    if (dimension == SPW_SEARCH_DIMENSIONS)
        return spw_fail(
            SPW_EARG, "--over %.60s: a search is over %s; batches are --sequences-per-gpu, schemes --scheme",
            text, known);
    if (spw_text_has_gap(text + name + 1))
        return spw_fail(SPW_EARG, "--over %.60s: an empty place; write KEY=LIST, as in pipeline=1,2,4", text);
    if (s->given[dimension])
        return spw_fail(SPW_EARG, "--over %.60s: the values of %s are given twice; write them in one list",
                        text, dimensions[dimension].name);
    s->values[dimension] = 0;
    s->given[dimension] = true;
    (void)snprintf(copy, sizeof copy, "%s", text + name + 1);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        size_t value = 0;
        const spw_status status = read_value(dimension, part, &value);
        if (status != SPW_OK) return spw_fail_within(SPW_EARG, "--over %.60s", text);
        if (s->values[dimension] == SPW_SEARCH_VALUES)
            return spw_fail(SPW_EARG, "--over %.60s: more than %d values", text, SPW_SEARCH_VALUES);
        search_space_add(s, dimension, value);
    }
    return s->values[dimension] > 0
               ? SPW_OK
               : spw_fail(SPW_EARG, "--over %.60s: write KEY=LIST, as in pipeline=1,2,4", text);
}

/* --- The odometer --- */

size_t spw_search_space_jobs(const spw_search_space *s) {
    size_t jobs = 1;
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) jobs *= s->values[d];
    return jobs;
}

/* The dimension with the most values, of equal ones the first, that was not `said`; SPW_SEARCH_DIMENSIONS: none has two. */
static size_t next_widest(const spw_search_space *s, const bool *said) {
    size_t widest = SPW_SEARCH_DIMENSIONS;
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        if (said[d] || s->values[d] < 2) continue;
        if (widest == SPW_SEARCH_DIMENSIONS || s->values[d] > s->values[widest]) widest = d;
    }
    return widest;
}

const char *spw_search_space_less(const spw_search_space *s, char out[SPW_SEARCH_LESS_TEXT]) {
    bool said[SPW_SEARCH_DIMENSIONS] = {false};
    const char *before = "--over KEY=LIST, where KEY is";
    (void)snprintf(out, SPW_SEARCH_LESS_TEXT, "^C prints the best so far; less: ");
    for (size_t d = next_widest(s, said); d < SPW_SEARCH_DIMENSIONS; d = next_widest(s, said)) {
        const size_t used = strlen(out);
        (void)snprintf(out + used, SPW_SEARCH_LESS_TEXT - used, "%s %s (%zu values now)", before,
                       spw_search_dimension_name(d), s->values[d]);
        before = ",";
        said[d] = true;
    }
    const size_t used = strlen(out);
    const char *between = before[0] == ',' ? "; or " : "";
    if (s->base->batches > 1 && s->base->global_batch == 0)
        (void)snprintf(out + used, SPW_SEARCH_LESS_TEXT - used, "%s--sequences-per-gpu LIST (%zu now)",
                       between, s->base->batches);
    return out;
}

size_t spw_search_space_twins(const spw_search_space *s) {
    size_t jobs = 1;
    for (size_t d = SPW_SEARCH_EXPERT + 1; d < SPW_SEARCH_DIMENSIONS; d++) jobs *= s->values[d];
    return jobs;
}

void spw_search_space_values(const spw_search_space *s, size_t index, size_t value[SPW_SEARCH_DIMENSIONS]) {
    for (size_t d = SPW_SEARCH_DIMENSIONS; d-- > 0; index /= s->values[d])
        value[d] = s->value[d][index % s->values[d]];
}

size_t spw_search_expert_tensor(const size_t value[SPW_SEARCH_DIMENSIONS]) {
    const size_t said = value[SPW_SEARCH_EXPERT_TENSOR];
    return said > 0 ? said : value[SPW_SEARCH_TENSOR];
}

bool spw_search_divides(const size_t value[SPW_SEARCH_DIMENSIONS]) {
    const size_t parts =
        value[SPW_SEARCH_EXPERT] * value[SPW_SEARCH_PIPELINE] * spw_search_expert_tensor(value);
    return value[SPW_SEARCH_GPUS] % parts == 0;
}

/* --- One global batch --- */

/* Sequences of a data-parallel rank; 0: no whole number of ranks or of sequences. */
static size_t sequences_of_rank(const spw_search_space *s, const size_t value[SPW_SEARCH_DIMENSIONS]) {
    const size_t sharers = value[SPW_SEARCH_PIPELINE] * value[SPW_SEARCH_TENSOR] * value[SPW_SEARCH_CONTEXT];
    const size_t ranks = value[SPW_SEARCH_GPUS] % sharers == 0 ? value[SPW_SEARCH_GPUS] / sharers : 0;
    return ranks > 0 && s->base->global_batch % ranks == 0 ? s->base->global_batch / ranks : 0;
}

size_t spw_search_space_batches(const spw_search_space *s) {
    return s->base->global_batch > 0 ? 1 : s->base->batches;
}

bool spw_search_space_is_uneven(const spw_search_space *s, const size_t value[SPW_SEARCH_DIMENSIONS]) {
    if (s->base->global_batch == 0) return false;
    const size_t sequences = sequences_of_rank(s, value);
    return sequences == 0 || sequences % value[SPW_SEARCH_MICRO_BATCHES] != 0;
}

size_t spw_search_space_batch(const spw_search_space *s, size_t sequences) {
    size_t at = 0;
    while (at < s->base->batches && s->base->sequences_per_gpu[at] != sequences) at++;
    return at;
}

static spw_status add_batch(spw_job *base, size_t sequences) {
    size_t at = 0;
    while (at < base->batches && base->sequences_per_gpu[at] < sequences) at++;
    if (at < base->batches && base->sequences_per_gpu[at] == sequences) return SPW_OK;
    if (base->batches == SPW_JOB_MAX_BATCHES)
        return spw_fail(SPW_EARG,
                        "--global-batch %zu: the splits of this space have more than %d batches of a rank; "
                        "give shorter lists of gpus, pipeline, tensor and context",
                        base->global_batch, SPW_JOB_MAX_BATCHES);
    memmove(&base->sequences_per_gpu[at + 1], &base->sequences_per_gpu[at],
            (base->batches++ - at) * sizeof *base->sequences_per_gpu);
    base->sequences_per_gpu[at] = sequences;
    return SPW_OK;
}

/* The batches of all splits. */
static spw_status add_batches(const spw_search_space *s, spw_job *base) {
    static const size_t dimension[] = {SPW_SEARCH_GPUS, SPW_SEARCH_PIPELINE, SPW_SEARCH_TENSOR,
                                       SPW_SEARCH_CONTEXT};
    enum { DIMENSIONS = sizeof dimension / sizeof *dimension };
    size_t value[SPW_SEARCH_DIMENSIONS] = {0}, splits = 1;
    spw_status status = SPW_OK;
    for (size_t d = 0; d < DIMENSIONS; d++) splits *= s->values[dimension[d]];
    for (size_t i = 0; i < splits && status == SPW_OK; i++) {
        size_t rest = i;
        for (size_t d = 0; d < DIMENSIONS; rest /= s->values[dimension[d]], d++)
            value[dimension[d]] = s->value[dimension[d]][rest % s->values[dimension[d]]];
        const size_t sequences = sequences_of_rank(s, value);
        if (sequences > 0) status = add_batch(base, sequences);
    }
    return status;
}

spw_status spw_search_space_reach(spw_search_space *s, spw_job *base) {
    enum { MOST_SIZE = 64 };
    s->base = base;
    base->batches = 0;
    const spw_status status = add_batches(s, base);
    if (status != SPW_OK) return status;
    if (base->batches == 0)
        return spw_fail(
            SPW_EARG,
            "--global-batch %zu: no split of this space gives each data-parallel rank a whole number "
            "of sequences; take a multiple of the GPUs over tensor x context x pipeline",
            base->global_batch);
    if (s->given[SPW_SEARCH_MICRO_BATCHES]) return SPW_OK;
    s->values[SPW_SEARCH_MICRO_BATCHES] = 0;
    search_space_add(s, SPW_SEARCH_MICRO_BATCHES, at_least_one(base->micro_batches));
    search_space_add(s, SPW_SEARCH_MICRO_BATCHES, 1);
    for (size_t i = 0; i < base->batches; i++)
        for (size_t size = MOST_SIZE; size > 0; size /= 2)
            if (base->sequences_per_gpu[i] % size == 0)
                search_space_add(s, SPW_SEARCH_MICRO_BATCHES, base->sequences_per_gpu[i] / size);
    return SPW_OK;
}

/* --- Jobs --- */

static void keep_batches(const spw_search_space *s, const size_t value[SPW_SEARCH_DIMENSIONS], spw_job *job) {
    const size_t parts = at_least_one(job->micro_batches), only = s->base->global_batch;
    size_t kept = 0;
    if (only > 0) {
        job->batches = !spw_search_space_is_uneven(s, value);
        job->sequences_per_gpu[0] = sequences_of_rank(s, value);
        return;
    }
    for (size_t i = 0; i < job->batches; i++)
        if (job->sequences_per_gpu[i] % parts == 0)
            job->sequences_per_gpu[kept++] = job->sequences_per_gpu[i];
    job->batches = kept;
}

/* Expert-parallel size, stages and GPUs that share an expert do not divide the GPUs: which of them. */
static spw_status fail_split(spw_job *job, size_t gpus) {
    const size_t sharers = spw_grid_of(job).expert_tensor, others = job->pipeline * sharers;
    if (gpus % others == 0) return spw_job_fail_expert_size(job, job->expert, gpus / others);
    if (job->pipeline > gpus || sharers > gpus)
        return spw_fail(SPW_ECONFIG, "%s %zu is more than the %zu GPUs of cluster '%s' (%zu node%s x %zu)",
                        job->pipeline > gpus ? "pipeline" : "expert_tensor",
                        job->pipeline > gpus ? job->pipeline : sharers, gpus, job->cluster.name,
                        job->cluster.nodes, spw_plural(job->cluster.nodes), job->cluster.gpus_per_node);
    job->expert = job->fsdp = 1;
    return spw_job_check(job);
}

spw_status spw_search_space_job(const spw_search_space *s, const size_t value[SPW_SEARCH_DIMENSIONS],
                                spw_job *out) {
    *out = *s->base;
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        const spw_status status = dimensions[d].set(out, value[d]);
        if (status != SPW_OK) return status;
    }
    const size_t gpus = out->cluster.nodes * out->cluster.gpus_per_node,
                 others = out->expert * out->pipeline * spw_grid_of(out).expert_tensor;
    if (gpus % others != 0) return fail_split(out, gpus);
    if (out->expert > SPW_TRAFFIC_MAX_RANKS)
        return spw_fail(SPW_ECONFIG, "expert-parallel sizes above %d are not supported",
                        SPW_TRAFFIC_MAX_RANKS);
    out->fsdp = gpus / others;
    out->data = 0;
    keep_batches(s, value, out);
    if (out->batches == 0)
        return spw_fail(SPW_ECONFIG, "micro_batches %zu divides none of the batches (--sequences-per-gpu)",
                        out->micro_batches);
    return spw_job_check(out);
}
