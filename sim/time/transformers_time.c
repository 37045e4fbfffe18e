#include "sim/time/transformers_time.h"

#include "sim/job/job.h"
#include "sim/machine/stack.h"
#include "sim/machine/stack_defaults.h"
#include "sim/machine/stack_nearest.h"
#include "sim/memory/kept/transformers_job.h"

#include <math.h>

static double figure(const spw_coefficient *c) { return c->value; }
#define FIGURE(name) figure(&spw_default_hf_##name)

bool spw_transformers_is_timed(const spw_point *p, const char **why) {
    const bool hopper = p->job->cluster.gpu_generation == SPW_GPU_HOPPER,
               wraps = spw_finetune_adapts(&p->job->finetune, SPW_LORA_EXPERTS),
               fused = p->job->cross_entropy == SPW_CROSS_ENTROPY_FUSED;
    spw_transformers_shape shape;
    if (!spw_transformers_is_listed(p, &shape, why)) return false;
    if (fused && why != NULL) *why = "Liger's fused loss, whose time was not measured";
    if (wraps && why != NULL)
        *why = "adapters beside experts, whose one run took half as long again as their kernels say";
    if (!hopper && why != NULL)
        *why = "transformers on GPUs other than Hopper's, whose kernels were not measured";
    return hopper && !wraps && !fused;
}

spw_status spw_transformers_load_of(const spw_transformers_shape *shape, spw_transformers_load *out) {
    spw_transformers_step *step = NULL;
    spw_event_list list = {.events = 0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_transformers_step_create(shape, &step));
    SPW_TRY(spw_transformers_step_begin(step, &list));
    SPW_TRY(spw_transformers_step_run(step, &list));
    *out = (spw_transformers_load){.work = spw_transformers_step_work(step),
                                   .exchange = spw_transformers_step_exchange(step),
                                   .adam_bytes = (double)spw_transformers_step_trained(step) *
                                                 (double)spw_hf_trained_bytes(shape)};

cleanup:
    spw_transformers_step_destroy(step);
    spw_event_list_destroy(&list);
    return status;
}

/* Seconds for bytes of whole units among so many GPUs: the link, or the NICs of a node, which share what crosses. */
static double exchange_s(size_t gpus, const spw_cluster *c, double bytes) {
    if (gpus <= 1) return 0.0;
    const double arriving = bytes * (double)(gpus - 1) / (double)gpus,
                 share = FIGURE(exchange_bytes_per_s) / FIGURE(measured_link);
    double rate = c->link_bytes_per_s.value;
    if (gpus > c->gpus_per_node) rate = fmin(rate, c->nic_bytes_per_s.value * (double)c->gpus_per_node);
    return arriving / (share * rate);
}

static spw_status add_products(const spw_transformers_load *l, double faster, spw_timeline *out) {
    const struct {
        size_t rate;
        double flops;
        const char *name, *help;
    } products[] = {
        {SPW_HF_DENSE_PRODUCT, FIGURE(dense_flops), "dense_products", "dense products"},
        {SPW_HF_GROUPED_PRODUCT, FIGURE(grouped_flops), "expert_products", "grouped products of experts"},
        {SPW_HF_ATTENTION_PRODUCT, FIGURE(attention_flops), "attention", "attention's products of scores"},
        {SPW_HF_SCAN_PRODUCT, FIGURE(scan_flops), "scans", "products within a recurrence's kernels"},
        {SPW_HF_FP32_PRODUCT, FIGURE(fp32_flops), "indexers", "an indexer's products in fp32"},
    };
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof products / sizeof *products && status == SPW_OK; i++) {
        const double seconds = l->work.flop[products[i].rate] / (products[i].flops * faster);
        if (products[i].rate >= SPW_HF_SCAN_PRODUCT && !(seconds > 0.0)) continue;
        status =
            spw_timeline_add(out, products[i].name, products[i].help, SPW_STREAM_COMPUTE, seconds, seconds);
    }
    return status;
}

static bool recurs(const spw_model *m) {
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].layers > 0 && m->mixer[k].recurrence.kind != SPW_RECURRENCE_NONE) return true;
    return false;
}

/* How far the job is from the runs, as a logarithm; what of it is said. */
static double width_of(const spw_transformers_shape *s, const spw_cluster *c, char *note) {
    const spw_gpu job = spw_gpu_of(c), measured = {.vendor = SPW_VENDOR_NVIDIA,
                                                   .generation = SPW_GPU_HOPPER,
                                                   .bf16_flops = FIGURE(measured_flops),
                                                   .hbm_bytes_per_s = FIGURE(measured_hbm)};
    const double tokens = (double)s->tokens, hidden = (double)s->model->hidden;
    const bool sizes = tokens < FIGURE(tokens_min) || tokens > FIGURE(tokens_max) ||
                       hidden < FIGURE(hidden_min) || hidden > FIGURE(hidden_max),
               layers = (double)s->layers > FIGURE(layers_max),
               other = spw_stack_distance_of(&job, &measured).kinship > SPW_GPU_SAME;
    if (other)
        spw_outside_add(note, "transformers by its kernels' shares of an H100's peaks, another GPU of the "
                              "generation");
    if (sizes)
        spw_outside_add(
            note, "micro-batches other than %.0f to %.0f tokens, or hidden sizes other than %.0f to %.0f",
            FIGURE(tokens_min), FIGURE(tokens_max), FIGURE(hidden_min), FIGURE(hidden_max));
    if (layers) spw_outside_add(note, "more than %.0f layers", FIGURE(layers_max));
    const bool alone = s->compressed || s->blocks || s->sinks || recurs(s->model);
    if (alone)
        spw_outside_add(note, "%s by its bytes and products, whose kernels were not timed",
                        s->compressed ? "DeepSeek-V4's attention"
                        : s->blocks   ? "MiniMax-M3's attention"
                        : s->sinks    ? "gpt-oss' attention and biases"
                                      : "a recurrence");
    if (s->micro_batches > 1) spw_outside_add(note, "several micro-batches counted, not measured");
    return FIGURE(half_width) + (other ? FIGURE(gpu_width) : 0.0) +
           (sizes || layers ? FIGURE(size_width) : 0.0) + (s->micro_batches > 1 ? FIGURE(micro_width) : 0.0) +
           (alone ? FIGURE(module_width) : 0.0);
}

