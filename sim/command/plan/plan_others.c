#include "sim/command/plan/plan_others.h"

#include "base/memory.h"
#include "sim/frameworks/flags.h"
#include "sim/print/table.h"

#include <stdlib.h>
#include <string.h>

enum { LABEL = 10 };

bool spw_plan_others_asked(const spw_job_options *o) {
    if (o->draft == NULL || o->scheme_texts > 0) return false;
    for (size_t i = 0; i < o->overrides; i++)
        if (strcmp(o->override[i].key, "schemes") == 0) return false;
    return true;
}

/* --- What one sets in the framework --- */

static bool has_flag(const spw_flag_draft *f, const spw_flag *flag) {
    for (size_t i = 0; i < f->flags; i++)
        if (strcmp(f->flag[i].name, flag->name) == 0) return strcmp(f->flag[i].value, flag->value) == 0;
    return false;
}

/* As the framework's files write it: --moe-token-dispatcher-type flex, megablox=true, moe_token_dispatcher_type: flex. */
static void write_flag(const spw_flag_draft *f, const spw_flag *flag, char out[SPW_OTHER_SETTINGS]) {
    static const char *const forms[] = {[SPW_PRINT_ARGUMENTS] = "--%s %s",
                                        [SPW_PRINT_YAML] = "%s: %s",
                                        [SPW_PRINT_PRIMUS] = "%s: %s",
                                        [SPW_PRINT_PAIRS] = "%s=%s",
                                        [SPW_PRINT_DOTTED] = "--%s %s"};
    char name[96], text[SPW_OTHER_SETTINGS];
    const size_t used = strlen(out);
    (void)snprintf(name, sizeof name, "%s", flag->name);
    for (char *c = name; *c != '\0' && f->framework->print == SPW_PRINT_ARGUMENTS; c++)
        if (*c == '_') *c = '-';
    const bool alone = f->framework->print == SPW_PRINT_ARGUMENTS && strcmp(flag->value, "true") == 0;
    if (alone)
        (void)snprintf(text, sizeof text, "--%s", name);
    else
        (void)snprintf(text, sizeof text, forms[f->framework->print], name, flag->value);
    if (used + strlen(text) + 2 < SPW_OTHER_SETTINGS)
        (void)snprintf(out + used, SPW_OTHER_SETTINGS - used, "%s%s", used > 0 ? " " : "", text);
}

static spw_status fill(const spw_framework *framework, const spw_other_point *p, const spw_scheme *scheme,
                       spw_job *job, spw_flag_draft *out) {
    char *text = NULL;
    *job = *p->job;
    job->batches = job->schemes = 1;
    (void)snprintf(job->scheme[0], sizeof job->scheme[0], "%s", scheme->text);
    const spw_status status = spw_flags_fill(framework, job, scheme, out, &text);
    free(text);
    return status;
}

/* The settings of the second that the first has not. What a framework has no name for is left out. */
static spw_status compare(const spw_framework *framework, const spw_other_point *p, const spw_scheme *other,
                          char out[SPW_OTHER_SETTINGS]) {
    spw_flag_draft *own = NULL, *with = NULL;
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    out[0] = '\0';
    if (framework->express == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &own));
    SPW_TRY(SPW_ALLOC(1, &with));
    SPW_TRY(SPW_ALLOC(2, &job));
    status = fill(framework, p, p->scheme, &job[0], own);
    if (status == SPW_OK) status = fill(framework, p, other, &job[1], with);
    if (status == SPW_ECONFIG)
        status = SPW_OK; /* it cannot be written there: the answer stands without */
    else if (status == SPW_OK)
        for (size_t i = 0; i < with->flags; i++)
            if (!has_flag(own, &with->flag[i])) write_flag(with, &with->flag[i], out);

cleanup:
    spw_free(job), spw_free(with), spw_free(own);
    return status;
}

spw_status spw_plan_others_find(const spw_plan_request *q, const spw_other_point *p,
                                const spw_framework *framework, spw_plan_others *out) {
    spw_status status = SPW_OK;
    *out = (spw_plan_others){.framework = framework->title};
    SPW_TRY(spw_other_schemes_find(q, p, &out->schemes));
    for (size_t i = 0; i < out->schemes.count; i++)
        SPW_TRY(compare(framework, p, &out->schemes.item[i].scheme, out->settings[i]));

cleanup:
    return status;
}

/* --- For a person, and as JSON --- */

void spw_plan_print_others(const spw_plan_others *others, FILE *out) {
    for (size_t i = 0; others != NULL && i < others->schemes.count; i++) {
        const spw_other_scheme *o = &others->schemes.item[i];
        char span[SPW_SPAN_TEXT], split[48] = "";
        if (others->expert > 0) (void)snprintf(split, sizeof split, " --expert-parallel %zu", others->expert);
        fprintf(out, "%-*s--scheme %s%s would be %.3g times as fast (%s%s)", LABEL, i == 0 ? "instead" : "",
                o->scheme.text, split, o->times.value,
                spw_span_text(o->times.low, o->times.high, " to ", span),
                o->sure ? "" : ", so it may be no faster");
        fprintf(out, ", %.0f tokens/s a GPU%s", o->tokens_per_s_per_gpu,
                o->outside_fit ? " (outside the fit)" : "");
        if (others->settings[i][0] != '\0')
            fprintf(out, "; in %s: %s", others->framework, others->settings[i]);
        fprintf(out, "%s\n", o->surely_fits ? "" : "; it may not fit");
    }
}

json_t *spw_plan_others_json(spw_json *json, const spw_plan_others *others) {
    json_t *list = json_array();
    for (size_t i = 0; others != NULL && i < others->schemes.count; i++) {
        const spw_other_scheme *o = &others->schemes.item[i];
        json_t *object = json_object();
        spw_json_put(json, object, "scheme", spw_json_text(o->scheme.text));
        spw_json_put(json, object, "expert_parallel",
                     others->expert > 0 ? spw_json_count(others->expert) : json_null());
        spw_json_put(json, object, "times_as_fast", spw_json_real(o->times.value));
        spw_json_put(json, object, "times_as_fast_low", spw_json_real(o->times.low));
        spw_json_put(json, object, "times_as_fast_high", spw_json_real(o->times.high));
        spw_json_put(json, object, "tokens_per_s_per_gpu", spw_json_real(o->tokens_per_s_per_gpu));
        spw_json_put(json, object, "surely_fits", json_boolean(o->surely_fits));
        spw_json_put(json, object, "settings", spw_json_text(others->settings[i]));
        spw_json_add(json, list, object);
    }
    return list;
}
