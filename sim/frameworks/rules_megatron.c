/* NVIDIA/Megatron-LM d98e8a64: megatron/training/arguments.py (validate_args), megatron/core/transformer/transformer_config.py. */
#include "sim/frameworks/rules.h"

#include <stdio.h>
#include <string.h>

/* num_layers_per_virtual_pipeline_stage: blocks of a stage are the layers of a stage over it. */
static spw_status compose_split(spw_draft *d) {
    size_t layers = 0, per_virtual = 0, tensor = 1, pipeline = 1, context = 1;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@layers", 0, 0, &layers));
    SPW_TRY(spw_draft_count(d, "@layers_per_virtual", 1, 0, &per_virtual));
    SPW_TRY(spw_draft_count(d, "parallel.tensor", 1, 1, &tensor));
    SPW_TRY(spw_draft_count(d, "parallel.pipeline", 1, 1, &pipeline));
    const bool embedding = spw_draft_is(d, "parallel.account_for_embedding_in_pipeline_split", "true"),
               loss = spw_draft_is(d, "parallel.account_for_loss_in_pipeline_split", "true");
    const size_t counted = layers + embedding + loss;
    if (per_virtual > 0 && pipeline > 1 && layers > 0 && counted % (pipeline * per_virtual) == 0)
        SPW_TRY(spw_draft_put_count(d, "parallel.virtual_stages", counted / pipeline / per_virtual,
                                    "@layers_per_virtual"));
    else if (per_virtual > 0)
        SPW_TRY(
            spw_draft_note_more(d, "@layers_per_virtual", "parallel.virtual_stages",
                                "layers and stages beside it are not said, or it does not divide them; one "
                                "block a stage is planned, which keeps fewer micro-batches"));
    if (tensor > 1 && !spw_draft_on(d, "@sequence_parallel"))
        SPW_TRY(spw_draft_put(d, "parallel.sequence_parallel", "false", "@sequence_parallel"));
    (void)spw_draft_fact(d, "@sequence_parallel");
    (void)spw_draft_fact(d, "@data_parallel");
    SPW_TRY(spw_draft_count(d, "parallel.context", 1, 1, &context));
    if (context > 1 && spw_draft_fact(d, "@context_exchange") != NULL &&
        !spw_draft_is(d, "@context_exchange", "p2p"))
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@context_exchange",
            "how the ranks of a sequence exchange keys is not told apart; p2p is planned"));
    (void)spw_draft_fact(d, "@context_exchange");

cleanup:
    return status;
}

static spw_status compose_batch(spw_draft *d) {
    const char *length = spw_draft_fact(d, "@dataset_length");
    spw_status status = spw_draft_count(d, "@micro_batch", 1, 0, &d->micro_batch);
    if (status == SPW_OK && length != NULL && spw_draft_key_value(d, "batch.sequence_length") == NULL)
        status = spw_draft_put(d, "batch.sequence_length", length, "@dataset_length");
    return status;
}

/* What Bridge's mixed_precision means, a name in place of its keys: NVIDIA-NeMo/Megatron-Bridge 05097809
 * src/megatron/bridge/training/mixed_precision.py. Its gradients are reduced in fp32 beside bf16 and in fp16 beside fp16. */
typedef struct mixed_recipe {
    const char *name, *fp8; /* NULL: no fp8 */
    bool gathers;           /* fp8_param_gather */
    bool ends;              /* first_last_layers_bf16 */
} mixed_recipe;
static const mixed_recipe mixed_recipes[] = {
    {"bf16_mixed", NULL, false, false},
    {"fp16_mixed", NULL, false, false},
    {"bf16_with_fp8_delayed_scaling_mixed", "delayed", true, false},
    {"fp16_with_fp8_delayed_scaling_mixed", "delayed", true, false},
    {"bf16_with_mxfp8_mixed", "mxfp8", true, false},
    {"fp16_with_mxfp8_mixed", "mxfp8", true, false},
    {"bf16_with_fp8_current_scaling_mixed", "tensorwise", true, true},
    {"fp16_with_fp8_current_scaling_mixed", "tensorwise", true, true},
    {"nemotron_h_bf16_with_fp8_current_scaling_mixed", "tensorwise", true, true},
    {"nanov2_bf16_with_fp8_current_scaling_mixed", "blockwise", true, true},
    {"bf16_with_fp8_subchannel_scaling_mixed", "blockwise", false, false},
    {"fp16_with_fp8_subchannel_scaling_mixed", "blockwise", false, false}};

