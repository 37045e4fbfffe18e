#include "sim/result/result_json.h"

#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/machine/time_stack.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static json_t *figure(const char *what, const char *unit, json_t *value, spw_evidence evidence,
                      const char *source) {
    return json_pack("{s:s, s:o, s:s, s:s, s:o}", "what", what, "value", value, "unit", unit, "evidence",
                     spw_evidence_name(evidence), "source", spw_json_text(source));
}

static json_t *figures(spw_json *json, const spw_job *job) {
    const spw_cluster *cluster = &job->cluster;
    const bool fp4 = spw_fp8_recipe_is_fp4(job->precision.recipe);
    const struct {
        const char *what, *unit;
        const spw_figure *figure;
    } values[] = {
        {"memory of a GPU that a program sees", "GiB", &cluster->hbm_gib},
        {"bf16 peak of a GPU", "FLOP/s", &cluster->bf16_flops},
        {fp4 ? "fp4 peak of a GPU" : "fp8 peak of a GPU", "FLOP/s",
         fp4 ? &cluster->fp4_flops : &cluster->fp8_flops},
        {"memory rate of a GPU", "bytes/s", &cluster->hbm_bytes_per_s},
        {"link inside a node, one GPU one way", "bytes/s", &cluster->link_bytes_per_s},
        {"link between nodes, one GPU one way", "bytes/s", &cluster->nic_bytes_per_s},
        {"launch of a kernel", "s", &cluster->launch_s},
    };
    const struct {
        const char *what, *source;
        size_t count;
        spw_evidence evidence;
    } points[] = {
        {"speed of a grouped GEMM, points", cluster->gemm.source, cluster->gemm.points,
         cluster->gemm.evidence},
        {"rate of an exchange, points", cluster->exchange.source, cluster->exchange.points,
         cluster->exchange.evidence},
        {"links inside a node, points", cluster->link.source, cluster->link.points, cluster->link.evidence},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const spw_figure *f = values[i].figure;
        spw_json_add(json, list,
                     figure(values[i].what, values[i].unit, spw_json_real(f->value), f->evidence, f->source));
    }
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (points[i].count > 0)
            spw_json_add(json, list,
                         figure(points[i].what, "", json_null(), points[i].evidence, points[i].source));
    }
    return list;
}

/* "event list of the scheme (4.5)": 4.5 */
static json_t *section(const char *section_source) {
    const char *number = strchr(section_source, '(');
    return number != NULL ? json_stringn(number + 1, strcspn(number + 1, ")")) : json_string("");
}

static json_t *schemes(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->rows; i++) {
        const spw_scheme *scheme = &result->row[i].scheme;
        size_t same = 0;
        while (same < i && strcmp(result->row[same].scheme.text, scheme->text) != 0) same++;
        if (same < i) continue;
        spw_json_add(json, list,
                     json_pack("{s:o, s:o, s:s}", "scheme", spw_json_text(scheme->text), "section",
                               section(scheme->type->about.section), "source", scheme->type->about.source));
    }
    return list;
}

static void add_fit(spw_json *json, json_t *list, const char *what, const char *name, const char *tables) {
    spw_json_add(json, list,
                 json_pack("{s:s, s:o, s:o}", "what", what, "name", spw_json_text(name), "tables",
                           spw_json_text(tables)));
}

json_t *spw_result_sources_json(spw_json *json, const spw_result *result, const spw_run_settings *s) {
    json_t *fits = json_array();
    if (s->memory_fit != NULL) add_fit(json, fits, "memory", s->memory_fit->name, s->memory_fit->tables);
    if (s->time_fit != NULL) add_fit(json, fits, "time", s->time_fit->name, s->time_fit->tables);
    if (s->megatron_fit != NULL) add_fit(json, fits, "time", s->megatron_fit->name, s->megatron_fit->tables);
    const bool far = s->stack_distance != NULL && s->stack_distance[0] != '\0';
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "figures", figures(json, s->job), "schemes",
                     schemes(json, result), "model", spw_json_text(s->job->model.source), "fits", fits,
                     "distance", far ? spw_json_text(s->stack_distance) : json_null());
}
