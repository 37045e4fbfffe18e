#include "sim/frameworks/tuning.h"

#include <stdio.h>
#include <string.h>

/* The first that has a mark; the last has none. */
static const spw_tuner tuners[] = {
    {.name = "Axolotl",
     .marks = (const char *const[]){"base_model", "sequence_len", "micro_batch_size", "adapter", NULL},
     .length = "512",
     .sequences = 1,
     .rank = 8},
    {.name = "ms-swift",
     .marks = (const char *const[]){"tuner_type", "train_type", "split_dataset_ratio", "load_from_cache_file",
                                    NULL},
     .length = "2048",
     .sequences = 1,
     .rank = 8,
     .checkpoints = true},
    {.name = "LLaMA-Factory",
     .marks = (const char *const[]){"cutoff_len", "finetuning_type", "stage", "template", "lora_target",
                                    "lora_rank", NULL},
     .length = "2048",
     .sequences = 8,
     .rank = 8,
     .checkpoints = true,
     .casts = true},
    {.name = "TRL",
     .marks = (const char *const[]){"model_name_or_path", "max_length", "use_peft", "lora_r", "dataset_name",
                                    NULL},
     .length = "1024",
     .sequences = 8,
     .rank = 16,
     .checkpoints = true,
     .mixes = true,
     .loads = "fp32",
     .chunks_loss = true},
    {.name = "Accelerate",
     .marks = (const char *const[]){NULL},
     .length = "1024",
     .sequences = 8,
     .rank = 8}};

const spw_tuner *spw_tuner_of(const spw_draft *d) {
    char plain[SPW_ENTRY_NAME];
    const spw_tuner *t = tuners;
    for (; t->marks[0] != NULL; t++)
        for (const char *const *mark = t->marks; *mark != NULL; mark++)
            for (size_t i = 0; i < d->entries.count; i++)
                if (strcmp(spw_framework_plain_name(d->framework, d->entries.entry[i].name, plain), *mark) ==
                    0)
                    return t;
    return t;
}

bool spw_tuning_is_plain(spw_draft *d) {
    const char *expert = spw_draft_key_value(d, "parallel.expert");
    return spw_draft_fact(d, "@deepspeed") == NULL && !spw_draft_on(d, "@scattermoe") &&
           !spw_draft_on(d, "@sonicmoe") && (expert == NULL || strcmp(expert, "1") == 0);
}

/* --- Formats --- */

/* Who says that training is in bf16 or fp16: a fact; NULL: nobody. */
static const char *who_mixes(spw_draft *d) {
    static const char *const facts[] = {"@bf16", "@fp16", "@mixed", NULL};
    for (const char *const *f = facts; *f != NULL; f++) {
        const char *said = spw_draft_fact(d, *f);
        if (said != NULL && strcmp(said, "false") != 0 && strcmp(said, "no") != 0) return *f;
    }
    return NULL;
}

typedef struct formats {
    const char *weights, *trained, *master, *fact, *why;
} formats;

/* Weights of 4 or 8 bits have 16 planned in their place: with bitsandbytes transformers loads all others so, too. */
static bool has_low_bits(const spw_draft *d) {
    for (size_t i = 0; i < d->notes; i++)
        if (d->note[i].kind == SPW_NOTE_LACKS && strcmp(d->note[i].why, SPW_TUNING_LOW_BITS) == 0)
            return true;
    return false;
}

/* accelerate 1.13 utils/fsdp_utils.py (fsdp2_prepare_model): what is trained is fp32 under mixed precision, and gathered in bf16; what is
 * frozen stays as it was loaded. Without FSDP2 weights stay as they were loaded (autocast); PEFT makes adapters fp32
 * (autocast_adapter_dtype). Gradients and moments are in the format of what is trained. */
static formats formats_of(spw_draft *d, const spw_tuner *t, bool frozen, bool sharded) {
    const char *mixes = who_mixes(d), *dtype = spw_draft_fact(d, "@dtype");
    const bool pure = spw_draft_is(d, "@bf16", "full") || spw_draft_on(d, "@pure"),
               fp16 = mixes != NULL && (strcmp(mixes, "@fp16") == 0 || spw_draft_is(d, "@mixed", "fp16")),
               off = spw_draft_is(d, "@bf16", "false"),
               mixed = (mixes != NULL || (t->mixes && !off)) && !pure;
    const char *half = fp16 ? "fp16" : "bf16", *loaded = half;
    formats out = {.fact = mixes};
    if (dtype != NULL) {
        loaded = strstr(dtype, "bfloat16") != NULL  ? "bf16"
                 : strstr(dtype, "float16") != NULL ? "fp16"
                 : strstr(dtype, "float32") != NULL ? "fp32"
                                                    : half;
        if (mixes == NULL) out.fact = "@dtype";
    } else if (has_low_bits(d)) {
        loaded = half;
    } else if (t->loads != NULL) {
        loaded = t->loads;
    } else if (mixes == NULL && t->marks[0] != NULL) {
        loaded = "fp32";
    }
    if (pure) loaded = "bf16";
    out.weights = loaded;
    out.trained = loaded;
    if (frozen && !pure)
        out.trained = "fp32",
        out.why = "the frozen base as it is loaded, adapters in fp32, as PEFT makes them";
    if (!frozen && mixed && sharded) {
        out.weights = out.trained = "fp32";
        out.why = "what is trained is kept in fp32 under FSDP2 and mixed precision, and gathered in 16 bits";
        if (mixes == NULL && dtype != NULL) out.fact = NULL;
    } else if (!frozen && mixed && t->casts) {
        out.weights = out.trained = "fp32";
        out.why = "what is trained is kept in fp32";
    } else if (!frozen) {
        out.why = "as it is loaded";
    }
    out.master = "none";
    return out;
}

