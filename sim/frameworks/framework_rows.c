/* Rows of a framework by the names of a file, and names that change nothing here. */
#include "sim/frameworks/framework.h"
#include "sim/model/attention.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* --- Names --- */

const char *spw_framework_row_name(const spw_framework_row *row) {
    return strcmp(row->theirs, SPW_AS_IN_THE_MODEL) == 0 ? spw_attention_size_key(row->ours) : row->theirs;
}

/* Names alone, or patterns alone. */
static const spw_framework_row *find_row(const spw_framework *f, const char *name, bool patterns) {
    for (size_t i = 0; i < SPW_FRAMEWORK_TABLES && f->rows[i] != NULL; i++)
        for (const spw_framework_row *row = f->rows[i]; row->theirs != NULL; row++) {
            const char *theirs = spw_framework_row_name(row);
            const bool pattern = strchr(theirs, '*') != NULL;
            if (pattern != patterns) continue;
            if (pattern ? fnmatch(theirs, name, 0) == 0 : strcmp(theirs, name) == 0) return row;
        }
    return NULL;
}

/* "modules.pre_trainer.overrides.x" is x, "modules.pre_trainer.model" is primus.model. */
static const char *behind_module(const char *name, bool *named) {
    static const char module[] = "modules.", overrides[] = "overrides.";
    *named = false;
    if (strncmp(name, module, sizeof module - 1) != 0) return name;
    const char *point = strchr(name + sizeof module - 1, '.');
    if (point == NULL) return name;
    *named = strncmp(point + 1, overrides, sizeof overrides - 1) != 0;
    return *named ? point + 1 : point + sizeof overrides;
}

const char *spw_framework_plain_name(const spw_framework *f, const char *name, char out[SPW_ENTRY_NAME]) {
    static const char *const places[] = {"MODEL_ARGS.", "ARGS.", "model_args.", "config.", NULL};
    bool named = false;
    const char *plain = behind_module(name, &named);
    for (const char *const *p = places; *p != NULL; p++)
        if (strncmp(plain, *p, strlen(*p)) == 0) plain += strlen(*p);
    if (strncmp(plain, "ENV_VARS.", 9) == 0) {
        (void)snprintf(out, SPW_ENTRY_NAME, "env.%s", plain + 9);
        return out;
    }
    if (strncmp(plain, "__", 2) == 0) plain += 2; /* "--num-layers" as a key */
    if (f != NULL && find_row(f, plain, false) == NULL)
        for (const char *const *s = f->sections; s != NULL && *s != NULL; s++) {
            const size_t length = strlen(*s);
            if (strncmp(plain, *s, length) != 0 || plain[length] != '.') continue;
            plain += length + 1;
            break;
        }
    (void)snprintf(out, SPW_ENTRY_NAME, "%s%s", named ? "primus." : "", plain);
    return out;
}

const spw_framework_row *spw_framework_row_of(const spw_framework *f, const char *name) {
    const spw_framework_row *row = find_row(f, name, false);
    return row != NULL ? row : find_row(f, name, true);
}

/* --- Names without a part --- */

