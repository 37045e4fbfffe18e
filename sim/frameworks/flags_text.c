#include "sim/frameworks/flags.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_launcher(const char *name) {
    return strcmp(name, "nnodes") == 0 || strcmp(name, "nproc_per_node") == 0;
}

static void print_dashed(const char *name, FILE *out) {
    for (; *name != '\0'; name++) fputc(*name == '_' ? '-' : *name, out);
}

static void print_quoted(const char *value, FILE *out) {
    const bool plain = value[0] != '\0' && value[strcspn(value, " |&;<>()$`\\\"'*?[]#~{}")] == '\0';
    fprintf(out, plain ? "%s" : "'%s'", value);
}

/* Variables of the environment, in front. */
static bool is_variable(const char *name) { return strncmp(name, "env.", 4) == 0; }
static void print_exports(const spw_flag_draft *f, FILE *out) {
    for (size_t i = 0; i < f->flags; i++)
        if (is_variable(f->flag[i].name))
            fprintf(out, "export %s=%s\n", f->flag[i].name + 4, f->flag[i].value);
}

static void print_launcher(const spw_flag_draft *f, FILE *out) {
    fprintf(out, "torchrun");
    for (size_t i = 0; i < f->flags; i++) {
        if (!is_launcher(f->flag[i].name)) continue;
        fprintf(out, " --");
        print_dashed(f->flag[i].name, out);
        fprintf(out, " %s", f->flag[i].value);
    }
}

/* On unless a switch turns them off: NVIDIA/Megatron-LM d98e8a64 megatron/training/arguments.py. */
static const struct { const char *name, *off; } turned_off[] = {{"apply_rope_fusion", "no_rope_fusion"}};

/* The switch that says a value; NULL: its absence does. */
static const char *switch_of(const spw_flag *flag) {
    for (size_t i = 0; i < sizeof turned_off / sizeof *turned_off; i++)
        if (strcmp(turned_off[i].name, flag->name) == 0)
            return strcmp(flag->value, "false") == 0 ? turned_off[i].off : NULL;
    return strcmp(flag->value, "false") == 0 ? NULL : flag->name;
}

/* Megatron-LM's switches stand alone; one that is off is left out. Lists are words. */
static void print_arguments(const spw_flag_draft *f, FILE *out) {
    char value[SPW_FLAG_VALUE];
    print_exports(f, out);
    print_launcher(f, out);
    bool hybrid = false;
    for (size_t i = 0; i < f->flags; i++)
        hybrid = hybrid || strstr(f->flag[i].name, "hybrid_") == f->flag[i].name;
    fprintf(out, " pretrain_%s.py", hybrid ? "mamba" : "gpt");
    for (size_t i = 0; i < f->flags; i++) {
        const spw_flag *flag = &f->flag[i];
        const char *name = switch_of(flag);
        if (is_launcher(flag->name) || is_variable(flag->name) || name == NULL) continue;
        fprintf(out, " \\\n    --");
        print_dashed(name, out);
        if (strcmp(flag->value, "true") == 0 || strcmp(flag->value, "false") == 0) continue;
        (void)snprintf(value, sizeof value, "%s", flag->value);
        char *rest = NULL;
        const bool list = strstr(flag->name, "modules") != NULL;
        for (char *word = list ? strtok_r(value, ",", &rest) : value; word != NULL;
             word = list ? strtok_r(NULL, ",", &rest) : NULL) {
            fputc(' ', out);
            print_quoted(word, out);
        }
    }
    fputc('\n', out);
}