static spw_status put_formats(spw_draft *d, const formats *f) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_put(d, "precision.weights", f->weights, f->fact));
    SPW_TRY(spw_draft_put(d, "precision.gradients", f->trained, f->fact));
    SPW_TRY(spw_draft_put(d, "precision.optimizer", f->trained, f->fact));
    if (f->master != NULL) SPW_TRY(spw_draft_put(d, "precision.master", f->master, f->fact));

cleanup:
    return status;
}

spw_status spw_compose_tuning_formats(spw_draft *d, const spw_tuner *t) {
    const char *optimizer = spw_draft_key_value(d, "optimizer"), *mixes = who_mixes(d);
    const bool frozen = spw_draft_key_value(d, "finetune.lora_rank") != NULL,
               sharded = optimizer != NULL && strcmp(optimizer, "sharded") == 0;
    spw_status status = SPW_OK;
    if (mixes != NULL && strcmp(mixes, "@fp16") == 0)
        SPW_TRY(spw_draft_put(d, "precision.activations", "fp16", "@fp16"));
    if (t == NULL ||
        !spw_tuning_is_plain(d)) { /* DeepSpeed, or schemes of other layers: fp32 beside 16 bits */
        const formats other = {.weights = sharded ? "fp32" : "bf16", .trained = "fp32", .fact = mixes};
        const char *dtype = spw_draft_fact(d, "@dtype");
        if (dtype != NULL && strstr(dtype, "float32") != NULL)
            return spw_draft_put(d, "precision.weights", "fp32", "@dtype");
        if (dtype != NULL && strcmp(dtype, "bfloat16") == 0)
            return spw_draft_put(d, "precision.weights", "bf16", "@dtype");
        return mixes != NULL ? put_formats(d, &other) : SPW_OK;
    }
    const formats f = formats_of(d, t, frozen, sharded);
    SPW_TRY(put_formats(d, &f));
    if (f.why != NULL && (f.fact == NULL || strcmp(f.weights, "bf16") != 0 || frozen))
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "formats", f.why));

cleanup:
    return status;
}

/* --- The loss --- */

static spw_status note_less(spw_draft *d, spw_note_kind kind, const char *what, const char *why) {
    const size_t before = d->notes;
    const spw_status status = spw_draft_note_text(d, kind, what, why);
    if (d->notes > before) d->note[before].less = true;
    return status;
}

static spw_status note_kernels(spw_draft *d) {
    static const struct {
        const char *fact, *why;
    } kernels[] = {
        {"@liger_norm", "Liger's RMSNorm keeps its input and a number a row; transformers' own is planned, "
                        "which keeps more"},
        {"@liger_rope",
         "Liger's RoPE turns queries and keys in place; transformers' own is planned, which makes copies"},
        {"@liger_glu",
         "Liger's SwiGLU computes its products again; transformers' own is planned, which keeps more"},
        {"@cut_loss",
         "it holds no logits at all; Liger's fused loss is planned, which holds those of some tokens"},
        {"@liger", "Liger's RMSNorm, RoPE and SwiGLU keep less; transformers' own are planned"}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && status == SPW_OK; i++)
        if (spw_draft_on(d, kernels[i].fact))
            status = spw_draft_note_less(d, kernels[i].fact, kernels[i].why);
    return status;
}

/* A fused loss never holds all logits; transformers' own does, in fp32. */
spw_status spw_compose_tuning_loss(spw_draft *d, const spw_tuner *t, bool own) {
    const char *fused = spw_draft_on(d, "@fused_loss") ? "@fused_loss"
                        : spw_draft_on(d, "@cut_loss") ? "@cut_loss"
                        : spw_draft_on(d, "@liger")    ? "@liger"
                                                       : NULL;
    const char *kind = spw_draft_fact(d, "@loss_type");
    spw_status status = SPW_OK;
    if (t != NULL) SPW_TRY(note_kernels(d));
    if (fused != NULL) return spw_draft_put(d, "cross_entropy", "fused", fused);
    const bool chunks = t != NULL && t->chunks_loss && (kind == NULL || strcmp(kind, "chunked_nll") == 0);
    const char *loss_fact = kind != NULL ? "@loss_type" : NULL;
    SPW_TRY(spw_draft_put(d, "cross_entropy", own ? "unfused" : "chunked", loss_fact));
    if (own && chunks)
        return note_less(
            d, kind != NULL ? SPW_NOTE_LACKS : SPW_NOTE_ASSUMED, "cross_entropy: unfused",
            "all logits in fp32, as transformers' own loss; TRL's chunked_nll works on some tokens at a "
            "time and needs less");
    if (own)
        return spw_draft_fact(d, "@fused_loss") != NULL || spw_draft_fact(d, "@liger") != NULL || kind != NULL
                   ? SPW_OK
                   : spw_draft_note_text(
                         d, SPW_NOTE_ASSUMED, "cross_entropy: unfused",
                         "transformers' own loss, which holds the logits of all tokens in fp32");
    const size_t before = d->notes;
    SPW_TRY(spw_draft_note_text(d, SPW_NOTE_MORE, "cross_entropy: chunked",
                                "the loss is planned for an eighth of the tokens at a time, as torchtitan's; "
                                "transformers' own holds the logits of all of them in fp32, and "
                                "use_liger_kernel: true none (--set cross_entropy=fused)"));
    d->note[before].key = "cross_entropy";

cleanup:
    return status;
}