/* NULL: the file names none that is known. Hyphens may stand for the lines. */
static const mixed_recipe *mixed_recipe_of(spw_draft *d) {
    const char *said = spw_draft_fact(d, "@mixed_precision");
    for (size_t i = 0; said != NULL && i < sizeof mixed_recipes / sizeof *mixed_recipes; i++) {
        const char *name = mixed_recipes[i].name, *at = said;
        while (*name != '\0' && (*at == *name || (*at == '-' && *name == '_'))) at++, name++;
        if (*name == '\0' && *at == '\0') return &mixed_recipes[i];
    }
    return NULL;
}

static spw_status note_mixed(spw_draft *d, const mixed_recipe *mixed) {
    if (spw_draft_fact(d, "@mixed_precision") == NULL) return SPW_OK;
    if (mixed == NULL)
        return spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@mixed_precision",
            "no recipe of formats that is known, such as bf16_mixed or bf16_with_mxfp8_mixed");
    return mixed->ends
               ? spw_draft_note_more(d, "@mixed_precision", NULL,
                                     "the first and the last layers stay in bf16; all are counted in fp8")
               : SPW_OK;
}

/* --bf16 keeps fp32 gradients unless told otherwise; moments and masters are fp32 unless the optimizer is precision-aware. */
static spw_status compose_precision(spw_draft *d) {
    const mixed_recipe *mixed_as = mixed_recipe_of(d);
    const bool named16 = mixed_as != NULL && strncmp(mixed_as->name, "fp16", 4) == 0,
               bf16 = spw_draft_on(d, "@bf16") || (mixed_as != NULL && !named16),
               fp16 = spw_draft_on(d, "@fp16") || named16, aware = spw_draft_on(d, "@precision_aware");
    const bool reduced = mixed_as != NULL ? named16 : spw_draft_is(d, "@gradients_fp32", "false");
    const char *gradients = reduced ? "bf16" : "fp32", *main_gradients = spw_draft_fact(d, "@main_gradients"),
               *first = spw_draft_fact(d, "@first_moment"), *second = spw_draft_fact(d, "@second_moment"),
               *master = spw_draft_fact(d, "@main_parameters");
    spw_status status = SPW_OK;
    (void)spw_draft_fact(d, "@gradients_fp32"); /* which a name in mixed_precision says, too */
    SPW_TRY(note_mixed(d, mixed_as));
    if (!bf16 && !fp16) {
        const size_t before = d->notes;
        SPW_TRY(
            spw_draft_note_text(d, SPW_NOTE_MORE, "precision: framework",
                                d->framework->no_precision != NULL
                                    ? d->framework->no_precision
                                    : "the file says neither bf16 nor fp16; Megatron-LM alone would train in "
                                      "fp32, which needs more: --precision fp32"));
        if (d->notes > before) d->note[before].key = "precision";
        return SPW_OK;
    }
    if (aware && main_gradients != NULL && strcmp(main_gradients, "bf16") == 0) gradients = "bf16";
    SPW_TRY(spw_draft_put(d, "precision.weights", bf16 ? "bf16" : "fp16", bf16 ? "@bf16" : "@fp16"));
    SPW_TRY(spw_draft_put(d, "precision.activations", bf16 ? "bf16" : "fp16", bf16 ? "@bf16" : "@fp16"));
    SPW_TRY(
        spw_draft_put(d, "precision.gradients", gradients, aware ? "@main_gradients" : "@gradients_fp32"));
    const bool mixed = aware && strcmp(first != NULL ? first : "fp32", second != NULL ? second : "fp32") != 0;
    if (mixed) /* both are counted alike */
        SPW_TRY(spw_draft_put(d, "precision.optimizer", "fp32", "@second_moment"));
    if (mixed)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, second != NULL ? "@second_moment" : "@first_moment",
                                    "both moments are counted in fp32, the larger of their formats"));
    SPW_TRY(
        spw_draft_put(d, "precision.optimizer", aware && first != NULL ? first : "fp32", "@first_moment"));
    if (aware && master != NULL && strcmp(master, "fp32") != 0)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@main_parameters",
                                    "main parameters are counted in fp32"));
    SPW_TRY(spw_draft_put(d, "precision.master", "fp32", NULL));

cleanup:
    return status;
}

/* gathers: the fact that says fp8_param_gather; NULL: it is off. */
static spw_status put_recipe(spw_draft *d, const char *recipe, const char *from, const char *gathers) {
    const spw_status status = spw_draft_put(d, "precision.recipe", recipe, from);
    return status == SPW_OK && gathers != NULL
               ? spw_draft_put(d, "precision.fp8_param_gather", "true", gathers)
               : status;
}

