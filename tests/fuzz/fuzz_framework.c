/* libFuzzer target of the configurations of training frameworks that --from reads: shell scripts, logs, YAML, JSON and TOML. A first byte
 * below 32, but for the blanks, chooses the framework and the end of the file's name; any other text is read for what it looks like.
 * What is read is a job that spw_job_check() passes; its YAML is the same job; and as flags of the same framework it can be read again. */
#include "base/text.h"
#include "sim/frameworks/flags.h"
#include "sim/frameworks/framework_job.h"
#include "sim/job/job_json.h"
#include "sim/job/job_override.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 15, ENDINGS = 4 };
static const spw_job_override cluster[] = {{"cluster", "h100-8x8", "--cluster"},
                                           {"model", "olmoe-1b-7b", "--model"}};
static spw_draft draft, second;
static spw_job job, again;

static char *text_of_job(const spw_job *from) {
    spw_json json = {0};
    json_t *object = spw_job_json(&json, from);
    char *text = object != NULL ? json_dumps(object, JSON_SORT_KEYS) : NULL;
    json_decref(object);
    return text;
}

/* The printed job is the job. Where the cluster stands in place of the file's GPUs, it is not, nor where micro-batches follow, nor of one
 * replica of MaxText's mesh, whose GPUs an option for the cluster does not say. */
static void check_yaml(size_t overrides) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) abort();
    spw_framework_print_summary(&draft, out);
    if (fclose(out) != 0 || length == 0 || strchr(text, '\n') != text + length - 1) abort();
    free(text);
    if ((out = open_memstream(&text, &length)) == NULL) abort();
    spw_framework_print_job(&draft, out);
    if (fclose(out) != 0) abort();
    if (draft.micro_batch == 0 && spw_draft_key_value(&draft, "gpus") == NULL) {
        const spw_job_place at = {.where = "made.yaml", .override = cluster, .overrides = overrides};
        if (spw_job_parse_at(&at, text, length, &again) != SPW_OK) abort();
        const bool whole = spw_job_gpus(&job) == spw_job_gpus(&again);
        char *one = text_of_job(&job), *two = text_of_job(&again);
        if (whole && one != NULL && two != NULL && strcmp(one, two) != 0) abort();
        free(one);
        free(two);
    }
    free(text);
}

static void check_flags(void) {
    char *text = NULL;
    size_t length = 0;
    if (draft.framework->express == NULL || job.schemes == 0) return;
    spw_scheme scheme;
    spw_status status = spw_scheme_parse(job.scheme[0], &scheme);
    spw_fuzz_refusal(status); /* spw_job_check() leaves schemes to who plans */
    if (status != SPW_OK) return;
    job.batches = 1;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) abort();
    status = spw_flags_print(draft.framework, &job, &scheme, "a doubt", out);
    if (fclose(out) != 0) abort();
    spw_fuzz_refusal(status);
    if (status == SPW_OK) {
        const bool yaml =
            draft.framework->print == SPW_PRINT_YAML || draft.framework->print == SPW_PRINT_PRIMUS;
        if (spw_draft_parse(yaml ? "made.yaml" : "made.sh", text, length, draft.framework, &second) != SPW_OK)
            abort();
        spw_draft_close(&second);
    }
    free(text);
}

static void check_draft(void) {
    const bool has_cluster = spw_draft_key_value(&draft, "cluster") != NULL;
    const size_t overrides = spw_draft_key_value(&draft, "model") != NULL ? 1 : 2;
    spw_status status = SPW_OK;
    if (has_cluster) spw_fuzz_refusal(spw_framework_job_read(&draft, cluster + 1, overrides - 1, &again));
    status = spw_framework_job_read(&draft, cluster, overrides, &job);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return;
    if (spw_job_check(&job) != SPW_OK || spw_job_gpus(&job) != job.cluster.nodes * job.cluster.gpus_per_node)
        abort();
    check_yaml(overrides);
    check_flags();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const spw_framework *const frameworks[] = {NULL,
                                                      &spw_framework_megatron,
                                                      &spw_framework_bridge,
                                                      &spw_framework_primus,
                                                      &spw_framework_maxtext,
                                                      &spw_framework_torchtitan,
                                                      &spw_framework_deepspeed,
                                                      &spw_framework_finetune};
    static const char *const names[ENDINGS] = {"run.sh", "run.yaml", "run.json", "run.toml"};
    const size_t kinds = sizeof frameworks / sizeof frameworks[0];
    if (size > LARGEST || size == 0) return 0;
    const bool chosen = data[0] < ' ' && strchr("\t\r\n", data[0]) == NULL;
    const size_t choice = chosen ? data[0] : 0;
    const char *name = names[choice / kinds % ENDINGS];
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    memcpy(text, data + chosen, size - chosen);
    text[size - chosen] = '\0';
    const spw_status status = spw_draft_parse(name, text, size - chosen, frameworks[choice % kinds], &draft);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check_draft();
    spw_draft_close(&draft);
    free(text);
    return 0;
}
