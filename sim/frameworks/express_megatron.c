/* A job in the names of Megatron-Core: rules_megatron.c the other way. */
#include "sim/frameworks/model/layer_list.h"
#include "sim/frameworks/rules.h"

#include "sim/job/job.h"
#include "sim/job/job_split.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/model/attention.h"
#include "sim/model/config/model_family.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rack whose GPUs are one domain of NVLink has hosts of a tray each: NVIDIA GB200 NVL72, 18 trays of 4 GPUs. */
enum { MOST_OF_A_HOST = 16, OF_A_TRAY = 4 };

static spw_status express_split(spw_flag_draft *f) {
    const spw_job *job = f->job;
    const size_t micro = job->micro_batches > 0 ? job->micro_batches : 1;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    char layout[SPW_LAYOUT_TEXT];
    spw_status status = SPW_OK;
    const size_t domain = job->cluster.gpus_per_node,
                 host = domain > MOST_OF_A_HOST && domain % OF_A_TRAY == 0 ? OF_A_TRAY : domain;
    SPW_TRY(spw_flags_say_count(f, "@nodes", job->cluster.nodes * (domain / host)));
    SPW_TRY(spw_flags_say_count(f, "@gpus_per_node", host));
    SPW_TRY(spw_flags_say_count(f, "parallel.tensor", job->tensor));
    SPW_TRY(spw_flags_say_count(f, "parallel.pipeline", job->pipeline));
    SPW_TRY(spw_flags_say_count(f, "parallel.context", job->context));
    SPW_TRY(spw_flags_say_count(f, "parallel.expert", job->expert));
    if (job->expert_tensor > 0) SPW_TRY(spw_flags_say_count(f, "parallel.expert_tensor", job->expert_tensor));
    if (spw_assumed_layout(&pipeline, job, f->scheme,
                           layout)) /* Megatron-Core refuses layers that do not divide */
        SPW_TRY(spw_flags_say(f, "parallel.pipeline_model_parallel_layout", layout));
    if (job->tensor > 1 && job->sequence_parallel) SPW_TRY(spw_flags_say(f, "@sequence_parallel", "true"));
    if (job->tensor > 1 && !job->sequence_parallel) SPW_TRY(spw_flags_say(f, "@sequence_parallel", "false"));
    SPW_TRY(spw_flags_say_count(f, "@micro_batch", job->sequences_per_gpu[0] / micro));
    SPW_TRY(
        spw_flags_say_count(f, "batch.global_batch", job->sequences_per_gpu[0] * spw_job_batch_ranks(job)));

cleanup:
    return status;
}

static spw_status express_formats(spw_flag_draft *f) {
    static const char *const recipes[] = {
        [SPW_FP8_DELAYED] = "delayed", [SPW_FP8_TENSORWISE] = "tensorwise", [SPW_FP8_BLOCKWISE] = "blockwise",
        [SPW_FP8_MXFP8] = "mxfp8",     [SPW_FP4_NVFP4] = "nvfp4",           [SPW_FP4_MXFP4] = "mxfp4"};
    const spw_precision *p = &f->job->precision;
    const bool bf16 = p->weights == 2 && (p->fp16 & 1U) == 0, half = p->weights == 2,
               aware = p->optimizer == 2 || f->job->megatron.remainders;
    spw_status status = SPW_OK;
    if (half) SPW_TRY(spw_flags_say(f, bf16 ? "@bf16" : "@fp16", "true"));
    if (!bf16) SPW_TRY(spw_flags_say(f, "@bf16", "false"));
    SPW_TRY(spw_flags_say(f, "@gradients_fp32", p->gradients == 2 ? "false" : "true"));
    if (aware) {
        SPW_TRY(spw_flags_say(f, "@precision_aware", "true"));
        SPW_TRY(spw_flags_say(f, "@main_gradients", p->gradients == 2 ? "bf16" : "fp32"));
        SPW_TRY(spw_flags_say(f, "@first_moment", p->optimizer == 2 ? "bf16" : "fp32"));
        SPW_TRY(spw_flags_say(f, "@second_moment", p->optimizer == 2 ? "bf16" : "fp32"));
        if (!f->job->megatron.remainders) SPW_TRY(spw_flags_say(f, "@remainders", "false"));
    }
    if (p->recipe != SPW_FP8_NONE) {
        const bool fp4 = spw_fp8_recipe_is_fp4(p->recipe);
        SPW_TRY(spw_flags_say(f, fp4 ? "@fp4" : "@fp8", fp4 ? "e2m1" : "hybrid"));
        SPW_TRY(spw_flags_say(f, fp4 ? "@fp4_recipe" : "@fp8_recipe", recipes[p->recipe]));
        if (p->fp8_param_gather)
            SPW_TRY(spw_flags_say(f, fp4 ? "@fp4_param_gather" : "@fp8_param_gather", "true"));
    }

cleanup:
    return status;
}

