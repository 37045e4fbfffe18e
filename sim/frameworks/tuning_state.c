#include "sim/frameworks/tuning.h"

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