/* As --fp4-recipe, and of Primus its fp4_recipe: nvfp4 where nobody says another. */
static spw_status compose_fp4(spw_draft *d, const char **recipe) {
    const char *said = spw_draft_fact(d, "@fp4_recipe");
    *recipe = said != NULL ? said : "nvfp4";
    return put_recipe(d, *recipe, said != NULL ? "@fp4_recipe" : "@fp4",
                      spw_draft_on(d, "@fp4_param_gather") ? "@fp4_param_gather" : NULL);
}

static spw_status compose_recipe(spw_draft *d, const char **recipe) {
    const char *format = spw_draft_fact(d, "@fp8"), *said = spw_draft_fact(d, "@fp8_recipe");
    const bool gather = spw_draft_on(d, "@fp8_param_gather");
    const mixed_recipe *mixed = mixed_recipe_of(d);
    *recipe = NULL;
    if (mixed != NULL && mixed->fp8 != NULL) {
        *recipe = mixed->fp8;
        return put_recipe(d, *recipe, "@mixed_precision", mixed->gathers ? "@mixed_precision" : NULL);
    }
    const char *zoo = spw_draft_fact(d, "@zoo_formats"); /* PR=fp8 of ModelZoo's scripts is block scaling */
    if (zoo != NULL && strcmp(zoo, "bf16") != 0) {
        *recipe = strcmp(zoo, "mxfp8") == 0 ? "mxfp8" : "blockwise";
        return spw_draft_put(d, "precision.recipe", *recipe, "@zoo_formats");
    }
    const bool fp8 = format != NULL && strcmp(format, "false") != 0,
               fp4 = spw_draft_fact(d, "@fp4") != NULL && !spw_draft_is(d, "@fp4", "false");
    if (fp8 && fp4)
        return spw_fail(SPW_ECONFIG,
                        "fp4 and fp8 are both asked for, which Megatron-Core refuses; leave out one of "
                        "--fp4-format and --fp8-format");
    if (fp4) return compose_fp4(d, recipe);
    if (!fp8) return SPW_OK;
    *recipe = said != NULL ? said : "delayed";
    return put_recipe(d, *recipe, said != NULL ? "@fp8_recipe" : "@fp8", gather ? "@fp8_param_gather" : NULL);
}

static spw_status compose_optimizer(spw_draft *d) {
    const char *sharding = spw_draft_fact(d, "@sharding"),
               *fraction = spw_draft_fact(d, "@optimizer_fraction");
    const bool fsdp = spw_draft_on(d, "@fsdp"),
               whole = sharding == NULL || strcmp(sharding, "optim_grads_params") == 0;
    const bool distributed = spw_draft_on(d, "@distributed");
    spw_status status = SPW_OK;
    const bool none = fsdp && sharding != NULL && strcmp(sharding, "no_shard") == 0;
    if (fsdp && whole) {
        SPW_TRY(spw_draft_put(d, "optimizer", "sharded", "@fsdp"));
        SPW_TRY(spw_draft_put(d, "fsdp2.reshard_after_forward", "always", "@fsdp"));
    } else {
        SPW_TRY(spw_draft_put(d, "optimizer", !none && (distributed || fsdp) ? "distributed" : "replicated",
                              none ? "@sharding" : "@distributed"));
    }
    if (!fsdp && spw_draft_fact(d, "@distributed") == NULL)
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "optimizer: replicated",
                                    "the file has no use_distributed_optimizer"));
    if (fsdp && !whole && !none)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@sharding", "planned as the distributed optimizer"));
    if (spw_draft_on(d, "@optimizer_on_host"))
        SPW_TRY(
            spw_draft_put(d, "optimizer_on_host", fraction != NULL ? fraction : "1", "@optimizer_on_host"));
    if (spw_draft_is(d, "@muon_packed", "false"))
        SPW_TRY(spw_draft_put(d, "muon_layout", "ping_pong", "@muon_packed"));

cleanup:
    return status;
}

/* On unless it is said (Megatron-Core from 0.13, before always), where TransformerEngine's Adam has the master weights: optimizer_config.py
 * use_precision_aware_optimizer_no_fp8_or_ds_fp8. On a host they are whole. */
static spw_status compose_remainders(spw_draft *d, const char *recipe) {
    const char *master = spw_draft_fact(d, "@main_parameters"),
               *optimizer = spw_draft_key_value(d, "optimizer"),
               *algorithm = spw_draft_key_value(d, "optimizer_algorithm");
    if (!spw_draft_on(d, "@precision_aware") || !spw_draft_on(d, "@bf16") ||
        spw_draft_is(d, "@remainders", "false") || spw_draft_on(d, "@optimizer_on_host") ||
        (master != NULL && strcmp(master, "fp32") != 0) ||
        (recipe != NULL && strcmp(recipe, "delayed") != 0) || optimizer == NULL ||
        strcmp(optimizer, "distributed") != 0 || (algorithm != NULL && strcmp(algorithm, "adam") != 0))
        return SPW_OK;
    return spw_draft_put(d, "store_param_remainders", "true", "@precision_aware");
}