/* "a+b" as "a,b". */
static void join(const char *text, char *out, size_t size) {
    (void)snprintf(out, size, "%s", text);
    for (char *c = out; *c != '\0'; c++) *c = (char)(*c == '+' ? ',' : *c);
}

static spw_status express_memory(spw_flag_draft *f) {
    const spw_job *job = f->job;
    const spw_state_law *law = spw_state_law_of(job);
    char text[SPW_FLAG_VALUE];
    spw_status status = SPW_OK;
    SPW_TRY(spw_flags_say(f, "@distributed", law->shares_moments ? "true" : "false"));
    if (law->shares_weights) {
        SPW_TRY(spw_flags_say(f, "@fsdp", "true"));
        SPW_TRY(spw_flags_say(f, "@sharding", "optim_grads_params"));
    }
    if (job->optimizer_on_host > 0.0) {
        SPW_TRY(spw_flags_say(f, "@optimizer_on_host", "true"));
        (void)snprintf(text, sizeof text, "%.17g", job->optimizer_on_host);
        SPW_TRY(spw_flags_say(f, "@optimizer_fraction", text));
    }
    if (job->megatron.overlap_gradients) SPW_TRY(spw_flags_say(f, "@overlap_gradients", "true"));
    if (job->megatron.overlap_gathers) SPW_TRY(spw_flags_say(f, "@overlap_gathers", "true"));
    if (job->muon_ping_pong) SPW_TRY(spw_flags_say(f, "@muon_packed", "false"));
    if (job->remat == SPW_REMAT_FULL) {
        SPW_TRY(spw_flags_say(f, "@recompute", "full"));
        SPW_TRY(spw_flags_say(f, "@recompute_method", "uniform"));
        SPW_TRY(spw_flags_say(f, "@recompute_layers", "1"));
    } else if (spw_remat_modules(job->remat) != 0) {
        join(job->remat == SPW_REMAT_SELECTIVE ? "core_attn" : spw_remat_name(job->remat), text, sizeof text);
        SPW_TRY(spw_flags_say(f, "@recompute", "selective"));
        SPW_TRY(spw_flags_say(f, "@recompute_modules", text));
    }
    if (job->offload.texts > 0) {
        text[0] = '\0';
        for (size_t i = 0; i < job->offload.texts; i++)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? "," : "",
                           job->offload.text[i]);
        SPW_TRY(spw_flags_say(f, "@offload", "true"));
        SPW_TRY(spw_flags_say(f, "@offload_modules", text));
    }

cleanup:
    return status;
}

static spw_status express_kernels(spw_flag_draft *f) {
    const spw_cross_entropy loss = spw_cross_entropy_of(f->job, f->scheme);
    spw_status status = SPW_OK;
    if (loss == SPW_CROSS_ENTROPY_NATIVE || loss == SPW_CROSS_ENTROPY_TE ||
        loss == SPW_CROSS_ENTROPY_TE_IN_PLACE || loss == SPW_CROSS_ENTROPY_TE_2_20) {
        SPW_TRY(spw_flags_say(f, "@loss_fusion", "true"));
        SPW_TRY(spw_flags_say(f, "@loss_kernel", loss == SPW_CROSS_ENTROPY_NATIVE ? "native" : "te"));
    }
    if (f->job->attention == SPW_ATTENTION_UNFUSED) SPW_TRY(spw_flags_say(f, "@implementation", "local"));
    if (spw_scheme_option_is(f->scheme, "graph", "full"))
        SPW_TRY(spw_flags_say(f, "@graph", "full_iteration"));
    else if (f->job->cuda_graph != SPW_GRAPH_NONE)
        SPW_TRY(spw_flags_say(f, "@graph", spw_cuda_graph_name(f->job->cuda_graph)));

cleanup:
    return status;
}

