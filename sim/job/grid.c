#include "sim/job/grid.h"

#include "sim/job/job.h"
#include "sim/job/state_law.h"
#include "sim/model/attention.h"

static size_t at_least_one(size_t count) { return count > 0 ? count : 1; }

spw_grid spw_grid_of(const spw_job *job) {
    spw_grid g = {.tensor = at_least_one(job->tensor),
                  .context = at_least_one(job->context),
                  .data = job->data,
                  .pipeline = at_least_one(job->pipeline),
                  .expert_tensor = job->expert_tensor,
                  .expert = at_least_one(job->expert),
                  .expert_data = at_least_one(job->fsdp)};
    if (g.expert_tensor == 0) g.expert_tensor = g.tensor;
    if (g.data == 0)
        g.data = at_least_one(g.expert_tensor * g.expert * g.expert_data / (g.tensor * g.context));
    const bool mesh = spw_state_is_sharded(job) && g.tensor * g.context > 1;
    g.mesh_tensor = mesh ? g.tensor : 1;
    g.mesh_context = mesh ? g.context : 1;
    g.sequence_tensor = mesh ? 1 : g.tensor;
    g.expert_sharers = mesh ? 1 : g.expert_tensor;
    return g;
}

bool spw_grid_is_plain(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.tensor == 1 && g.context == 1 && g.expert_tensor == 1;
}

size_t spw_grid_mesh_gpus(const spw_grid *g) { return g->mesh_tensor * g->mesh_context; }

size_t spw_grid_mesh_tensor(const spw_job *job) { return spw_grid_of(job).mesh_tensor; }

bool spw_grid_shares_heads(const spw_job *job) {
    const spw_model *m = &job->model;
    return spw_attention_is_grouped(m) && m->kv_heads > 0 && spw_grid_of(job).sequence_tensor > m->kv_heads;
}

size_t spw_grid_sequence_tokens(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return job->sequence_length / (g.sequence_tensor * g.context);
}

size_t spw_grid_token_ranks(const spw_job *job) { return spw_job_gpus(job) / spw_grid_mesh_tensor(job); }

size_t spw_grid_stage_gpus(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.expert_tensor * g.expert * g.expert_data;
}

bool spw_grid_assumed(const spw_job *job, char out[SPW_GRID_ASSUMED_TEXT]) {
    out[0] = '\0';
    if (job->expert_tensor > 0 || spw_grid_of(job).sequence_tensor == 1) return false;
    (void)snprintf(
        out, SPW_GRID_ASSUMED_TEXT,
        "expert_tensor is %zu, as tensor is, because the job does not say: Megatron-Core's default "
        "(--expert-tensor-parallel-size); recipes of MoE models set 1: --expert-tensor 1",
        job->tensor);
    return true;
}

void spw_grid_print(const spw_job *job, FILE *out) {
    const spw_grid g = spw_grid_of(job);
    if (spw_grid_is_plain(job)) return;
    if (spw_grid_mesh_gpus(&g) > 1) {
        if (g.mesh_tensor > 1) (void)fprintf(out, " x tensor %zu", g.tensor);
        if (g.mesh_context > 1) (void)fprintf(out, ", context %zu within fsdp", g.context);
        return;
    }
    (void)fprintf(out, " x expert_tensor %zu; tensor %zu x context %zu x data %zu", g.expert_tensor, g.tensor,
                  g.context, g.data);
}

const char *spw_grid_tokens_of(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.tensor * g.context > 1 ? "a data-parallel rank" : "a GPU";
}

/* --- What cannot be --- */

static size_t largest_divisor(size_t number, size_t limit) {
    while (limit > 1 && number % limit != 0) limit--;
    return limit;
}

/* A width of the model that `size` GPUs share. */
typedef struct shared_width {
    const char *key, *word, *what;
    size_t size, width;
} shared_width;

