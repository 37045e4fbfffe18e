#include "sim/score/megatron/measured_time_score.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

spw_status spw_measured_time_predict(const spw_megatron_coefficients *c, spw_measured_time *time) {
    for (size_t i = 0; i < time->runs; i++) {
        spw_measured_time_run *run = &time->run[i];
        spw_status status = spw_megatron_time_predict(c, &run->shape, SPW_MEGATRON_ALL_TO_ALL, run->ranks,
                                                      run->load, NULL, &run->time);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

double spw_measured_ratio(const spw_measured_time *time, const spw_measured_time_run *run) {
    return run->partner < 0 ? (double)NAN : run->time.step_s / time->run[run->partner].time.step_s;
}

double spw_measured_true_ratio(const spw_measured_time *time, const spw_measured_time_run *run) {
    return run->partner < 0 ? (double)NAN : run->true_step_s / time->run[run->partner].true_step_s;
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

spw_status spw_measured_time_score(const spw_measured_time *time, const char *model,
                                   spw_measured_time_errors *out) {
    double *ratio = NULL, sum = 0.0, most = 0.0;
    spw_status status = SPW_ALLOC(time->runs, &ratio);
    *out = (spw_measured_time_errors){0, 0, NAN, NAN, NAN, NAN};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < time->runs; i++) {
        const spw_measured_time_run *run = &time->run[i];
        if (isnan(run->true_step_s) || (model != NULL && strcmp(model, run->model) != 0)) continue;
        const double error = fabs(run->time.step_s / run->true_step_s - 1.0);
        sum += error;
        most = fmax(most, error);
        out->steps++;
        if (run->partner >= 0)
            ratio[out->ratios++] =
                fabs(spw_measured_ratio(time, run) / spw_measured_true_ratio(time, run) - 1.0);
    }
    if (out->steps > 0) {
        out->step_mean = sum / (double)out->steps;
        out->step_max = most;
    }
    if (out->ratios > 0) {
        qsort(ratio, out->ratios, sizeof *ratio, compare_doubles);
        out->ratio_median = 0.5 * (ratio[(out->ratios - 1) / 2] + ratio[out->ratios / 2]);
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