static const struct {
    const char *scheme, *dispatcher, *backend;
    bool primus;
} dispatchers[] = {
    {"megatron-alltoall", "alltoall", NULL, false}, {"megatron-allgather", "allgather", NULL, false},
    {"megatron-flex", "flex", "deepep", false},     {"megatron-syncfree", "flex", "hybridep", false},
    {"megatron-ncclep", "flex", "ncclep", false},   {"primus-syncfree", "flex", "deepep", true},
    {"primus-megamoe", "alltoall", NULL, true}};

static spw_status express_scheme(spw_flag_draft *f) {
    const char *name = f->scheme->type->name;
    size_t i = 0;
    char level[8];
    spw_status status = SPW_OK;
    while (i < sizeof dispatchers / sizeof *dispatchers && strcmp(dispatchers[i].scheme, name) != 0) i++;
    const bool primus = strcmp(f->framework->name, "primus") == 0;
    if (i == sizeof dispatchers / sizeof *dispatchers || (dispatchers[i].primus && !primus))
        return spw_fail(SPW_ECONFIG,
                        "--flags %s: %s has no scheme %s; name one of its own, as in --scheme megatron-flex",
                        f->framework->name, f->framework->title, name);
    SPW_TRY(spw_flags_say(f, "@dispatcher", dispatchers[i].dispatcher));
    if (dispatchers[i].backend != NULL)
        SPW_TRY(spw_flags_say(
            f, "@backend",
            spw_scheme_option_is(f->scheme, "backend", "hybridep") ? "hybridep" : dispatchers[i].backend));
    SPW_TRY(spw_flags_say_option(f, "capacity_factor", "@capacity"));
    SPW_TRY(spw_flags_say_option(f, "rank_capacity", "@rank_capacity"));
    if (spw_scheme_option_value(f->scheme, "stash") > 0.0) SPW_TRY(spw_flags_say(f, "@paged_stash", "true"));
    SPW_TRY(spw_flags_say_option(f, "stash", "@stash"));
    SPW_TRY(spw_flags_say_option(f, "host", "@stash_host"));
    if (spw_scheme_option_value(f->scheme, "stash") > 0.0)
        SPW_TRY(spw_flags_say_option(f, "page", "@stash_page"));
    if (spw_scheme_option_is(f->scheme, "policy", "position"))
        SPW_TRY(spw_flags_say(f, "@drop_policy", "position"));
    if (spw_scheme_option_is(f->scheme, "pad", "true")) SPW_TRY(spw_flags_say(f, "@pad_to_capacity", "true"));
    if (spw_scheme_option_is(f->scheme, "pay", "router")) SPW_TRY(spw_flags_say(f, "@router_pads", "true"));
    if (dispatchers[i].primus) SPW_TRY(spw_flags_say(f, "@turbo", "true"));
    if (strcmp(name, "primus-megamoe") == 0) SPW_TRY(spw_flags_say(f, "@mega_moe", "true"));
    if (strcmp(name, "primus-syncfree") == 0) {
        (void)snprintf(level, sizeof level, "%.0f",
                       spw_scheme_option_value(f->scheme, "level") + 1.0); /* the first of 1, 2, 3 is 0 */
        SPW_TRY(spw_flags_say(f, "@syncfree_stage", level));
    }

cleanup:
    return status;
}

