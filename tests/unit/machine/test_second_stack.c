/* Which stacks a job is planned with when there is a second one of each kind: of a GPU x900 that nobody sells, younger than all
 * others and last by name (second_stack.cmake). The answers for other GPUs are those without it. */
#include "sim/job/job.h"
#include "sim/job/software.h"

#include "tests/unit/check.h"

#include <string.h>

static spw_software newest(const char *cluster, bool whole) {
    static spw_job job;
    static spw_software found;
    memset(&job, 0, sizeof job);
    job.part = whole ? SPW_PART_WHOLE : SPW_PART_EXPERT_LAYERS;
    CHECK_OK(spw_cluster_read(cluster, NULL, &job.cluster));
    CHECK_OK(spw_software_newest(&job, true, true, &found));
    CHECK_OK(spw_software_measure(&job.cluster, &found));
    return found;
}

/* The last of these is the only one that the second stacks may have. */
static void test_choice(void) {
    static const struct {
        bool whole; /* models, or bare expert layers */
        const char *cluster, *names, *note;
    } cases[] = {
        {true, "h200-8x8", "xla-cuda-0.10.2,megatron-te-h100-2026-11",
         "megatron-te-h100-2026-11 is of h100-8x8, another GPU of the same generation: h200-8x8 has 1 times "
         "its "
         "bf16 peak and 1.4"},
        {true, "h200:8x32", "xla-cuda-0.10.2,megatron-te-h100-2026-11", "of h100-8x8"},
        {true, "h100-8x8", "xla-cuda-0.10.2,megatron-te-h100-2026-11", ""},
        {true, "h100:4x1", "xla-cuda-0.10.2,megatron-te-h100-few-2026-11", ""},
        {true, "h100:2x4", "xla-cuda-0.10.2,megatron-te-h100-2026-11", ""},
        {true, "h100:8x1", "xla-cuda-0.10.2,megatron-te-h100-2026-11", ""},
        {true, "h200:2x1", "xla-cuda-0.10.2,megatron-te-h100-few-2026-11", "of h100-8x8"},
        {true, "b200:4x1", "xla-cuda-0.10.2,megatron-te-gb200-2026-11", "of gb200-8x72"},
        {false, "h200:4x1", "xla-cuda-0.10.2,megatron-h200-2026-11", ""},
        {true, "b200-8x8", "xla-cuda-0.10.2,megatron-te-gb200-2026-11",
         "megatron-te-gb200-2026-11 is of gb200-8x72, another GPU of the same generation"},
        {true, "gb200-16x72", "xla-cuda-0.10.2,megatron-te-gb200-2026-11", ""},
        {true, "mi355x-8x8", "maxtext-rocm-2026-05,megatron-primus-mi355x-2026-11", ""},
        {true, "mi300x-8x8", "maxtext-rocm-2026-05,megatron-primus-mi355x-2026-11",
         "maxtext-rocm-2026-05 is of mi355x-8x8, a GPU of the same vendor"},
        {false, "h200-8x8", "xla-cuda-0.10.2,megatron-h200-2026-11", ""},
        {false, "h200-rail-128x8", "xla-cuda-0.10.2,megatron-h200-2026-11", ""},
        {false, "h100-8x8", "xla-cuda-0.10.2,megatron-h200-2026-11",
         "megatron-h200-2026-11 is of h200-8x8, another GPU of the same generation: h100-8x8 has 1 times its "
         "bf16 peak and 0.7"},
        {false, "b200-8x8", "xla-cuda-0.10.2,megatron-h200-2026-11",
         "megatron-h200-2026-11 is of h200-8x8, a GPU of the same vendor: b200-8x8 has 2.3 times its bf16 "
         "peak "
         "and 1.6 times its memory rate"},
        {false, "mi355x-8x8", "maxtext-rocm-2026-05,megatron-h200-2026-11",
         "megatron-h200-2026-11 is of h200-8x8, a GPU of another or an unnamed vendor"},
        {false, "x900-8x8", "xla-x900-2027-06,megatron-x900-2027-06", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_software s = newest(cases[i].cluster, cases[i].whole);
        const bool named = strcmp(s.names, cases[i].names) == 0,
                   noted = cases[i].note[0] == '\0' ? s.distance[0] == '\0'
                                                    : strstr(s.distance, cases[i].note) != NULL;
        CHECK(named);
        CHECK(noted);
        if (!named || !noted) fprintf(stderr, "  %s: %s; %s\n", cases[i].cluster, s.names, s.distance);
    }
}

/* The x900's share of dense products is no answer for AMD's GPUs either. */
static void test_dense_share(void) {
    static spw_megatron_coefficients scaled;
    spw_cluster cluster;
    const spw_software s = newest("mi355x-8x8", false);
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &cluster));
    CHECK_OK(spw_megatron_coefficients_scale(&s.megatron_coefficients, &cluster, &scaled));
    CHECK(strcmp(scaled.dense_from, "maxtext-rocm-2026-05") == 0);
}

static spw_stack_claim claim(spw_gpu_kinship kinship, double apart, const char *release, const char *name) {
    spw_stack_claim c = {.distance = {kinship, apart}};
    (void)snprintf(c.release, sizeof c.release, "%s", release);
    (void)snprintf(c.name, sizeof c.name, "%s", name);
    return c;
}

/* Each of these is better than all that follow. */
static void test_order(void) {
    spw_stack_claim order[] = {claim(SPW_GPU_NAMED, 0, "", "a"),
                               claim(SPW_GPU_SAME, 0, "0.16.0", "megatron-a-2026-01"),
                               claim(SPW_GPU_SAME, 0, "0.9.1", "megatron-z-2026-12"),
                               claim(SPW_GPU_SAME, 0, "", "megatron-a-2026-12"),
                               claim(SPW_GPU_SAME, 0, "", "megatron-z-2026-2"),
                               claim(SPW_GPU_SAME, 0, "", "xla-cuda-0.10.2"),
                               claim(SPW_GPU_SAME, 0, "", "xla-cuda-0.9.9"),
                               claim(SPW_GPU_SAME_GENERATION, 0.5, "9", "a-2030-01"),
                               claim(SPW_GPU_SAME_GENERATION, 0.6, "9.1", "a-2030-02"),
                               claim(SPW_GPU_SAME_VENDOR, 0.1, "", "a"),
                               claim(SPW_GPU_FOREIGN, 5, "", "a"),
                               claim(SPW_GPU_FOREIGN, 0.1, "", "a")};
    const size_t count = sizeof order / sizeof *order;
    order[count - 1].unfitted = true; /* nearer by its figures, and of no run */
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) CHECK(spw_stack_claim_is_better(&order[i], &order[j]) == (i < j));
}

int main(void) {
    test_choice();
    test_dense_share();
    test_order();
    return check_done();
}
