#include "sim/calibrate/calibrate_time.h"

#include "base/memory.h"
#include "sim/calibrate/time_left_out.h"
#include "sim/calibrate/time_trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Rows --- */

static spw_time_stack *stack_of(spw_time_calibration *c, const spw_score_row *row) {
    for (size_t i = 0; i < c->stacks; i++) {
        if (strcmp(c->stack[i].name, row->cell.stack_name) == 0) return &c->stack[i];
    }
    return NULL;
}

static bool named(const spw_calibrate_time_request *request, const char *id) {
    for (size_t i = 0; i < request->left_out_count; i++) {
        if (strcmp(request->left_out[i], id) == 0) return true;
    }
    return false;
}

static spw_status choose_rows(const spw_calibrate_time_request *request, spw_time_calibration *c) {
    spw_time_request ignored;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        const bool kernel = cell->family != SPW_KERNEL_NONE;
        const spw_time_stack *stack = stack_of(c, &c->score.row[i]);
        if (stack == NULL) {
            c->other_stack++;
        } else if (cell->skipped[0] != '\0' || (!kernel && !(cell->tokens_per_s_per_gpu > 0.0)) ||
                   !spw_compiled_time_covers(&cell->job, &cell->scheme)) {
            c->silent++;
        } else if (cell->job.remat != SPW_REMAT_FULL || cell->job.pipeline > 1) {
            c->not_full++;
        } else if (named(request, cell->id)) {
            c->left_out++;
        } else {
            spw_status status = spw_score_time_request(cell, stack, &c->load[i], &ignored);
            if (status != SPW_OK) return status;
            c->used[i] = 1;
            (*(kernel ? &c->kernels : &c->runs))++;
        }
    }
    return SPW_OK;
}

/* The same run on synthetic data. */
static size_t find_partner(const spw_time_calibration *c, size_t index) {
    const spw_score_cell *cell = &c->score.row[index].cell;
    for (size_t i = 0; i < c->score.rows && cell->real_text && c->used[index]; i++) {
        const spw_score_cell *other = &c->score.row[i].cell;
        if (c->used[i] && !other->real_text && other->family == SPW_KERNEL_NONE &&
            strcmp(other->table, cell->table) == 0 && strcmp(other->stack_name, cell->stack_name) == 0 &&
            strcmp(other->scheme_text, cell->scheme_text) == 0 && other->job.expert == cell->job.expert &&
            other->job.sequences_per_gpu[0] == cell->job.sequences_per_gpu[0])
            return i;
    }
    return index;
}

/* --- What the fit says --- */

static void list_tables(const spw_calibrate_time_request *request, spw_time_stack *stack) {
    stack->tables[0] = '\0';
    for (size_t i = 0; i < request->table_count; i++) {
        const char *slash = strrchr(request->tables[i], '/');
        const char *name = slash != NULL ? slash + 1 : request->tables[i];
        const size_t used = strlen(stack->tables);
        if (spw_has_word(stack->tables, name)) continue;
        (void)snprintf(stack->tables + used, sizeof stack->tables - used, "%s%s", used == 0 ? "" : " ", name);
    }
}

static spw_status predict_all(spw_time_calibration *c) {
    double sum = 0.0;
    for (size_t i = 0; i < c->score.rows; i++) {
        spw_score_row *row = &c->score.row[i];
        const spw_time_stack *stack = stack_of(c, row);
        memset(&row->time, 0, sizeof row->time);
        if (!c->used[i]) continue;
        const spw_status status = spw_score_time_of(&row->cell, stack, &row->time);
        if (status != SPW_OK) return status;
        const double error = fabs(spw_score_throughput_error(row));
        if (row->cell.family != SPW_KERNEL_NONE) continue;
        sum += error;
        c->max_error = fmax(c->max_error, error);
    }
    c->mape = sum / (double)c->runs;
    return SPW_OK;
}

spw_status spw_calibrate_time(const spw_calibrate_time_request *request, spw_time_calibration *out) {
    spw_status status = SPW_OK;
    spw_time_trial all = {.calibration = out};
    memset(out, 0, sizeof *out);
    if (request->stack_count == 0 || request->stack_count > SPW_CALIBRATE_TIME_STACKS)
        return spw_fail(SPW_EARG, "%zu stacks to fit together; 1 to %d can be", request->stack_count,
                        SPW_CALIBRATE_TIME_STACKS);
    for (; out->stacks < request->stack_count; out->stacks++)
        SPW_TRY(spw_time_stack_read(request->stacks[out->stacks], NULL, &out->stack[out->stacks]));
    SPW_TRY(spw_score_open(request->tables, request->table_count, NULL, NULL, &out->score));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->used));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->load));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->partner));
    SPW_TRY(spw_score_has_rows(&out->score, request->left_out, request->left_out_count));
    SPW_TRY(choose_rows(request, out));
    for (size_t i = 0; i < out->score.rows; i++) out->partner[i] = find_partner(out, i);
    SPW_TRY(spw_time_trial_fit(&all));
    SPW_TRY(spw_time_leave_out(out));
    for (size_t s = 0; s < out->stacks; s++) {
        SPW_TRY(spw_time_trial_describe(&all, &out->stack[s]));
        list_tables(request, &out->stack[s]);
        SPW_TRY(spw_time_left_out_widths(out, &out->stack[s]));
    }
    SPW_TRY(predict_all(out));

cleanup:
    if (status != SPW_OK) spw_time_calibration_close(out);
    return status;
}

void spw_time_calibration_close(spw_time_calibration *calibration) {
    spw_free(calibration->group);
    spw_free(calibration->verdict);
    spw_free(calibration->partner);
    spw_free(calibration->load);
    spw_free(calibration->used);
    spw_score_close(&calibration->score);
    memset(calibration, 0, sizeof *calibration);
}
