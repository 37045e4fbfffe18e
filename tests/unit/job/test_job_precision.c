/* Precision of a job: what it does not say, of a frozen base, and the other set of formats. */
#include "sim/job/job.h"
#include "sim/job/recipe/precision.h"

#include "tests/unit/check.h"
#include "tests/unit/job/job_text.h"

#include <string.h>

/* What a job does not say of its precision is the framework's own, and what it says stays, but what must follow sharded weights in
 * fp32. Sets have one word. Bytes by hand from base.yml of MaxText, configs.py of torchtitan and arguments.py of Megatron-LM. */
static void test_unsaid_precision(void) {
    static const struct {
        const char *more;
        size_t weights, gradients, optimizer, second;
        unsigned assumed, followed, fp16;
    } cases[] = {
        {"", 4, 4, 4, 0, 7, 0, 0},
        {"optimizer: sharded\nprecision: {gradients: auto}\n", 4, 4, 4, 0, 7, 0, 0},
        {"precision: {weights: bf16}\n", 2, 2, 2, 0, 0, 0, 0},
        {"precision: {weights: fp32}\n", 4, 4, 4, 0, 6, 0, 0},
        {"precision: {weights: bf16, optimizer: fp32}\n", 2, 2, 4, 0, 0, 0, 0},
        {"precision: {weights: fp8}\n", 1, 2, 2, 0, 0, 0, 0},
        {"precision: {gradients: bf16, optimizer: bf16}\n", 4, 4, 2, 4, 1, 6, 0},
        {"precision: {weights: fp32, gradients: fp32, optimizer: bf16}\n", 4, 4, 2, 4, 0, 4, 0},
        {"model_part: expert_layers\nparallel: {expert: 8, fsdp: 1}\ncluster: h200-1x8\n", 2, 2, 2, 0, 0, 0,
         0},
        {"optimizer: distributed\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: replicated\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: distributed\nprecision: {gradients: bf16}\n", 2, 2, 4, 0, 4, 0, 0},
        {"optimizer: distributed\nprecision: {optimizer: bf16}\n", 2, 4, 2, 0, 2, 0, 0},
        {"optimizer: distributed\nprecision: {gradients: fp32, optimizer: fp32}\n", 2, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: {weights: fp16}\n", 2, 2, 4, 0, 4, 0, 3},
        {"optimizer: distributed\nprecision: {weights: fp32}\n", 4, 4, 4, 0, 6, 0, 0},
        {"precision: bf16\n", 2, 2, 2, 0, 0, 0, 0},
        {"precision: framework\n", 4, 4, 4, 0, 7, 0, 0},
        {"precision: mixed\n", 4, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: framework\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: distributed\nprecision: mixed\n", 2, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: bf16\n", 2, 2, 2, 0, 0, 0, 0}};
    static spw_job job;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024], said[SPW_PRECISION_TEXT];
        const bool bare = strstr(cases[i].more, "model_part") != NULL;
        (void)snprintf(text, sizeof text, "%s%s",
                       bare ? "model: deepseek-v3\nbatch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                            : JOB,
                       cases[i].more);
        CHECK_OK(parse(text, &job));
        const spw_precision *p = &job.precision;
        CHECK(p->weights == cases[i].weights && p->gradients == cases[i].gradients &&
              p->optimizer == cases[i].optimizer && p->activations == 2);
        CHECK(p->assumed == cases[i].assumed && p->fp16 == cases[i].fp16);
        CHECK(p->second == cases[i].second && p->followed == cases[i].followed);
        CHECK(spw_precision_moments(p) == p->optimizer + (p->second > 0 ? p->second : p->optimizer));
        CHECK(spw_precision_assumed(&job, said) == ((cases[i].assumed | cases[i].followed) != 0));
        if ((cases[i].assumed | cases[i].followed) == 0) continue;
        const unsigned told = cases[i].assumed | cases[i].followed;
        CHECK((strstr(said, "gradients") != NULL) == ((told & 2U) != 0));
        CHECK((strstr(said, "moment") != NULL) == ((told & 4U) != 0));
    }
    CHECK_OK(parse(JOB "precision: fp32\n", &job));
    CHECK(job.precision.activations == 4 && spw_precision_gathered(&job) == 4);
    CHECK_OK(parse(JOB, &job));
    CHECK(spw_precision_gathered(&job) == 2 && spw_precision_scattered(&job) == 2);
    CHECK_OK(parse(JOB "fsdp2: {gathered: same}\n", &job));
    CHECK(spw_precision_gathered(&job) == 4 && spw_precision_scattered(&job) == 4);
    CHECK_OK(parse(JOB "precision: {weights: bf16, gradients: fp32}\n", &job));
    CHECK(spw_precision_gathered(&job) == 2 && spw_precision_scattered(&job) == 4);
}

/* A base that is frozen stays as it was loaded, where the trainer is one that models are tuned with; adapters are in fp32. */
static void test_precision_of_a_frozen_base(void) {
#define TUNED \
    "model: mixtral-8x7b\ncluster: h100:8x1\nparallel: {expert: 1, fsdp: 8}\noptimizer: sharded\n" \
    "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
#define LORA "finetune: {frozen: base, lora_rank: 16, lora_targets: attention}\n"
    static const struct {
        const char *text;
        size_t weights, gradients, optimizer;
    } cases[] = {{TUNED LORA "schemes: [transformers]\n", 2, 4, 4},
                 {TUNED "schemes: [transformers]\n", 4, 4, 4},
                 {TUNED "finetune: {frozen: experts}\nschemes: [transformers]\n", 4, 4, 4},
                 {TUNED LORA "schemes: [torchtitan]\n", 4, 4, 4},
                 {TUNED LORA "schemes: [transformers]\nprecision: {weights: fp32}\n", 4, 4, 4},
                 {TUNED LORA "schemes: [transformers]\nprecision: bf16\n", 2, 2, 2}};
#undef LORA
#undef TUNED
    static spw_job job;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(parse(cases[i].text, &job));
        const spw_precision *p = &job.precision;
        CHECK(p->weights == cases[i].weights && p->gradients == cases[i].gradients &&
              p->optimizer == cases[i].optimizer);
    }
}

/* The other set of a job: of state in fp32 bf16, of bf16 throughout what the framework keeps; of bare layers none. */
static void test_other_precision(void) {
    static const struct {
        const char *more, *name;
        size_t weights, gradients, optimizer;
    } cases[] = {{"", "bf16", 2, 2, 2},
                 {"precision: bf16\n", "mixed", 4, 4, 4},
                 {"optimizer: distributed\n", "bf16", 2, 2, 2},
                 {"optimizer: distributed\nprecision: bf16\n", "framework", 2, 4, 4}};
    static spw_job job, other;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        (void)snprintf(text, sizeof text, "%s%s", JOB, cases[i].more);
        CHECK_OK(parse(text, &job));
        const char *name = spw_precision_other(&job, &other);
        CHECK(name != NULL && strcmp(name, cases[i].name) == 0);
        CHECK(other.precision.weights == cases[i].weights &&
              other.precision.gradients == cases[i].gradients &&
              other.precision.optimizer == cases[i].optimizer);
    }
    CHECK_OK(parse(JOB "precision: fp32\n", &job));
    CHECK(spw_precision_other(&job, &other) == NULL);
}

int main(void) {
    test_unsaid_precision();
    test_precision_of_a_frozen_base();
    test_other_precision();
    return check_done();
}