static spw_status check_widths(const spw_job *job, const spw_grid *g, const char **key) {
    const spw_model *m = &job->model;
    const bool groups = spw_attention_is_grouped(m), mesh = spw_grid_mesh_gpus(g) > 1,
               shared = spw_grid_shares_heads(job);
    const shared_width widths[] = {
        {"parallel.tensor", "tensor", "numbers of a hidden state", g->tensor, mesh ? m->hidden : 0},
        {"parallel.tensor", "tensor", "words of the vocabulary", g->tensor, mesh ? m->vocab : 0},
        {"parallel.tensor", "tensor", "attention heads", g->tensor, m->heads},
        {"parallel.tensor", "tensor", "key and value heads", g->tensor, groups && !shared ? m->kv_heads : 0},
        {"parallel.tensor", "tensor", "columns of queries, keys and values", g->tensor,
         shared ? spw_model_query_key_value(m) : 0},
        {"parallel.tensor", "tensor", "columns of a dense FFN", g->tensor, m->dense_ffn},
        {"parallel.tensor", "tensor", "columns of the shared experts", g->tensor, m->shared_ffn},
        {"parallel.expert_tensor", "expert_tensor", "columns of an expert", g->expert_tensor, m->expert_ffn}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const shared_width *w = &widths[i];
        *key = w->key;
        if (w->width % w->size != 0)
            return spw_fail(SPW_ECONFIG,
                            "%s %zu does not divide the %zu %s of model '%s'; use a divisor such as %zu",
                            w->word, w->size, w->width, w->what, m->name, largest_divisor(w->width, w->size));
    }
    return SPW_OK;
}

/* More GPUs of a tensor group than key and value heads. */
static spw_status check_shared_heads(const spw_job *job, const spw_grid *g, const char **key) {
    const spw_model *m = &job->model;
    *key = "parallel.tensor";
    if (!spw_grid_shares_heads(job)) return SPW_OK;
    if (g->tensor % m->kv_heads != 0)
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu is no multiple of the %zu key and value heads of model '%s', nor a divisor: "
            "Megatron-Core demands one of both; use %zu",
            g->tensor, m->kv_heads, m->name, g->tensor / m->kv_heads * m->kv_heads);
    return SPW_OK;
}

static spw_status check_sequence(const spw_job *job, const spw_grid *g, const char **key) {
    const size_t parts = g->context > 1 ? 2 * g->context : 1, length = job->sequence_length;
    *key = "batch.sequence_length";
    if (spw_grid_mesh_gpus(g) > 1 && length % parts != 0)
        return spw_fail(
            SPW_ECONFIG,
            "a sequence of %zu tokens cannot be cut for context %zu, which takes two parts a GPU; "
            "use a multiple of %zu, such as %zu",
            length, g->context, parts, (length / parts + 1) * parts);
    if (spw_grid_mesh_gpus(g) == 1 && (length % parts != 0 || length / g->context % g->tensor != 0)) {
        const size_t multiple = g->tensor % 2 == 0 || parts == 1 ? g->context * g->tensor : parts * g->tensor;
        return spw_fail(
            SPW_ECONFIG,
            "a sequence of %zu tokens cannot be cut for context %zu, which takes two parts a GPU, and "
            "tensor %zu; use a multiple of %zu, such as %zu",
            length, g->context, g->tensor, multiple, (length / multiple + 1) * multiple);
    }
    return SPW_OK;
}

/* A mixer whose heads Megatron-Core cuts for tensor and, where it exchanges them, for context parallelism. */
static spw_status check_mixer(const spw_model *m, const spw_mixer *mixer, const spw_grid *g,
                              const char **key) {
    const size_t heads[] = {mixer->key_heads, mixer->value_heads}, context = mixer->into > 0 ? g->context : 1,
                 cut = g->tensor * context;
    static const char *const names[] = {"key", "value"};
    *key = "parallel.tensor";
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (heads[i] % cut != 0)
            return spw_fail(
                SPW_ECONFIG,
                "tensor %zu x context %zu does not divide the %zu %s heads of %s in model '%s', as "
                "Megatron-Core demands; use a product that does, such as %zu",
                g->tensor, context, heads[i], names[i], mixer->what, m->name, largest_divisor(heads[i], cut));
    }
    return SPW_OK;
}