#define OWN "of Primus' own layers it is not told apart what hides"

/* Megatron-LM itself refuses gathers without sums, and sharded weights have collectives of their own. */
static spw_status compose_collectives(spw_draft *d) {
    const bool sums = spw_draft_on(d, "@overlap_gradients"), gathers = spw_draft_on(d, "@overlap_gathers"),
               sharded = strcmp(spw_draft_key_value(d, "optimizer"), "sharded") == 0,
               distributed = strcmp(spw_draft_key_value(d, "optimizer"), "distributed") == 0;
    const char *schemes = spw_draft_key_value(d, "schemes");
    spw_status status = SPW_OK;
    if (schemes != NULL && strncmp(schemes + strspn(schemes, "'"), "primus", strlen("primus")) == 0) {
        if (sums) SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@overlap_gradients", OWN));
        if (gathers) SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@overlap_gathers", OWN));
        return status;
    }
    if (sums && sharded)
        return spw_draft_note_fact(d, SPW_NOTE_LACKS, "@overlap_gradients",
                                   "of sharded weights it is not told apart what hides");
    if (sums) SPW_TRY(spw_draft_put(d, "overlap_grad_reduce", "true", "@overlap_gradients"));
    if (sums && gathers && distributed)
        SPW_TRY(spw_draft_put(d, "overlap_param_gather", "true", "@overlap_gathers"));
    else if (gathers)
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@overlap_gathers",
            "without the distributed optimizer and overlap_grad_reduce nothing is gathered"));

cleanup:
    return status;
}

/* Modules of the list that this program knows, joined by '+'. The others are noted: without them more is kept. */
static spw_status known_modules(spw_draft *d, const char *list, const char *known, const char *fact,
                                const char *why, char *out, size_t size) {
    spw_status status = SPW_OK;
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = list; *at != '\0' && status == SPW_OK;) {
        char word[40], wanted[44];
        const size_t length = strcspn(at, ", ");
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        (void)snprintf(wanted, sizeof wanted, " %s ", word);
        if (strstr(known, wanted) != NULL && used + length + 2 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? "+" : "", word);
        else if (length > 0)
            status = spw_draft_note_text_less(d, word, why);
        at += length;
        at += strspn(at, ", ");
    }
    (void)fact;
    return status;
}

static spw_status compose_recompute(spw_draft *d) {
    static const char known[] = " mhc core_attn moe_act layernorm mla_up_proj mlp moe shared_experts ";
    const char *what = spw_draft_fact(d, "@recompute"), *method = spw_draft_fact(d, "@recompute_method"),
               *modules = spw_draft_fact(d, "@recompute_modules");
    char list[SPW_DRAFT_VALUE];
    const bool older = spw_draft_on(d, "@recompute_activations"), moe = spw_draft_on(d, "@recompute_moe");
    size_t layers = 0;
    spw_status status = spw_draft_count(d, "@recompute_layers", 0, 0, &layers);
    if (status != SPW_OK) return status;
    if (what != NULL && strcmp(what, "full") == 0) {
        if (spw_draft_fact(d, "@recompute_ids") != NULL)
            status = spw_draft_note_more(d, "@recompute_ids", "remat",
                                         "some layers alone are recomputed; planned as all of them (at most: "
                                         "--remat none)");
        else if (method != NULL && strcmp(method, "block") == 0)
            status =
                spw_draft_note_more(d, "@recompute_layers", "remat",
                                    "the first layers of a stage alone are recomputed; planned as all of "
                                    "them (at most: --remat none)");
        else if (layers > 1)
            status = spw_draft_note_more(d, "@recompute_layers", "remat",
                                         "groups of layers are recomputed at once; planned as one by one");
        return status == SPW_OK ? spw_draft_put(d, "remat", "full", "@recompute") : status;
    }
    if (older || (what != NULL && strcmp(what, "selective") == 0)) {
        status = known_modules(d, modules != NULL ? modules : "core_attn", known, "@recompute_modules",
                               "a module to recompute that is not modelled", list, sizeof list);
        if (status == SPW_OK && strcmp(list, "core_attn") == 0)
            (void)snprintf(list, sizeof list, "selective");
        return status == SPW_OK ? spw_draft_put(d, "remat", list[0] != '\0' ? list : "none", "@recompute")
                                : status;
    }
    return spw_draft_put(d, "remat", moe ? "moe" : "none", moe ? "@recompute_moe" : "@recompute");
}

