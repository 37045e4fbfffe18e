#include "sim/score/megatron/measured_time_score.h"

#include "base/memory.h"
#include "sim/statistics/quantiles.h"
#include "sim/time/megatron/megatron_doubt.h"
#include "sim/time/megatron/megatron_experts.h"

#include <math.h>
#include <string.h>

/* Every source sends an expert alike: a table does not say more. */
static spw_status complete_loads(const spw_megatron_coefficients *c, spw_measured_time_run *run) {
    const size_t mine = run->shape.experts_per_rank;
    double *chunk = NULL;
    spw_status status = SPW_ALLOC(run->shape.experts + mine, &chunk);
    const spw_megatron_chunks chunks = {run->ranks, mine, chunk, NULL, chunk + run->shape.experts};
    for (size_t at = 0; at < run->shape.layers * run->ranks && status == SPW_OK; at++) {
        for (size_t i = 0; i < run->ranks * mine; i++)
            chunk[i] = run->expert_rows[at * mine + i % mine] / (double)run->ranks;
        spw_megatron_experts_load(c, run->shape.hidden, run->shape.ffn, &chunks, &run->load[at]);
    }
    spw_free(chunk);
    return status;
}

spw_status spw_measured_time_predict(const spw_megatron_coefficients *c, spw_measured_time *time) {
    for (size_t i = 0; i < time->runs; i++) {
        spw_measured_time_run *run = &time->run[i];
        spw_status status = complete_loads(c, run);
        if (status == SPW_OK)
            status = spw_megatron_time_predict(c, &run->shape, SPW_MEGATRON_ALL_TO_ALL, run->ranks,
                                               &(spw_megatron_loads){.load = run->load}, NULL, &run->time);
        if (status != SPW_OK) return status;
        run->half_width = spw_megatron_layers_half_width(c, run->ranks, run->shape.tokens);
    }
    return SPW_OK;
}

#define LABEL_NAME(name, text, field) text,
const char *spw_measured_label_name(spw_measured_label label) {
    static const char *const names[] = {SPW_MEASURED_LABEL_LIST(LABEL_NAME)};
    return (unsigned)label < SPW_MEASURED_LABELS ? names[label] : "?";
}

#define LABEL_FIELD(name, text, field) run->field,
const char *spw_measured_label_of(const spw_measured_time_run *run, spw_measured_label label) {
    const char *const values[] = {SPW_MEASURED_LABEL_LIST(LABEL_FIELD)};
    return values[label];
}

bool spw_measured_inside(const spw_measured_time_run *run) {
    return fabs(log(run->time.step_s / run->true_step_s)) <= run->half_width;
}

double spw_measured_ratio(const spw_measured_time *time, const spw_measured_time_run *run) {
    return run->partner < 0 ? (double)NAN : run->time.step_s / time->run[run->partner].time.step_s;
}

double spw_measured_true_ratio(const spw_measured_time *time, const spw_measured_time_run *run) {
    return run->partner < 0 ? (double)NAN : run->true_step_s / time->run[run->partner].true_step_s;
}

spw_status spw_measured_time_score(const spw_measured_time *time, spw_measured_label label, const char *name,
                                   spw_measured_time_errors *out) {
    double *ratio = NULL, sum = 0.0, most = 0.0;
    spw_status status = SPW_ALLOC(time->runs, &ratio);
    *out = (spw_measured_time_errors){0, 0, 0, NAN, NAN, NAN, NAN};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < time->runs; i++) {
        const spw_measured_time_run *run = &time->run[i];
        if (isnan(run->true_step_s)) continue;
        if (name != NULL && strcmp(name, spw_measured_label_of(run, label)) != 0) continue;
        const double error = fabs(run->time.step_s / run->true_step_s - 1.0);
        sum += error;
        most = fmax(most, error);
        out->steps++;
        out->inside += spw_measured_inside(run);
        if (run->partner >= 0)
            ratio[out->ratios++] =
                fabs(spw_measured_ratio(time, run) / spw_measured_true_ratio(time, run) - 1.0);
    }
    if (out->steps > 0) {
        out->step_mean = sum / (double)out->steps;
        out->step_max = most;
    }
    if (out->ratios > 0) {
        out->ratio_median = spw_quantile(ratio, out->ratios, 0.5);
        out->ratio_max = ratio[out->ratios - 1];
    }
    spw_free(ratio);
    return SPW_OK;
}

spw_measured_phase_errors spw_measured_phase_score(const spw_measured_time *time, spw_megatron_phase phase) {
    spw_measured_phase_errors out = {0, NAN, NAN, NAN, NAN, NAN};
    double sum = 0.0, most = 0.0, predicted = 0.0, measured = 0.0;
    for (size_t i = 0; i < time->runs; i++) {
        const double truth = time->run[i].true_phase_s[phase], says = time->run[i].time.phase_s[phase];
        if (isnan(time->run[i].true_step_s) || !(truth > 0.0)) continue;
        out.runs++;
        sum += fabs(says / truth - 1.0);
        most = fmax(most, fabs(says / truth - 1.0));
        predicted += says;
        measured += truth;
    }
    if (out.runs == 0) return out;
    const double runs = (double)out.runs;
    return (spw_measured_phase_errors){out.runs,         sum / runs,     most, predicted / measured - 1.0,
                                       predicted / runs, measured / runs};
}