/* A kind of layers whose split is not described, or NULL. One without weights is no matter. */
static const char *unread_mixer(const spw_model *m, const spw_grid *g, bool mesh) {
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer *mixer = &m->mixer[k];
        const bool ring = mixer->heads > 0 && mixer->every == 0; /* keys and values of the last tokens */
        if (mixer->layers == 0 || spw_matrix_at(m, SPW_IN_MIXER, k, 0) == NULL) continue;
        if (mesh || mixer->key_heads == 0 || (g->context > 1 && mixer->into == 0 && !ring))
            return mixer->what;
    }
    if (m->mixer[0].every > 0 && g->context > 1) return m->mixer[0].what;
    return spw_attention_is_listed(m) && mesh ? m->mixer[0].what : NULL;
}

const char *spw_grid_unread_mixer(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.tensor * g.context > 1 ? unread_mixer(&job->model, &g, spw_grid_mesh_gpus(&g) > 1) : NULL;
}

static spw_status check_mixers(const spw_model *m, const spw_grid *g, const char **key) {
    const bool cut = g->tensor * g->context > 1 && spw_grid_mesh_gpus(g) == 1;
    spw_status status = SPW_OK;
    for (size_t k = 0; cut && status == SPW_OK && k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].layers > 0) status = check_mixer(m, &m->mixer[k], g, key);
    return status;
}

/* What of MaxText's mesh is described. Groups of experts are consecutive GPUs, so they lie alike on their nodes. */
static spw_status check_mesh(const spw_job *job, const spw_grid *g, const char **key) {
    const size_t node = job->cluster.gpus_per_node, stage = spw_grid_stage_gpus(job);
    if (spw_grid_mesh_gpus(g) == 1) return SPW_OK;
    *key = "parallel.context";
    if (g->context > 1 && g->context % 2 != 0)
        return spw_fail(
            SPW_ECONFIG,
            "context %zu with sharded weights: MaxText deals pieces of a sequence in pairs to an even "
            "number of GPUs; use %zu",
            g->context, g->context + 1);
    if (g->expert_data % g->context != 0)
        return spw_fail(
            SPW_ECONFIG,
            "context %zu does not divide fsdp %zu, which counts the context groups as well with sharded "
            "weights; use a divisor such as %zu",
            g->context, g->expert_data, largest_divisor(g->expert_data, g->context));
    *key = "parallel.expert";
    if (stage > node && g->expert % node != 0 && node % g->expert != 0)
        return spw_fail(
            SPW_ECONFIG,
            "expert %zu with tensor %zu on nodes of %zu GPUs: the groups of experts would lie "
            "differently on their nodes, which is not described; use a divisor or a multiple of %zu",
            g->expert, g->tensor, node, node);
    return SPW_OK;
}

spw_status spw_grid_check(const spw_job *job, const char **key) {
    const spw_grid g = spw_grid_of(job);
    const size_t stage = spw_grid_stage_gpus(job), model = g.tensor * g.context;
    *key = "parallel.context";
    if (stage % model != 0)
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu x context %zu does not divide the %zu GPUs of a pipeline stage (expert %zu x "
            "expert_tensor %zu x fsdp %zu); use a product that does, such as %zu",
            g.tensor, g.context, stage, g.expert, g.expert_tensor, g.expert_data,
            largest_divisor(stage, model));
    *key = "parallel.data";
    if (g.data != stage / model)
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu x context %zu x data %zu is not the %zu GPUs of a pipeline stage; use data %zu, or "
            "leave it out",
            g.tensor, g.context, g.data, stage, stage / model);
    spw_status status = check_mesh(job, &g, key);
    if (status == SPW_OK) status = check_shared_heads(job, &g, key);
    if (status == SPW_OK) status = check_widths(job, &g, key);
    if (status == SPW_OK) status = check_sequence(job, &g, key);
    return status == SPW_OK ? check_mixers(&job->model, &g, key) : status;
}

size_t spw_job_gpus(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.expert_tensor * g.expert * g.expert_data * g.pipeline;
}
