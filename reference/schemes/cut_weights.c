#include "reference/schemes/cut_weights.h"

#include <string.h>

/* Between one matrix of an expert [rows][columns] and the part of it from (row, column) on, [part_rows][part_columns]. */
typedef struct matrix_part {
    size_t columns, row, column, part_rows, part_columns;
} matrix_part;

static void copy_out(const float *whole, matrix_part m, float *part) {
    for (size_t i = 0; i < m.part_rows; i++)
        memcpy(part + i * m.part_columns, whole + (m.row + i) * m.columns + m.column,
               m.part_columns * sizeof *part);
}

static void copy_in(const float *part, matrix_part m, float *whole) {
    for (size_t i = 0; i < m.part_rows; i++)
        memcpy(whole + (m.row + i) * m.columns + m.column, part + i * m.part_columns,
               m.part_columns * sizeof *part);
}

/* Columns of w0 and w1 (weight 0, 1), rows of wo (2): part j of t. */
static matrix_part part_of(const spw_execution *run, int weight, size_t j) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn, t = spw_execution_sharers(&run->shape);
    return weight == 2 ? (matrix_part){hidden, j * ffn, 0, ffn, hidden}
                       : (matrix_part){t * ffn, 0, j * ffn, hidden, ffn};
}

/* Where the whole matrix of local expert x of rank r begins. */
static size_t whole_at(const spw_execution *run, size_t r, size_t x) {
    const size_t t = spw_execution_sharers(&run->shape);
    return (r / t * run->local + x) * run->shape.hidden * run->shape.ffn * t;
}

spw_status spw_cut_weights(spw_execution *run, spw_expert_gradients *whole) {
    const size_t t = spw_execution_sharers(&run->shape), part = run->shape.hidden * run->shape.ffn,
                 all = run->shape.ranks * run->local * part;
    const float **const from[] = {&run->in.weights.w0, &run->in.weights.w1, &run->in.weights.wo};
    float **const gradient[] = {&run->out.gradients.w0, &run->out.gradients.w1, &run->out.gradients.wo};
    spw_status status = SPW_OK;
    *whole = run->out.gradients;
    for (int weight = 0; weight < 3; weight++) {
        float *cut = NULL;
        SPW_TRY(SPW_SCRATCH(run, all, &cut));
        for (size_t i = 0; i < run->shape.ranks * run->local; i++) {
            const size_t r = i / run->local;
            copy_out(*from[weight] + whole_at(run, r, i % run->local), part_of(run, weight, r % t),
                     cut + i * part);
        }
        *from[weight] = cut;
        SPW_TRY(SPW_SCRATCH(run, all, gradient[weight]));
    }
cleanup:
    return status;
}

void spw_join_gradients(spw_execution *run, const spw_expert_gradients *whole) {
    const size_t t = spw_execution_sharers(&run->shape), part = run->shape.hidden * run->shape.ffn;
    const float *const cut[] = {run->out.gradients.w0, run->out.gradients.w1, run->out.gradients.wo};
    float *const to[] = {whole->w0, whole->w1, whole->wo};
    for (int weight = 0; weight < 3; weight++) {
        for (size_t i = 0; i < run->shape.ranks * run->local; i++) {
            const size_t r = i / run->local;
            copy_in(cut[weight] + i * part, part_of(run, weight, r % t),
                    to[weight] + whole_at(run, r, i % run->local));
        }
    }
}
