/* What other programs call our keys, options, schemes and distributions: the message says what to write, and nothing is taken.
 * argv[1]: scratch directory. */
#include "sim/job/common_names.h"

#include "sim/job/job_override.h"
#include "sim/read/preset.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "traces/generate/generate.h"

#include <stdio.h>
#include <string.h>

static bool said(const char *words) {
    const bool there = strstr(spw_last_error(), words) != NULL;
    if (!there) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), words);
    return there;
}

/* The names are Megatron-LM's arguments (megatron/training/arguments.py) and the letters of its papers; ours are those of
 * docs/keys.md. */
static void test_keys(void) {
    static const struct {
        const char *word, *advice;
    } rows[] = {
        {"ep", "did you mean 'parallel.expert', or --expert-parallel?"},
        {"expert_model_parallel_size", "did you mean 'parallel.expert', or --expert-parallel?"},
        {"tp", "did you mean 'parallel.tensor', or --tensor?"},
        {"pp", "did you mean 'parallel.pipeline', or --pipeline?"},
        {"pipeline-model-parallel-size", "did you mean 'parallel.pipeline', or --pipeline?"},
        {"cp", "did you mean 'parallel.context', or --context?"},
        {"etp", "did you mean 'parallel.expert_tensor', or --expert-tensor?"},
        {"VPP", "did you mean 'parallel.virtual_stages', or --virtual-stages?"},
        {"vp", "did you mean 'parallel.virtual_stages', or --virtual-stages?"},
        {"dp", "did you mean 'parallel.data', or --data?"},
        {"micro_batch_size", "--sequences-per-gpu 16 --micro-batches 8"},
        {"mbs", "--sequences-per-gpu 16 --micro-batches 8"},
        {"global_batch_size", "did you mean 'batch.global_batch', or --global-batch?"},
        {"seq_length", "did you mean 'batch.sequence_length', or --sequence-length?"},
        {"micro_batches", "did you mean 'batch.micro_batches'?"}, /* of a group, and no one's name */
        {"recompute_granularity", "did you mean 'remat', or --remat?"},
        {"capacity_factor", "--scheme dense:capacity_factor=1.25"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static spw_job job;
        char text[256];
        (void)snprintf(text, sizeof text, "model: olmoe-1b-7b\ncluster: h200\n%s: 4\n", rows[i].word);
        CHECK_STATUS(spw_job_parse("job.yaml", NULL, text, strlen(text), &job), SPW_ECONFIG);
        CHECK(said(rows[i].advice) && said("known keys: "));
        if (strcmp(rows[i].word, "ep") != 0 && strcmp(rows[i].word, "tp") != 0) continue;
        (void)snprintf(text, sizeof text, "model: olmoe-1b-7b\ncluster: h200\nparallel: {%s: 4}\n",
                       rows[i].word);
        CHECK_STATUS(spw_job_parse("job.yaml", NULL, text, strlen(text), &job), SPW_ECONFIG);
        CHECK(said(rows[i].advice) && said("in 'parallel'"));
    }
    CHECK(spw_common_name_find("olmoe", 5) == NULL && spw_common_name_find("_size", 5) == NULL);
    CHECK(spw_common_name_find("", 0) == NULL && spw_common_name_find("EP-SIZE", 7) != NULL);
}

static void test_schemes(void) {
    static const struct {
        const char *text, *advice;
    } rows[] = {
        {"dropless", "gmm (MaxText), megatron-flex (Megatron-Core) and torchtitan drop nothing"},
        {"capacity", "dense:capacity_factor=1.25"},
        {"AllToAll", "megatron-alltoall"},
        {"grouped-gemm", "gmm (MaxText) or megatron-flex"},
        {"dense:cf=1.25", "did you mean 'capacity_factor'?"},
        {"tutel:cf=2", "did you mean 'capacity_factor'?"},
        {"dense:1.25", "did you mean 'dense:capacity_factor=1.25'?"},
    };
    spw_scheme scheme;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_STATUS(spw_scheme_parse(rows[i].text, &scheme), SPW_ECONFIG);
        CHECK(said(rows[i].advice));
    }
    char option[200]; /* longer than a word may be */
    (void)snprintf(option, sizeof option, "dense:ca%0150d=1.25", 0);
    for (char *at = strchr(option, '0'); *at == '0'; at++) *at = 'p';
    CHECK_STATUS(spw_scheme_parse(option, &scheme), SPW_ECONFIG);
    CHECK(said("is longer than") || said("is no option of dense"));
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) /* no scheme of ours is called another */
        CHECK(spw_common_scheme_advice(spw_scheme_types[i]->name, strlen(spw_scheme_types[i]->name)) == NULL);
}