/* Do queries, keys and values wait in bf16, as a list of them has it? Keys of the job that were put before say so. */
static bool attention_waits(const spw_draft *d) {
    const char *recipe = spw_draft_key_value(d, "precision.recipe"), *remat = spw_draft_key_value(d, "remat"),
               *context = spw_draft_key_value(d, "parallel.context");
    if (recipe != NULL && strcmp(recipe, "none") != 0) return false;
    if (context != NULL && strcmp(context, "1") != 0) return false;
    return remat == NULL || (strcmp(remat, "full") != 0 && strcmp(remat, "selective") != 0 &&
                             strstr(remat, "core_attn") == NULL && strstr(remat, "mla_up_proj") == NULL);
}

static spw_status compose_offload(spw_draft *d) {
    const char *modules = spw_draft_fact(d, "@offload_modules");
    char list[SPW_DRAFT_VALUE];
    if (!spw_draft_on(d, "@offload") || modules == NULL) return SPW_OK;
    const char *known =
        attention_waits(d) ? " core_attn attn_proj expert_fc1 moe_act " : " expert_fc1 moe_act ";
    spw_status status = known_modules(d, modules, known, "@offload_modules",
                                      "a module to offload that is not modelled", list, sizeof list);
    for (char *c = list; *c != '\0'; c++) *c = (char)(*c == '+' ? ',' : *c);
    if (status == SPW_OK && list[0] != '\0')
        status = spw_draft_put(d, "offload_modules", list, "@offload_modules");
    return status;
}

/* The loss without fusion is Megatron-Core's own; attention without TransformerEngine holds the scores. */
static spw_status compose_kernels(spw_draft *d) {
    const char *kernel = spw_draft_fact(d, "@loss_kernel");
    const bool te = kernel != NULL && strcmp(kernel, "te") == 0;
    const char *loss = !spw_draft_on(d, "@loss_fusion") ? "unfused" : te ? "te_in_place" : "native";
    spw_status status = spw_draft_put(d, "cross_entropy", loss, "@loss_fusion");
    const bool flash = spw_draft_on(d, "@flash"), local = spw_draft_is(d, "@implementation", "local"),
               scores = spw_draft_is(d, "@attention_backend", "unfused") ||
                        spw_draft_is(d, "@attention_backend", "local");
    if (status == SPW_OK && ((local && !flash) || scores))
        status = spw_draft_put(d, "attention", "unfused", scores ? "@attention_backend" : "@implementation");
    return status;
}

/* PYTORCH_CUDA_ALLOC_CONF. */
static spw_status compose_allocator(spw_draft *d) {
    static const char *const keys[] = {"expandable_segments", "max_split_size_mb",
                                       "garbage_collection_threshold", "roundup_power2_divisions"};
    const char *conf = spw_draft_fact(d, "@allocator");
    char key[SPW_DRAFT_KEY], value[64];
    spw_status status = SPW_OK;
    for (size_t i = 0; conf != NULL && i < sizeof keys / sizeof *keys; i++) {
        const char *at = strstr(conf, keys[i]);
        if (at == NULL || at[strlen(keys[i])] != ':') continue;
        at += strlen(keys[i]) + 1;
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(at, ","), at);
        if (value[0] == 'T' || value[0] == 'F') value[0] = (char)(value[0] == 'T' ? 't' : 'f');
        (void)snprintf(key, sizeof key, "allocator.%s", keys[i]);
        status = spw_draft_put(d, key, value, "@allocator");
        if (status != SPW_OK) return status;
    }
    return status;
}

spw_status spw_compose_megatron(spw_draft *d) {
    const char *recipe = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_compose_gpus(d));
    SPW_TRY(compose_split(d));
    SPW_TRY(compose_batch(d));
    SPW_TRY(compose_precision(d));
    SPW_TRY(compose_recipe(d, &recipe));
    SPW_TRY(compose_optimizer(d));
    SPW_TRY(compose_remainders(d, recipe));
    SPW_TRY(compose_recompute(d));
    SPW_TRY(compose_offload(d));
    SPW_TRY(compose_kernels(d));
    SPW_TRY(compose_allocator(d));
    SPW_TRY(spw_compose_megatron_scheme(d, recipe));
    SPW_TRY(compose_collectives(d));
    SPW_TRY(spw_compose_model(d));

cleanup:
    return status;
}