static const char *const quiet[] = {"lr",
                                    "lr_*",
                                    "min_lr",
                                    "max_lr",
                                    "*learning_rate*",
                                    "lr_scheduler*",
                                    "adam_*",
                                    "sgd_momentum",
                                    "muon_momentum",
                                    "muon_use_nesterov",
                                    "muon_num_ns_steps",
                                    "muon_scale_mode",
                                    "muon_extra_scale_factor",
                                    "muon_fp32_matmul_prec",
                                    "muon_split_qkv",
                                    "muon_tp_mode",
                                    "weight_decay*",
                                    "start_weight_decay",
                                    "end_weight_decay",
                                    "clip_grad",
                                    "gradient_clipping",
                                    "max_grad_norm",
                                    "*warmup*",
                                    "*seed",
                                    "seed_*",
                                    "train_iters",
                                    "train_samples",
                                    "steps",
                                    "max_steps",
                                    "num_train_epochs",
                                    "num_epochs",
                                    "exit_*",
                                    "eval_*",
                                    "*_eval",
                                    "*evals_per_epoch",
                                    "saves_per_epoch",
                                    "save",
                                    "save_*",
                                    "load",
                                    "load_*",
                                    "no_load_*",
                                    "no_save_*",
                                    "*checkpoint*interval",
                                    "ckpt_*",
                                    "*_ckpt_*",
                                    "checkpoint.*",
                                    "dist_ckpt_*",
                                    "auto_detect_ckpt_format",
                                    "non_persistent_*",
                                    "use_dist_ckpt*",
                                    "use_persistent_ckpt_worker",
                                    "async_save",
                                    "use_checkpoint_*",
                                    "pretrained_checkpoint",
                                    "async_checkpointing",
                                    "enable_checkpointing",
                                    "log_*",
                                    "logging*",
                                    "logger.*",
                                    "*tensorboard*",
                                    "*wandb*",
                                    "*mlflow*",
                                    "trackio*",
                                    "comet*",
                                    "timing_log_*",
                                    "profil*",
                                    "*profile*",
                                    "*profiler*",
                                    "nsys*",
                                    "metrics*",
                                    "report_to",
                                    "record_memory_history",
                                    "memory_snapshot_path",
                                    "*data_path",
                                    "data_*_path",
                                    "data_args_path",
                                    "data_cache_path",
                                    "path_to_cache",
                                    "dataset*",
                                    "*_dataset",
                                    "data_loader*",
                                    "dataloader*",
                                    "mock_data",
                                    "mock_dataset*",
                                    "hf_*",
                                    "grain*",
                                    "split",
                                    "num_workers",
                                    "*mmap_bin_files",
                                    "create_attention_mask*",
                                    "no_create_attention_mask_in_dataloader",
                                    "reset_attention_mask",
                                    "reset_position_ids",
                                    "eod_mask_loss",
                                    "packing",
                                    "max_segments_per_seq",
                                    "sample_packing",
                                    "pad_to_sequence_len",
                                    "val_set_size",
                                    "special_tokens*",
                                    "eot_tokens*",
                                    "vocab_file",
                                    "merge_file",
                                    "tokenizer_type",
                                    "tokenizer_path",
                                    "tokenizer.*",
                                    "tokenizer_hf*",
                                    "chat_template*",
                                    "bos_token*",
                                    "eos_token*",
                                    "init_method*",
                                    "embedding_init_method*",
                                    "output_layer_init_method*",
                                    "norm_epsilon",
                                    "layernorm_epsilon",
                                    "*_norm_eps",
                                    "normalization*",
                                    "normalization_layer_epsilon",
                                    "attention_dropout",
                                    "hidden_dropout",
                                    "*dropout",
                                    "enable_dropout",
                                    "rotary_*",
                                    "rope_*",
                                    "use_rotary_position_embeddings",
                                    "no_rope*",
                                    "mscale*",
                                    "beta_fast",
                                    "beta_slow",
                                    "original_max_position_embeddings",
                                    "max_position_embeddings",
                                    "position_embedding_type",
                                    "no_position_embedding",
                                    "partial_rotary_factor",
                                    "moe_aux_loss_coeff",
                                    "moe_z_loss_coeff",
                                    "moe_router_load_balancing_type",
                                    "moe_router_topk_scaling_factor",
                                    "moe_router_bias_update_rate",
                                    "moe_router_pre_softmax",
                                    "moe_input_jitter_eps",
                                    "moe_per_layer_logging",
                                    "load_balance_loss_weight",
                                    "routed_scaling_factor",
                                    "router_aux_loss*",
                                    "moe_router_force_biased",
                                    "mtp_loss_scaling_factor",
                                    "distributed_timeout_minutes",
                                    "distributed_backend",
                                    "manual_gc*",
                                    "*check_for_nan*",
                                    "check_for_*",
                                    "rerun_*",
                                    "ft.*",
                                    "nvrx*",
                                    "straggler*",
                                    "*straggler*",
                                    "error_injection*",
                                    "one_logger*",
                                    "*one_logger*",
                                    "app_tag*",
                                    "enable_experimental",
                                    "use_mcore_models",
                                    "use_legacy_models",
                                    "rank",
                                    "local_rank",
                                    "master_addr",
                                    "master_port",
                                    "node_rank",
                                    "rdzv_*",
                                    "tee",
                                    "redirects",
                                    "max_restarts",
                                    "log_dir",
                                    "role",
                                    "run_name",
                                    "exp_name",
                                    "work_group",
                                    "user_name",
                                    "workspace",
                                    "base_output_directory",
                                    "output_dir",
                                    "output_path",
                                    "dump_folder",
                                    "job.*",
                                    "experiment*",
                                    "description",
                                    "print_args",
                                    "comm.*",
                                    "experimental.*",
                                    "debug.*",
                                    "stderr_sink_level",
                                    "sink_level",
                                    "file_sink_level",
                                    "trust_remote_code",
                                    "hub_*",
                                    "push_to_hub",
                                    "*_call_",
                                    "_target_",
                                    "*._target_",
                                    "*_args_*",
                                    "*_partial_",
                                    "env.*",
                                    "hf_access_token",
                                    "resume_from_checkpoint",
                                    "early_stopping*",
                                    "loss_watchdog*",
                                    "strict",
                                    "bf16_*",
                                    "tf32",
                                    "auto_resume*",
                                    "disable_last_saving",
                                    "finetune",
                                    "auto_continue_train",
                                    "skip_train",
                                    "train_sync_interval",
                                    "override_opt_param_scheduler",
                                    "use_checkpoint_opt_param_scheduler",
                                    "loss_scale*",
                                    "initial_loss_scale",
                                    "min_loss_scale",
                                    "hysteresis",
                                    "primus.config",
                                    "primus.framework",
                                    "trainable",
                                    "reuse_example_batch",
                                    "gcs_metrics",
                                    "metrics_file",
                                    "enable_goodput*",
                                    "monitor_goodput",
                                    "skip_first_n_steps_for_profiler",
                                    "steps_per_print",
                                    "wall_clock_breakdown",
                                    "*.wall_clock_breakdown",
                                    "zero_allow_untested_optimizer",
                                    "job_name",
                                    "partition",
                                    "account",
                                    "time",
                                    "exclusive",
                                    "container_*",
                                    "mpi",
                                    "output",
                                    "error",
                                    "dependency",
                                    "mem",
                                    "requeue",
                                    "comment",
                                    "TEST_TYPE",
                                    "LAUNCHER",
                                    "METRICS*",
                                    "MODE*",
                                    "xla_*",
                                    NULL};

bool spw_framework_is_quiet(const char *name) {
    for (const char *const *pattern = quiet; *pattern != NULL; pattern++)
        if (fnmatch(*pattern, name, 0) == 0) return true;
    return false;
}

const spw_framework_row *spw_framework_row_for(const spw_framework *f, const char *ours) {
    for (size_t i = 0; i < SPW_FRAMEWORK_TABLES && f->rows[i] != NULL; i++)
        for (const spw_framework_row *row = f->rows[i]; row->theirs != NULL; row++)
            if (row->ours != NULL && !row->alias && strcmp(row->ours, ours) == 0) return row;
    return NULL;
}
