#include "sim/input/grid.h"

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
    return g;
}

bool spw_grid_is_plain(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.tensor == 1 && g.context == 1 && g.expert_tensor == 1;
}

size_t spw_grid_sequence_tokens(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return job->sequence_length / (g.tensor * g.context);
}

size_t spw_grid_stage_gpus(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.expert_tensor * g.expert * g.expert_data;
}

void spw_grid_print(const spw_job *job, FILE *out) {
    const spw_grid g = spw_grid_of(job);
    if (spw_grid_is_plain(job)) return;
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
    const bool groups = m->attention != SPW_ATTENTION_MLA;
    const shared_width widths[] = {
        {"parallel.tensor", "tensor", "attention heads", g->tensor, m->heads},
        {"parallel.tensor", "tensor", "key and value heads", g->tensor, groups ? m->kv_heads : 0},
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

static spw_status check_sequence(const spw_job *job, const spw_grid *g, const char **key) {
    const size_t parts = g->context > 1 ? 2 * g->context : 1, length = job->sequence_length;
    *key = "batch.sequence_length";
    if (length % parts != 0 || length / g->context % g->tensor != 0) {
        const size_t multiple = g->tensor % 2 == 0 || parts == 1 ? g->context * g->tensor : parts * g->tensor;
        return spw_fail(
            SPW_ECONFIG,
            "a sequence of %zu tokens cannot be cut for context %zu, which takes two parts a GPU, and "
            "tensor %zu; use a multiple of %zu, such as %zu",
            length, g->context, g->tensor, multiple, (length / multiple + 1) * multiple);
    }
    *key = "parallel.sequence_parallel";
    if (g->tensor > 1 && !job->sequence_parallel)
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu without sequence_parallel: Megatron-Core refuses to train MoE layers so; use "
            "sequence_parallel: true",
            g->tensor);
    return SPW_OK;
}

/* Parts of models whose split among the GPUs of a tensor group is not described. */
static spw_status check_model(const spw_job *job, const spw_grid *g, const char **key) {
    const spw_model *m = &job->model;
    const struct {
        bool there;
        const char *what;
    } parts[] = {{m->other.layers > 0, m->other.what},
                 {m->indexer_heads > 0, "a sparse indexer"},
                 {m->qk_norm && !m->qk_norm_per_head, "norms over all query heads together"},
                 {m->expert_bias && g->expert_tensor > 1, "biases of experts"}};
    *key = "parallel";
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !spw_grid_is_plain(job); i++) {
        if (parts[i].there)
            return spw_fail(
                SPW_ECONFIG,
                "tensor %zu, context %zu and expert_tensor %zu with model '%s', which has %s: how these are "
                "split is not modelled; make all three 1",
                g->tensor, g->context, g->expert_tensor, m->name, parts[i].what);
    }
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
    spw_status status = check_widths(job, &g, key);
    if (status == SPW_OK) status = check_sequence(job, &g, key);
    return status == SPW_OK ? check_model(job, &g, key) : status;
}
