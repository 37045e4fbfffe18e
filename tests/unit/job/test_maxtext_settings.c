/* Every setting of MaxText that users were seen to set: answered, or refused by its name with what is nearest. */
#include "sim/job/recipe/maxtext_custom.h"
#include "sim/job/recipe/maxtext_settings.h"

#include "sim/frameworks/draft.h"
#include "sim/job/job.h"
#include "tests/unit/check.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static spw_job job;

typedef enum answer { SAME, REFUSED, REMAT } answer;

/* As in src/maxtext/configs/base.yml of 0.2.5. REMAT: the policy `says`; REFUSED: the message has the setting and `says`. */
static const struct {
    const char *text;
    answer answer;
    const char *says;
} settings[] = {
    {"query_proj=device key_proj=device value_proj=device", REMAT, "save_qkv_proj"},
    {"qkv_proj=device query_proj=device key_proj=device value_proj=device", REMAT, "save_qkv_proj"},
    {"out_proj=device", REMAT, "save_out_proj"},
    {"query_proj=device key_proj=device value_proj=device out_proj=device mlpwo=remat", REMAT,
     "save_dot_except_mlp"},
    {"query_proj=device key_proj=device value_proj=device out_proj=device context=device", REMAT,
     "save_dot_with_context_except_mlp"},
    {"remat_policy=custom query_proj=offload key_proj=offload value_proj=offload", REMAT,
     "qkv_proj_offloaded"},
    {"decoder_layer_input=offload", REMAT, "decoder_layer_input_offloaded"},
    {"decoder_layer_input=device", SAME, NULL},
    {"query_proj=device", REFUSED, "nearest: save_qkv_proj"},
    {"query_proj=offload key_proj=device", REFUSED, "nearest: save_qkv_proj"},
    {"out_proj=offload", REFUSED, "nearest: save_qkv_proj"},
    {"decoder_layer_input=offload out_proj=device", REFUSED, "nearest: save_qkv_proj"},
    {"mlpwi_0=device", REFUSED, "nearest: save_qkv_proj"},
    {"mlpwi_1=offload", REFUSED, "nearest: save_qkv_proj"},
    {"mlpwo=device", REFUSED, "nearest: save_qkv_proj"},
    {"moe_mlpwi_0=device", REFUSED, "nearest: save_qkv_proj"},
    {"moe_mlpwi_1=device", REFUSED, "nearest: save_qkv_proj"},
    {"moe_mlpwo=offload", REFUSED, "nearest: save_qkv_proj"},
    {"moe_combine=device", REFUSED, "nearest: save_qkv_proj"},
    {"mla_q=device", REFUSED, "nearest: save_qkv_proj"},
    {"mla_kv=device", REFUSED, "nearest: save_qkv_proj"},
    {"attention_out=device", REFUSED, "nearest: save_qkv_proj"},
    {"moe_routing_maps=device", REFUSED, "nearest: remat full"},
    {"remat_policy=minimal_offloaded", REFUSED, "nearest: full"},
    {"optimizer_memory_host_offload=True", REFUSED, "nearest: the same without it"},
    {"parameter_memory_host_offload=True", REFUSED, "nearest: the same without it"},
    {"shard_optimizer_over_data=True", REFUSED, "nearest: fsdp"},
    {"num_vocab_tiling=8", SAME, NULL},
    {"vocab_tiling_ag_once=True", SAME, NULL},
    {"shard_exp_on_fsdp=True", REFUSED, "nearest: the same without it"},
    {"shard_embed_moe_on_fsdp=True", REFUSED, "nearest: the same without it"},
    {"use_2d_fsdp_sharding=True", REFUSED, "nearest: the same without it"},
    {"prefuse_moe_weights=True", REFUSED, "28.6 GiB for 22.1; nearest: gmm"},
    {"merge_gating_gmm=True", SAME, NULL},
    {"use_custom_sort_vjp=False", REFUSED, "nearest: gmm"},
    {"use_custom_sort_vjp=True", SAME, NULL},
    {"use_ragged_sort=True ragged_gather_fallback=True ragged_gather_reduce_fallback=True", SAME, NULL},
    {"num_moe_emb_chunks=2", REFUSED, "nearest: gmm"},
    {"num_moe_emb_chunks=0", SAME, NULL},
    {"use_batch_split_schedule=True", REFUSED, "nearest: gmm"},
    {"use_gmm_v2=True", REFUSED, "nearest: gmm"},
    {"moe_chunk_barrier=True", REFUSED, "nearest: ring"},
    {"num_moe_token_chunks=2", REFUSED, "--scheme ring:token_chunks=N"},
    {"mtp_num_layers=1", REFUSED, "nearest: 0"},
    {"mtp_num_layers=0", SAME, NULL},
    {"dropout_rate=0.1", REFUSED, "nearest: 0"},
    {"dropout_rate=0.0", SAME, NULL},
    {"use_dpo=True", REFUSED, "nearest: training without it"},
    {"use_multimodal=True", REFUSED, "nearest: the text model"},
    {"scan_layers=False", REFUSED, "nearest: the scan"},
    {"pipeline_fsdp_ag_once=True", REFUSED, "nearest: parallel.fsdp 1"},
    {"pipeline_fsdp_ag_per_repeat=True", REFUSED, "nearest: the pipeline without it"},
    {"pipeline_parallel_layers=32", REFUSED, "layers that fill no whole round"},
    {"pipeline_delay_activation_forwarding=True", REFUSED, "nearest: MaxText's default"},
    {"attention=dot_product", REFUSED, "nearest: flash attention"},
    {"quantization=fp8", REFUSED, "nearest: bf16"},
    {"quantization=nanoo_fp8", REFUSED, "nearest: bf16"},
    {"opt_type=muon", REFUSED, "nearest: adamw"},
    {"opt_type=sgd", REFUSED, "nearest: adamw"},
    {"enable_lora=True", REFUSED, "nearest: full training"},
    {"ici_tensor_parallelism=2", REFUSED, "nearest: its GPUs in ici_fsdp_parallelism"},
    {"ici_context_parallelism=2", REFUSED, "nearest: its GPUs in ici_fsdp_parallelism"},
    {"ici_tensor_parallelism=1 dcn_context_parallelism=1", SAME, NULL},
    {"mhc_expansion_rate=4", REFUSED, "nearest: one stream"},
    {"attention_type=compressed", REFUSED, "nearest: deepseek-v3.2"},
    {"moe_dropless_fallback=layer", REFUSED, "48.0 GiB for 15.3; nearest: ring:ragged_sort=true"},
    {"moe_dropless_fallback=step", REFUSED, "plan both"},
    {"moe_x_sorted=device", REFUSED, "53.1 GiB for 22.1; nearest: remat full"},
    {"moe_x_sorted=offload", REFUSED, "nearest: remat full"},
    {"moe_topk_before_ep_all_gather=True", REFUSED, "nearest: ring"},
    {"moe_use_direct_token_gather=True", REFUSED, "nearest: gmm"},
    {"moe_quantize_token_all_gather=True", REFUSED, "nearest: ring"},
    {"moe_quantize_combine_bwd_method=rowwise", REFUSED, "nearest: ring"},
    {"te_moe_block=True", REFUSED, "nearest: gmm"},
    {"te_gmm_quantization=te_mxfp8", REFUSED, "nearest: gmm"},
    {"moe_dispatch_no_expert_sharding=True", SAME, NULL},
};

