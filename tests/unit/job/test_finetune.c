/* Parameters of adapters by pencil, and names that are near. */
#include "base/memory.h"
#include "base/nearest.h"
#include "sim/job/recipe/finetune.h"
#include "tests/unit/check.h"

#include <string.h>

/* Qwen3-30B-A3B: H 2048, 32 heads and 4 of keys of 128, 128 experts of 768. PEFT: gate and up are one parameter [1536, 2048], with an
 * adapter of twice the rank: 32 (2048 + 1536) + 16 (768 + 2048) an expert, 16 (2048 + 128) of the router. Megatron-Core's fc1 has the rank
 * itself. A run of two such layers had 41,521,152 of them, with attention's 278,528 a layer, whose q, k and v have an A each. */
static void check_experts(spw_model *m) {
    spw_finetune f = {.frozen = SPW_FROZEN_BASE, .lora_rank = 16, .lora_targets = SPW_LORA_ALL};
    CHECK_OK(spw_model_read("qwen3-30b-a3b", NULL, m));
    CHECK(spw_expert_adapter(m, &f) == 16.0 * (2048 + 1536) + 16.0 * (768 + 2048));
    f.wraps_experts = true;
    CHECK(spw_expert_adapter(m, &f) == 32.0 * (2048 + 1536) + 16.0 * (768 + 2048));
    CHECK(2.0 * (128.0 * spw_expert_adapter(m, &f) + 278528.0 + 16.0 * (2048 + 128)) == 41521152.0);
    const double all = spw_layer_adapter(m, &f);
    f.lora_targets = SPW_LORA_BOTH;
    CHECK(all - spw_layer_adapter(m, &f) == 16.0 * (2048 + 128));
    f.lora_targets = SPW_LORA_LINEAR; /* it has no dense layers and no shared experts */
    const double linear = spw_layer_adapter(m, &f);
    CHECK(spw_expert_adapter(m, &f) == 0.0);
    f.lora_targets = SPW_LORA_ATTENTION;
    CHECK(linear == spw_layer_adapter(m, &f) && linear > 0.0);
    f.lora_targets = SPW_LORA_EXPERTS;
    CHECK(spw_layer_adapter(m, &f) == 0.0);
}

/* DeepSeek-V2-Lite: 1 dense layer of 10944 and 26 with shared experts of 2816; gate, up and down have an A and a B each. */
static void check_linears(spw_model *m) {
    spw_finetune f = {.frozen = SPW_FROZEN_BASE, .lora_rank = 8, .lora_targets = SPW_LORA_ATTENTION};
    CHECK_OK(spw_model_read("deepseek-v2-lite", NULL, m));
    const double attention = spw_layer_adapter(m, &f);
    f.lora_targets = SPW_LORA_LINEAR;
    const double more = 27.0 * (spw_layer_adapter(m, &f) - attention),
                 pencil = 8.0 * 3.0 * ((2048 + 10944) + 26.0 * (2048 + 2816));
    CHECK(more > pencil * (1.0 - 1e-12) && more < pencil * (1.0 + 1e-12));
}

static void check_names(void) {
    static const struct {
        const char *said, *meant; /* NULL: none is near */
    } names[] = {{"deepseek2-lite", "deepseek-v2-lite"},
                 {"DeepSeek_V2-lite", "deepseek-v2-lite"},
                 {"deepseek2", "deepseek-v2"},
                 {"Qwen/Qwen3-30B-A3b-FT", "qwen3-30b-a3b"},
                 {"mixtral8x7b", "mixtral-8x7b"},
                 {"olmoe1b7b", "olmoe-1b-7b"},
                 {"deepseek3-671", "deepseek-v3"},
                 {"gptoss20b", "gpt-oss-20b"},
                 {"my-own-model", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *found = spw_model_nearest(names[i].said);
        CHECK(names[i].meant == NULL ? found == NULL : found != NULL && strcmp(found, names[i].meant) == 0);
    }
    spw_nearest version = {.text = "deepseek2-lite"};
    spw_nearest_offer_name(&version, "deepseek-ai/DeepSeek-V2-Lite");
    CHECK(version.best != NULL && version.distance == 0);
    spw_nearest plain = {.text = "remat_full"};
    spw_nearest_offer(&plain, "remat-full"); /* of words that are no names every letter counts */
    CHECK(plain.distance == 1);
}

int main(void) {
    spw_model *m = NULL;
    CHECK_OK(SPW_ALLOC(1, &m));
    check_experts(m);
    check_linears(m);
    check_names();
    spw_free(m);
    return check_done();
}
