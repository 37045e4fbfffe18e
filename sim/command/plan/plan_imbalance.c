#include "sim/command/plan/plan_imbalance.h"

#include "base/text.h"
#include "sim/command/job_options.h"

#include <jansson.h>
#include <string.h>

enum { MOST_RANKS = 1 << 16 };

static spw_status fail(const char *text) {
    return spw_fail(SPW_EARG,
                    "--imbalance %s: write the rows of the fullest rank over the mean, from 1 (balanced) to "
                    "the expert-parallel size (one rank has all), as in 1.5, or with the expert-parallel "
                    "size at which it was measured, as in 1.5,ep=8",
                    text);
}

static bool starts(const char *part, const char *key, const char **value) {
    const size_t length = strlen(key);
    if (strncmp(part, key, length) != 0) return false;
    *value = part + length;
    return true;
}

/* What is stated: ours, and what Megatron-Core logs (megatron/core/transformer/moe/moe_logging.py, MoEOverloadFactorTracker). One
 * number stands for all layers, so that each of them is it. */
static const char *const measures[] = {"max_over_mean=",
                                       "avg_overload_factor=",
                                       "max_overload_factor=",
                                       "max_cum_overload_factor=",
                                       "moe/avg_overload_factor=",
                                       "moe/max_overload_factor=",
                                       "moe/max_cum_overload_factor="};

static spw_status parse_part(const char *text, const char *part, spw_stated *out) {
    const char *value = part;
    char *end = NULL;
    if (starts(part, "ep=", &value)) {
        uint64_t ranks = 0;
        const spw_status status = spw_parse_count("--imbalance: ep", value, MOST_RANKS, &ranks);
        out->expert = (size_t)ranks;
        return status != SPW_OK || ranks > 0 ? status : fail(text);
    }
    for (size_t i = 0; i < sizeof measures / sizeof *measures && value == part; i++)
        (void)starts(part, measures[i], &value);
    if (out->max_over_mean > 0.0) return fail(text);
    out->max_over_mean = spw_text_number(value, &end);
    return *end == '\0' && out->max_over_mean >= 1.0 && out->max_over_mean <= 1e6 ? SPW_OK : fail(text);
}

spw_status spw_stated_parse(const char *text, spw_stated *out) {
    char copy[256], *rest = NULL;
    spw_status status = SPW_OK;
    *out = (spw_stated){.expert = 0};
    if (strlen(text) >= sizeof copy) return spw_fail(SPW_EARG, "--imbalance: over 255 characters");
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL && status == SPW_OK;
         part = strtok_r(NULL, ",", &rest))
        status = parse_part(text, part, out);
    return status != SPW_OK || out->max_over_mean > 0.0 ? status : fail(text);
}

spw_status spw_stated_open(const spw_stated *stated, const spw_job *job, const char *splits,
                           spw_imbalance_law *out) {
    size_t ranks = stated->expert > 0 ? stated->expert : job->expert;
    char *end = NULL;
    if (stated->expert == 0 && splits != NULL) {
        const double only = spw_text_number(splits, &end);
        if (*end == '\0' && only >= 1.0 && only <= (double)MOST_RANKS) ranks = (size_t)only;
    }
    return spw_imbalance_law_create(job->model.experts, job->model.top_k, ranks, stated->max_over_mean, out);
}

void spw_stated_print(const spw_imbalance_law *law, size_t gpus, FILE *out) {
    if (law == NULL) return;
    fprintf(out, "imbalance %.4g at EP %zu, stated; EP", law->max_over_mean, law->ranks);
    for (size_t i = 0; i < law->sizes && law->size[i] <= gpus; i++)
        fprintf(out, "%s %zu: %.3g", i > 0 ? "," : "", law->size[i], law->at[i]);
    fprintf(out,
            "\n          by one law, in every layer and micro-batch: log-normal popularities of the experts "
            "(sigma %.3g), %s\n",
            law->sigma,
            law->together > 0.0 ? "popular experts partly on the same rank"
                                : "mean over random placements on the ranks");
}

json_t *spw_stated_json(spw_json *json, const spw_imbalance_law *law) {
    if (law == NULL) return json_null();
    json_t *object = json_object(), *sizes = json_array();
    for (size_t i = 0; i < law->sizes; i++) {
        json_t *size = json_object();
        spw_json_put(json, size, "expert_parallel", spw_json_count(law->size[i]));
        spw_json_put(json, size, "max_over_mean", spw_json_real(law->at[i]));
        spw_json_add(json, sizes, size);
    }
    spw_json_put(json, object, "max_over_mean", spw_json_real(law->max_over_mean));
    spw_json_put(json, object, "expert_parallel", spw_json_count(law->ranks));
    spw_json_put(json, object, "popularities", spw_json_text("lognormal"));
    spw_json_put(json, object, "sigma", spw_json_real(law->sigma));
    spw_json_put(json, object, "placement", spw_json_text("random"));
    spw_json_put(json, object, "together", spw_json_real(law->together));
    spw_json_put(json, object, "sizes", sizes);
    return object;
}