static void expect(const char *text, answer wanted, const char *says) {
    spw_job copy;
    const char *const before = (const char *)&job, *const after = (const char *)&copy; /* byte for byte */
    spw_remat remat = SPW_REMAT_FULL;
    memcpy(&copy, &job, sizeof copy);
    const spw_status status = spw_maxtext_settings_apply(text, &copy);
    if (wanted == REMAT) CHECK_OK(spw_remat_parse(says, &remat));
    const bool good = wanted == REFUSED ? status == SPW_ECONFIG && strstr(spw_last_error(), says) != NULL &&
                                              strncmp(spw_last_error(), "MaxText's ", 10) == 0
                                        : status == SPW_OK && copy.remat == remat;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %d, %s\n", text, (int)status, status != SPW_OK ? spw_last_error() : "");
    copy.remat = job.remat;
    CHECK(wanted == REFUSED || memcmp(after, before, sizeof job) == 0);
}

/* A configuration of MaxText that says the same is planned with a note: that it may need more, or that it has no counterpart. */
static void expect_note(const char *text) {
    const spw_framework *f = spw_framework_find("maxtext", 7);
    char name[64], value[64];
    int kind = -1;
    const size_t key = strcspn(text, "="), length = strcspn(text + key + 1, " ");
    (void)snprintf(name, sizeof name, "%.*s", (int)key, text);
    (void)snprintf(value, sizeof value, "%.*s", (int)length, text + key + 1);
    const char *why = f != NULL ? f->known(name, value, &kind) : NULL;
    CHECK(why != NULL && (kind == SPW_NOTE_MORE || kind == SPW_NOTE_LACKS || kind == SPW_NOTE_QUIET));
    CHECK(why == NULL || strlen(why) < SPW_NOTE_WHY);
}