/* --- Batches and sharded state, of DeepSpeed too --- */

static bool is_auto(spw_draft *d, const char *fact) { return spw_draft_is(d, fact, "auto"); }

spw_status spw_tuning_compose_batch(spw_draft *d) {
    size_t accumulation = 1, global = 0;
    spw_status status = SPW_OK;
    if (!is_auto(d, "@micro_batch")) SPW_TRY(spw_draft_count(d, "@micro_batch", 1, 0, &d->micro_batch));
    if (!is_auto(d, "@accumulation")) SPW_TRY(spw_draft_count(d, "@accumulation", 1, 1, &accumulation));
    if (!is_auto(d, "@global_batch")) SPW_TRY(spw_draft_count(d, "@global_batch", 1, 0, &global));
    if (global > 0) SPW_TRY(spw_draft_put_count(d, "batch.global_batch", global, "@global_batch"));
    if (global == 0 && d->micro_batch > 0)
        SPW_TRY(
            spw_draft_put_count(d, "batch.sequences_per_gpu", d->micro_batch * accumulation, "@micro_batch"));
    if (d->micro_batch == 0 && accumulation > 1)
        SPW_TRY(spw_draft_put_count(d, "batch.micro_batches", accumulation, "@accumulation"));

cleanup:
    return status;
}

spw_status spw_tuning_put_sharded(spw_draft *d, const char *fact, bool keeps, bool on_host) {
    if (spw_draft_key_value(d, "finetune.lora_rank") != NULL && !spw_tuning_is_plain(d)) {
        const spw_status noted = spw_draft_note_fact(
            d, SPW_NOTE_LACKS, fact,
            "adapters beside sharded weights are not modelled; weights are planned whole, which needs more");
        return noted == SPW_OK ? spw_draft_put(d, "optimizer", "distributed", fact) : noted;
    }
    spw_status status = spw_draft_put(d, "optimizer", "sharded", fact);
    if (status == SPW_OK)
        status = spw_draft_put(d, "fsdp2.reshard_after_forward", keeps ? "never" : "always", fact);
    if (status == SPW_OK && on_host) status = spw_draft_put(d, "fsdp2.state", "host", fact);
    return status;
}

spw_status spw_tuning_compose_zero(spw_draft *d, size_t stage, const char *fact) {
    const bool host = spw_draft_is(d, "@optimizer_device", "cpu"),
               weights = spw_draft_is(d, "@parameter_device", "cpu");
    const char *ratio = spw_draft_fact(d, "@optimizer_ratio");
    spw_status status = SPW_OK;
    if (stage == 3) SPW_TRY(spw_tuning_put_sharded(d, fact, false, host && weights));
    if (stage < 3) SPW_TRY(spw_draft_put(d, "optimizer", stage == 0 ? "replicated" : "distributed", fact));
    if (stage == 2)
        SPW_TRY(spw_draft_note_less(d, fact,
                                    "gradients are planned whole, as under stage 1; sharded they need less"));
    if (stage == 3 && spw_draft_fact(d, "@mics") != NULL && !spw_draft_is(d, "@mics", "-1"))
        SPW_TRY(spw_draft_note_more(d, "@mics", "fsdp2.replicas",
                                    "the state is shared by so many GPUs alone, and planned as by all: say "
                                    "--set fsdp2.replicas=GPUs over it"));
    if (stage == 3 && spw_draft_fact(d, "@secondary") != NULL && !spw_draft_is(d, "@secondary", "1"))
        SPW_TRY(spw_draft_note_more(d, "@secondary", NULL,
                                    "a second copy of the weights, shared by so many GPUs, is not counted"));
    if (host && stage > 0 && stage < 3)
        SPW_TRY(spw_draft_put(d, "optimizer_on_host", ratio != NULL ? ratio : "1", "@optimizer_device"));
    if (stage == 3 && host != weights)
        SPW_TRY(spw_draft_note_less(
            d, host ? "@optimizer_device" : "@parameter_device",
            "a part of the state on the host is not modelled under stage 3; all is planned on the GPU"));

cleanup:
    return status;
}