static void test_distributions(void) {
    static const struct {
        const char *text, *advice;
    } rows[] = {
        {"zipf:1.0", "did you mean 'zipf:exponent=1.0'?"},
        {"zipf=0.5", "did you mean 'zipf:exponent=0.5'?"},
        {"zipf1", "did you mean 'zipf:exponent=1'?"},
        {"lognormal:2", "did you mean 'lognormal:sigma=2'?"},
        {"dirichlet:1", "did you mean 'dirichlet:alpha=1'?"},
        {"hot-rank:0.5", "did you mean 'hot-rank:share=0.5'?"},
    };
    spw_distribution d;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_STATUS(spw_distribution_parse(rows[i].text, &d), SPW_EARG);
        CHECK(said(rows[i].advice));
    }
    CHECK_STATUS(spw_distribution_parse("even", &d), SPW_EARG);
    CHECK(said("did you mean 'balanced'?"));
    CHECK_STATUS(spw_distribution_parse("run.h5", &d), SPW_EARG);
    CHECK(said("a trace is not a distribution"));
    CHECK_OK(spw_distribution_parse("zipf:exponent=1.0", &d));
    CHECK_OK(spw_distribution_parse("megatron-w1", &d));
}

/* --- Files of another kind --- */

static void put(const char *path, const char *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

static void test_files(const char *scratch) {
    static const struct {
        const char *name, *bytes;
        size_t length;
        const char *what;
    } rows[] = {
        {"m.gguf", "GGUF\3\0\0\0", 8, "a GGUF of weights"},
        {"t.h5", "\x89HDF\r\n\x1a\n\0\0", 10, "an HDF5 file, as traces and results are"},
        {"m.safetensors", "\x40\0\0\0\0\0\0\0{\"a\":1}", 15, "a safetensors file of weights"},
        {"a.npz", "PK\3\4abcd", 8, "an archive, as PyTorch's weights and .npz are"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static spw_job job;
        static spw_model model;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", scratch, rows[i].name);
        put(path, rows[i].bytes, rows[i].length);
        CHECK(strcmp(spw_preset_other_kind(path), rows[i].what) == 0);
        CHECK_STATUS(spw_model_read(path, NULL, &model), SPW_ECONFIG);
        CHECK(said(rows[i].what) && said("a model is a Hugging Face config.json"));
        CHECK_STATUS(spw_job_read(path, &job), SPW_ECONFIG);
        CHECK(said(rows[i].what) && said("replay TRACE.h5 --job JOB.yaml"));
    }
    char path[512];
    spw_model model;
    (void)snprintf(path, sizeof path, "%s/text.txt", scratch);
    put(path, "{\"model_type\": 1}", 17);
    CHECK(spw_preset_other_kind(path) == NULL && spw_preset_other_kind(scratch) == NULL);
    CHECK_STATUS(spw_model_read(scratch, NULL, &model), SPW_ECONFIG);
    CHECK_STATUS(spw_model_read("glm", NULL, &model), SPW_ECONFIG);
    CHECK(said("or 'glm-4.7-flash' or 'glm-5'?"));
    CHECK_STATUS(spw_model_read("olmoe-1b-7b.json", NULL, &model), SPW_ECONFIG);
    CHECK(said("no such file; the preset is called 'olmoe-1b-7b'"));
    CHECK_STATUS(spw_model_read(scratch, NULL, &model), SPW_ECONFIG);
    CHECK(said("a folder; give the path of a Hugging Face config.json in it"));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    test_keys();
    test_schemes();
    test_distributions();
    test_files(argv[1]);
    return check_done();
}