/* Replicas: GPUs and nodes of one of them, whichever axis says it; SPW_ECONFIG where it divides one of the two alone. */
static void expect_replicas(void) {
    static const struct {
        const char *text;
        size_t fsdp, nodes; /* 0: refused */
    } rows[] = {{"dcn_data_parallelism=2", 24, 4},
                {"ici_data_parallelism=4 scan_layers=true", 12, 2},
                {"dcn_data_parallelism=1", 48, 8},
                {"dcn_data_parallelism=3", 0, 0},
                {"ici_data_parallelism=16", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        spw_job copy = job;
        copy.fsdp = 48;
        const spw_status status = spw_maxtext_settings_apply(rows[i].text, &copy);
        CHECK(status == (rows[i].fsdp > 0 ? SPW_OK : SPW_ECONFIG));
        if (status == SPW_OK) CHECK(copy.fsdp == rows[i].fsdp && copy.cluster.nodes == rows[i].nodes);
        if (status != SPW_OK)
            CHECK(strstr(spw_last_error(), "does not divide fsdp 48 and the 8 nodes") != NULL);
    }
}

/* Formats of a note become words of a precision, each its own. */
static void expect_precision(void) {
    static const char *const rows[][2] = {
        {"weight_dtype=float32", " weights=fp32"},
        {"grad_dtype=float32", " gradients=fp32"},
        {"mu_dtype=float32", " optimizer=fp32"},
        {"mu_dtype=bfloat16 grad_dtype=float32 scan_layers=true weight_dtype=float32",
         " weights=fp32 gradients=fp32"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[64] = "mixed", want[64];
        (void)snprintf(want, sizeof want, "mixed%s", rows[i][1]);
        spw_maxtext_precision(rows[i][0], out, sizeof out);
        CHECK(strcmp(out, want) == 0);
    }
}

int main(void) {
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &job.cluster));
    job.expert = job.fsdp = 8;
    job.remat = SPW_REMAT_FULL;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        expect(settings[i].text, settings[i].answer, settings[i].says);
        expect_note(settings[i].text);
    }
    expect_replicas();
    expect_precision();
    int kind = -1;
    const spw_framework *f = spw_framework_find("maxtext", 7);
    CHECK(f->known("prefuse_moe_weights", "True", &kind) != NULL && kind == SPW_NOTE_MORE);
    CHECK(f->known("optimizer_memory_host_offload", "true", &kind) != NULL && kind == SPW_NOTE_LACKS);
    CHECK(f->known("merge_gating_gmm", "true", &kind) != NULL && kind == SPW_NOTE_QUIET);
    CHECK(f->known("prefuse_moe_weights", "False", &kind) == NULL && f->known("no_such", "1", &kind) == NULL);
    return check_done();
}