/* PYTORCH_CUDA_ALLOC_CONF, of a script. */
static spw_status express_allocator(spw_flag_draft *f) {
    const struct spw_job_allocator *a = &f->job->allocator;
    char text[160] = "";
    size_t used = 0;
    if (f->framework->print != SPW_PRINT_ARGUMENTS) return SPW_OK;
    if (a->expandable_segments) used += (size_t)snprintf(text, sizeof text, ",expandable_segments:True");
    if (a->max_split_size_mb > 0)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, ",max_split_size_mb:%zu", a->max_split_size_mb);
    if (a->garbage_collection_threshold > 0.0)
        used += (size_t)snprintf(text + used, sizeof text - used, ",garbage_collection_threshold:%.10g",
                                 a->garbage_collection_threshold);
    if (a->roundup_power2_divisions > 0)
        (void)snprintf(text + used, sizeof text - used, ",roundup_power2_divisions:%zu",
                       a->roundup_power2_divisions);
    return text[0] != '\0' ? spw_flags_say(f, "@allocator", text + 1) : SPW_OK;
}

/* The dense layers' width. Where there are none Megatron-Core wants one all the same: the model file's, if it is one. */
static size_t ffn_of(const spw_job *job) {
    const double said = spw_model_file_number(job->model_text, "intermediate_size");
    if (job->model.dense_ffn > 0) return job->model.dense_ffn;
    return said >= 1.0 && said <= (double)SPW_MODEL_WIDEST ? (size_t)said : job->model.expert_ffn;
}

/* What a script of Megatron-LM needs and no figure follows from. The padded vocabulary is the model's own: Megatron-LM rounds up to
 * a multiple of this times the tensor group [megatron/training/tokenizer/tokenizer.py, _vocab_size_with_padding]. */
static spw_status express_words(spw_flag_draft *f) {
    const spw_model *m = &f->job->model;
    const struct {
        const char *fact, *key;
    } numbers[] = {{"@rotary_base", "rope_theta"},
                   {"@norm_epsilon", "rms_norm_eps"},
                   {"@positions", "max_position_embeddings"}};
    size_t multiple = 128;
    char text[32];
    spw_status status = SPW_OK;
    if (f->framework->print != SPW_PRINT_ARGUMENTS) return SPW_OK;
    while (multiple > 1 && m->vocab % (multiple * f->job->tensor) != 0) multiple /= 2;
    SPW_TRY(spw_flags_say_count(f, "@vocabulary", m->vocab));
    SPW_TRY(spw_flags_say_count(f, "@vocabulary_multiple", multiple));
    if (!isnan(spw_model_file_number(f->job->model_text, "rope_theta")))
        SPW_TRY(spw_flags_say(f, "@positions_by", "rope"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double value = spw_model_file_number(f->job->model_text, numbers[i].key);
        if (isnan(value)) continue;
        (void)snprintf(text, sizeof text, "%.10g", value);
        SPW_TRY(spw_flags_say(f, numbers[i].fact, text));
    }

cleanup:
    return status;
}

static char layer_letter(const spw_model *m, size_t layer, const spw_mixer *mamba) {
    if (!m->is_bare[layer]) return m->is_moe[layer] ? 'E' : '-';
    return &m->mixer[m->mixer_of[layer]] == mamba ? 'M' : '*';
}

/* Which layers have experts; of models whose layers are Mamba-2, attention or an FFN alone, a letter a layer. */
static spw_status express_layers(spw_flag_draft *f) {
    const spw_model *m = &f->job->model;
    char layers[SPW_FLAG_VALUE] = "";
    const spw_mixer *mamba = NULL;
    spw_status status = SPW_OK;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].recurrence.kind == SPW_RECURRENCE_MAMBA2) mamba = &m->mixer[k];
    if (m->half_layers && mamba != NULL && m->layers < sizeof layers) {
        for (size_t i = 0; i < m->layers; i++) layers[i] = layer_letter(m, i, mamba);
        SPW_TRY(spw_flags_say(f, "@pattern", layers));
        SPW_TRY(spw_flags_say_count(f, "@mamba_heads", mamba->recurrence.value_heads));
        SPW_TRY(spw_flags_say_count(f, "@mamba_head_dim", mamba->recurrence.value));
        SPW_TRY(spw_flags_say_count(f, "@mamba_state", mamba->recurrence.key));
        SPW_TRY(spw_flags_say_count(f, "@mamba_groups", mamba->recurrence.key_heads));
        if (m->latent > 0) SPW_TRY(spw_flags_say_count(f, "@latent_experts", m->latent));
    } else if (m->moe_layers < m->layers) {
        SPW_TRY(spw_layer_list_write(m, layers, sizeof layers));
        SPW_TRY(spw_flags_say(f, "@moe_layers", layers));
    }