static void doubt(const spw_transformers_shape *s, const spw_cluster *c, double exchanges_s,
                  spw_timeline *out) {
    const double width = width_of(s, c, out->outside);
    spw_timeline_widen(out, out->step_s * -expm1(-width), out->step_s * expm1(width));
    out->pair_width = FIGURE(half_width);
    const spw_time_component *scans = spw_timeline_find(out, "scans");
    if (scans != NULL)
        spw_timeline_widen(out, scans->exposed_s * (1.0 - 1.0 / FIGURE(scan_factor)),
                           scans->exposed_s * (FIGURE(scan_factor) - 1.0));
    const size_t gpus = s->summed > 1 ? s->summed : s->shards;
    if ((double)gpus <= FIGURE(ranks_max)) return;
    spw_outside_add(out->outside,
                    "%s on %zu GPUs%s by its rate on %.0f: the interval has its exchanges hidden whole and "
                    "at twice their time",
                    s->summed > 1 ? "DDP" : "FSDP2", gpus, gpus > c->gpus_per_node ? " of several nodes" : "",
                    FIGURE(ranks_max));
    spw_timeline_widen(out, exchanges_s, exchanges_s);
}

static spw_status add_all(const spw_transformers_load *l, const spw_cluster *c, double gathers_s,
                          double scatters_s, spw_timeline *out) {
    const double memory = c->hbm_bytes_per_s.value / FIGURE(measured_hbm),
                 starts_s = l->work.kernels * FIGURE(kernel_s),
                 others_s = l->work.bytes / (FIGURE(copy_bytes_per_s) * memory),
                 adam_s = FIGURE(adam_tensors) * l->adam_bytes / (FIGURE(adam_bytes_per_s) * memory);
    spw_status status = SPW_OK;
    SPW_TRY(spw_timeline_add(out, "kernel_starts", "a kernel an operation: starts and gaps", SPW_STREAM_HOST,
                             starts_s, starts_s));
    SPW_TRY(spw_timeline_add(out, "other_kernels", "bytes of kernels that are no products",
                             SPW_STREAM_COMPUTE, others_s, others_s));
    SPW_TRY(add_products(l, c->bf16_flops.value / FIGURE(measured_flops), out));
    SPW_TRY(spw_timeline_add(out, "optimizer", "weights, gradients, moments", SPW_STREAM_COMPUTE, adam_s,
                             adam_s));
    SPW_TRY(spw_timeline_add(out, "weight_gathers", "all-gathers of sharded weights", SPW_STREAM_COLLECTIVE,
                             gathers_s, gathers_s));
    SPW_TRY(spw_timeline_add(out, "gradient_scatters", "reduce-scatters of gradients", SPW_STREAM_COLLECTIVE,
                             scatters_s, scatters_s));

cleanup:
    return status;
}

spw_status spw_transformers_time_of(const spw_transformers_shape *s, const spw_transformers_load *l,
                                    const spw_cluster *c, spw_timeline *out) {
    /* A sum over GPUs is a reduce-scatter and a gather of what is trained. */
    const double sums_s = exchange_s(s->summed, c, l->adam_bytes),
                 gathers_s = exchange_s(s->shards, c, l->exchange.gathered_bytes) + sums_s,
                 scatters_s = exchange_s(s->shards, c, l->exchange.reduced_bytes) + sums_s;
    spw_timeline_clear(out);
    const spw_status status = add_all(l, c, gathers_s, scatters_s, out);
    if (status != SPW_OK) return status;
    spw_timeline_finish(out, (double)(s->tokens * s->micro_batches));
    doubt(s, c, gathers_s + scatters_s, out);
    return SPW_OK;
}

spw_status spw_transformers_time_predict(const spw_point *p, spw_timeline *out) {
    spw_transformers_shape shape;
    spw_transformers_load load;
    const char *why = "";
    if (!spw_transformers_is_timed(p, &why) || !spw_transformers_is_listed(p, &shape, NULL))
        return spw_fail(SPW_ECONFIG, "no time: %s", why);
    const spw_status status = spw_transformers_load_of(&shape, &load);
    return status == SPW_OK ? spw_transformers_time_of(&shape, &load, &p->job->cluster, out) : status;
}