/* Sections of Megatron-Bridge's configuration; all else is the model's. */
static const struct {
    const char *name, *section;
} sections[] = {{"micro_batch_size", "train"},
                {"global_batch_size", "train"},
                {"use_distributed_optimizer", "ddp"},
                {"num_distributed_optimizer_instances", "ddp"},
                {"use_megatron_fsdp", "ddp"},
                {"data_parallel_sharding_strategy", "ddp"},
                {"grad_reduce_in_fp32", "mixed_precision"},
                {"bf16", "mixed_precision"},
                {"fp16", "mixed_precision"},
                {"fp8", "mixed_precision"},
                {"fp8_recipe", "mixed_precision"},
                {"fp8_param_gather", "mixed_precision"},
                {"fp4", "mixed_precision"},
                {"fp4_recipe", "mixed_precision"},
                {"fp4_param_gather", "mixed_precision"},
                {"use_precision_aware_optimizer", "optimizer"},
                {"store_param_remainders", "optimizer"},
                {"main_grads_dtype", "optimizer"},
                {"main_params_dtype", "optimizer"},
                {"exp_avg_dtype", "optimizer"},
                {"exp_avg_sq_dtype", "optimizer"},
                {"optimizer", "optimizer"},
                {"optimizer_cpu_offload", "optimizer"},
                {"optimizer_offload_fraction", "optimizer"},
                {"overlap_grad_reduce", "ddp"},
                {"overlap_param_gather", "ddp"},
                {"delay_wgrad_compute", "comm_overlap"},
                {"overlap_moe_expert_parallel_comm", "comm_overlap"}};

static const char *section_of(const char *name) {
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(sections[i].name, name) == 0) return sections[i].section;
    return "model";
}

static void print_yaml_value(const spw_flag *flag, FILE *out) {
    const bool list = strstr(flag->name, "modules") != NULL;
    const bool plain =
        flag->value[strspn(flag->value,
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-,")] == '\0';
    fprintf(out, list ? "[%s]" : plain ? "%s" : "'%s'", flag->value);
}

static void print_sections(const spw_flag_draft *f, FILE *out) {
    static const char *const order[] = {"model",           "train",     "ddp",
                                        "mixed_precision", "optimizer", "comm_overlap"};
    for (size_t s = 0; s < sizeof order / sizeof *order; s++) {
        bool begun = false;
        for (size_t i = 0; i < f->flags; i++) {
            if (is_launcher(f->flag[i].name) || is_variable(f->flag[i].name) ||
                strcmp(section_of(f->flag[i].name), order[s]) != 0)
                continue;
            if (!begun) fprintf(out, "%s:\n", order[s]);
            begun = true;
            fprintf(out, "  %s: ", f->flag[i].name);
            print_yaml_value(&f->flag[i], out);
            fputc('\n', out);
        }
    }
}

static void print_primus(const spw_flag_draft *f, FILE *out) {
    fprintf(
        out,
        "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    overrides:\n");
    for (size_t i = 0; i < f->flags; i++) {
        if (is_launcher(f->flag[i].name) || is_variable(f->flag[i].name)) continue;
        fprintf(out, "      %s: ", f->flag[i].name);
        print_yaml_value(&f->flag[i], out);
        fputc('\n', out);
    }
}

static void print_pairs(const spw_flag_draft *f, FILE *out) {
    print_exports(f, out);
    fprintf(out, "python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml");
    for (size_t i = 0; i < f->flags; i++) {
        if (is_variable(f->flag[i].name)) continue;
        fprintf(out, " \\\n    %s=", f->flag[i].name);
        print_quoted(f->flag[i].value, out);
    }
    fputc('\n', out);
}

static void print_dotted(const spw_flag_draft *f, FILE *out) {
    print_launcher(f, out);
    fprintf(out, " -m torchtitan.train");
    for (size_t i = 0; i < f->flags; i++) {
        if (is_launcher(f->flag[i].name)) continue;
        fprintf(out, " \\\n    --%s ", f->flag[i].name);
        print_quoted(f->flag[i].value, out);
    }
    fputc('\n', out);
}

spw_status spw_flags_text(const spw_flag_draft *f, char **text) {
    static void (*const prints[])(const spw_flag_draft *, FILE *) = {[SPW_PRINT_ARGUMENTS] = print_arguments,
                                                                     [SPW_PRINT_YAML] = print_sections,
                                                                     [SPW_PRINT_PRIMUS] = print_primus,
                                                                     [SPW_PRINT_PAIRS] = print_pairs,
                                                                     [SPW_PRINT_DOTTED] = print_dotted};
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    if (out == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate a stream");
    prints[f->framework->print](f, out);
    return fclose(out) == 0 ? SPW_OK : spw_fail(SPW_ENOMEM, "cannot keep the flags");
}