cleanup:
    return status;
}

/* Sizes by which the model is known again. */
static spw_status express_model(spw_flag_draft *f) {
    const spw_model *m = &f->job->model;
    const spw_attention_size *of = spw_attention_kind_of(m)->sizes;
    const bool latent = of != NULL;
    const struct {
        const char *fact;
        size_t value;
    } sizes[] = {{"@layers", m->layers},
                 {"@hidden", m->hidden},
                 {"@ffn", ffn_of(f->job)},
                 {"@heads", m->heads},
                 {"@kv_heads", latent ? 0 : m->kv_heads},
                 {"@head_dim", latent ? 0 : m->head_dim},
                 {"@experts", m->experts},
                 {"@top_k", m->top_k},
                 {"@expert_ffn", m->expert_ffn},
                 {"@shared_ffn", m->shared_ffn},
                 {"@groups", m->groups > 1 ? m->groups : 0},
                 {"@groups_kept", m->groups > 1 ? m->groups_kept : 0},
                 {"@streams", m->streams > 1 ? m->streams : 0}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value > 0) SPW_TRY(spw_flags_say_count(f, sizes[i].fact, sizes[i].value));
    for (; of != NULL && of->key != NULL; of++)
        if (spw_attention_size_of(m, of->fact) > 0)
            SPW_TRY(spw_flags_say_count(f, of->fact, spw_attention_size_of(m, of->fact)));
    if (m->streams > 1) SPW_TRY(spw_flags_say(f, "@has_streams", "true"));
    if (latent) SPW_TRY(spw_flags_say(f, "@latent", "true"));
    if (!latent && m->kv_heads != m->heads) SPW_TRY(spw_flags_say(f, "@grouped_query", "true"));
    SPW_TRY(express_layers(f));
    if (m->attention_sinks) SPW_TRY(spw_flags_say(f, "@sinks", "true"));
    SPW_TRY(spw_flags_say(f, "@untied", m->tied_embeddings ? "false" : "true"));
    if (m->quick_gate && f->framework->print != SPW_PRINT_YAML) /* Bridge names the function itself */
        SPW_TRY(spw_flags_say(f, "@quick_gated", "true"));
    else
        SPW_TRY(spw_flags_say(f, "@gated", spw_expert_matrices(m) == 3 ? "true" : "false"));
    SPW_TRY(spw_flags_say(f, "@biases", m->expert_bias ? "true" : "false"));
    if (m->attention_bias && !m->expert_bias) SPW_TRY(spw_flags_say(f, "@query_bias", "true"));
    SPW_TRY(spw_flags_say(f, "@normalization", m->norm_bias ? "LayerNorm" : "RMSNorm"));
    if (m->qk_norm || latent) SPW_TRY(spw_flags_say(f, "@query_norm", "true"));
    SPW_TRY(spw_flags_say(f, "@grouped", "true"));
    if (m->sigmoid_router) SPW_TRY(spw_flags_say(f, "@router_score", "sigmoid"));
    if (m->selection_bias) SPW_TRY(spw_flags_say(f, "@router_bias", "true"));

cleanup:
    return status;
}

spw_status spw_express_megatron(spw_flag_draft *f) {
    spw_status status = SPW_OK;
    SPW_TRY(express_split(f));
    SPW_TRY(express_formats(f));
    SPW_TRY(express_memory(f));
    SPW_TRY(express_kernels(f));
    SPW_TRY(express_scheme(f));
    SPW_TRY(express_model(f));
    SPW_TRY(express_words(f));
    SPW_TRY(express_allocator(f));

cleanup:
    return status;
}
