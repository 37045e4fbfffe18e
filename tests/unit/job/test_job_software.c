/* Which schemes and optimizer a job has that does not say them: by pencil. */
#include "sim/job/job.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 3 };

typedef struct wanted {
    const char *cluster, *schemes, *optimizer; /* what is said; NULL: nothing */
    spw_optimizer_kind kind;
    size_t weights; /* bytes of one */
    const char *scheme[MOST];
} wanted;

static void read_bare(const wanted *w, spw_job *job) {
    const char *const value[][2] = {{"model", "olmoe-1b-7b"},
                                    {"cluster", w->cluster},
                                    {"schemes", w->schemes},
                                    {"optimizer", w->optimizer}};
    spw_job_override said[sizeof value / sizeof *value];
    size_t count = 0;
    for (size_t i = 0; i < sizeof value / sizeof *value; i++)
        if (value[i][1] != NULL) said[count++] = (spw_job_override){value[i][0], value[i][1], "--option"};
    CHECK_OK(spw_job_read_with(NULL, said, count, job));
}

static void test_without_a_file(void) {
    static const wanted rows[] = {
        {"h100", NULL, NULL, SPW_OPTIMIZER_DISTRIBUTED, 2, {"megatron-alltoall", "megatron-flex"}},
        {"gb200", NULL, NULL, SPW_OPTIMIZER_DISTRIBUTED, 2, {"megatron-alltoall", "megatron-flex"}},
        {"a100", NULL, NULL, SPW_OPTIMIZER_DISTRIBUTED, 2, {"megatron-alltoall", "megatron-allgather"}},
        {"mi355x", NULL, NULL, SPW_OPTIMIZER_SHARDED, 4, {"dense:capacity_factor=1.25", "gmm", "gmm-deepep"}},
        {"tpu-v5p", NULL, NULL, SPW_OPTIMIZER_SHARDED, 4, {"dense:capacity_factor=1.25", "gmm", "ring"}},
        {"h100", "[gmm]", NULL, SPW_OPTIMIZER_SHARDED, 4, {"gmm"}},
        {"h100", "[gmm, megatron-flex]", NULL, SPW_OPTIMIZER_SHARDED, 4, {"gmm", "megatron-flex"}},
        {"h100", "[megatron-flex, gmm]", NULL, SPW_OPTIMIZER_SHARDED, 4, {"megatron-flex", "gmm"}},
        {"mi355x",
         "['megatron-alltoall:capacity_factor=1,pad=true']",
         NULL,
         SPW_OPTIMIZER_DISTRIBUTED,
         2,
         {"megatron-alltoall:capacity_factor=1,pad=true"}},
        {"h100", NULL, "sharded", SPW_OPTIMIZER_SHARDED, 4, {"megatron-alltoall", "megatron-flex"}},
        {"h100", "[gmm]", "distributed", SPW_OPTIMIZER_DISTRIBUTED, 2, {"gmm"}},
        {"h100", NULL, "auto", SPW_OPTIMIZER_DISTRIBUTED, 2, {"megatron-alltoall", "megatron-flex"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wanted *w = &rows[i];
        size_t schemes = 0;
        spw_job job;
        read_bare(w, &job);
        while (schemes < MOST && w->scheme[schemes] != NULL) schemes++;
        CHECK(job.schemes == schemes);
        for (size_t s = 0; s < schemes && s < job.schemes; s++)
            CHECK(strcmp(job.scheme[s], w->scheme[s]) == 0);
        CHECK(job.optimizer == w->kind && job.precision.weights == w->weights);
    }
}

/* Rows of an expert are padded under a recipe: by 16 for blockwise on Hopper, by 32 for mxfp8. */
static void test_recipes(void) {
    static const char *const rows[][3] = {
        {"h100", "blockwise", ":align=16"}, {"gb200", "mxfp8", ":align=32"}, {"h100", "none", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const spw_job_override said[] = {{"model", "olmoe-1b-7b", "--model"},
                                         {"cluster", rows[i][0], "--cluster"},
                                         {"precision.recipe", rows[i][1], "--set"}};
        char flex[64];
        spw_job job;
        CHECK_OK(spw_job_read_with(NULL, said, sizeof said / sizeof *said, &job));
        (void)snprintf(flex, sizeof flex, "megatron-flex%s", rows[i][2]);
        CHECK(job.schemes == 2 && strcmp(job.scheme[1], flex) == 0);
    }
}

/* A file says what it says: no scheme is put into it, and auto is sharded, whatever its schemes. */
static void test_of_a_file(void) {
    static const char text[] = "{model: olmoe-1b-7b, cluster: h100, parallel: {expert: 8, fsdp: 8}, "
                               "batch: {sequences_per_gpu: 1, sequence_length: 4096}%s}";
    char job_text[512];
    spw_job job;
    (void)snprintf(job_text, sizeof job_text, text, "");
    CHECK_OK(spw_job_read(job_text, &job));
    CHECK(job.schemes == 0 && job.optimizer == SPW_OPTIMIZER_SHARDED);
    (void)snprintf(job_text, sizeof job_text, text, ", schemes: [megatron-flex]");
    CHECK_OK(spw_job_read(job_text, &job));
    CHECK(job.schemes == 1 && job.optimizer == SPW_OPTIMIZER_SHARDED && job.precision.weights == 4);
}

int main(void) {
    test_without_a_file();
    test_recipes();
    test_of_a_file();
    return check_done();
}
