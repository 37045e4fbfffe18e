/* A row of notebooks_data/measured/transformers_h100.csv, or transformers_ddp_h200.csv, as a shape. */
#ifndef SPW_TESTS_TRANSFORMERS_RUN_H
#define SPW_TESTS_TRANSFORMERS_RUN_H

#include "sim/memory/tensors/transformers_step.h"
#include "sim/model/attention.h"
#include "sim/read/csv.h"
#include "tests/unit/csv_number.h"

#include <string.h>

static bool transformers_run_is(const spw_csv *csv, size_t row, const char *column, const char *value) {
    const char *text = spw_csv_field(csv, row, column);
    return text != NULL && strcmp(text, value) == 0;
}

static void transformers_run_shape(const spw_csv *csv, size_t row, spw_model *m, spw_transformers_shape *s) {
    const bool wide = transformers_run_is(csv, row, "state", "fp32"),
               all = transformers_run_is(csv, row, "run", "t_loraall"),
               mixtral = transformers_run_is(csv, row, "family", "mixtral"),
               fsdp2 = number(csv, row, "fsdp2") > 0;
    const size_t lora = number(csv, row, "lora_rank"), sequences = number(csv, row, "sequences");
    *m = (spw_model){.layers = number(csv, row, "layers"),
                     .hidden = number(csv, row, "hidden"),
                     .heads = number(csv, row, "heads"),
                     .kv_heads = number(csv, row, "kv_heads"),
                     .head_dim = number(csv, row, "head_dim"),
                     .experts = number(csv, row, "experts"),
                     .top_k = number(csv, row, "top_k"),
                     .expert_ffn = number(csv, row, "ffn"),
                     .vocab = number(csv, row, "vocab")};
    memset(m->is_moe, 1, m->layers);
    const bool latent = transformers_run_is(csv, row, "family", "deepseek_v3");
    if (latent) {
        /* plain queries, a dense layer first, two shared experts: the run's 614,870,016 parameters */
        m->attention = &spw_latent_attention;
        m->kv_lora_rank = 512;
        m->nope_dim = m->v_head_dim = 128;
        m->rope_dim = 64;
        m->sigmoid_router = true;
        m->is_moe[0] = 0;
        m->dense_ffn = 6144;
        m->shared_ffn = 2 * m->expert_ffn;
    }
    *s = (spw_transformers_shape){.model = m,
                                  .tokens = sequences * number(csv, row, "length"),
                                  .sequences = sequences,
                                  .layers = m->layers,
                                  .element_bytes = 2,
                                  .weight_bytes = wide ? 4 : 2,
                                  .moment_bytes = wide ? 4 : 2,
                                  .reduced_bytes = wide ? 4 : 2,
                                  .shards = fsdp2 ? number(csv, row, "ranks") : 1,
                                  .summed = fsdp2 ? 1 : number(csv, row, "ranks"),
                                  .wrapped = fsdp2,
                                  .checkpoint = number(csv, row, "checkpointing") > 0,
                                  .keeps_logits = number(csv, row, "logits_kept") > 0,
                                  .frozen = lora > 0,
                                  .adapts_attention = lora > 0,
                                  .adapts_experts = all, /* PEFT's all-linear */
                                  .adapts_router = all,
                                  .lora_rank = lora,
                                  .micro_batches = 1,
                                  .norm = mixtral || latent ? SPW_HF_NORM_NONE
                                          : transformers_run_is(csv, row, "family", "olmoe")
                                              ? SPW_HF_NORM_WHOLE
                                              : SPW_HF_NORM_HEAD,
                                  .wide_scores = mixtral || latent,
                                  .router = latent ? SPW_HF_ROUTER_SIGMOID : SPW_HF_ROUTER_SOFTMAX,
                                  .rotation = latent ? SPW_HF_ROTATION_PAIRS : SPW_HF_ROTATION_HALVES};
}

#endif
