#include "kernels/verify/ranks/verify_layer_checks.h"

#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "reference/bf16.h"

#include <math.h>

/* At most so many results are rounded to bf16 between an input and any output, each by at most 2^-9 of itself; twice
 * that is allowed, for what is rounded early is multiplied and added later. A row that is missing one of its choices
 * is off by far more. */
enum { ROUNDINGS = 8 };

void spw_layer_count(spw_layer_run *k, spw_status result, size_t rank, const char *what) {
    spw_judge_count(k->judge, result, "layer of %s as %s, %s, %s, rank %zu: %s", k->s->text, k->how->scheme,
                    k->activation->name, k->variant, rank, what);
}

void spw_layer_widen(const spw_bf16 *from, size_t n, float *to) {
    for (size_t i = 0; i < n; i++) to[i] = spw_bf16_to_float(from[i]);
}

static double norm_of(const float *row, size_t width) {
    double sum = 0;
    for (size_t j = 0; j < width; j++) sum += (double)row[j] * (double)row[j];
    return sqrt(sum);
}

/* Every row of `width` numbers as a whole: the norm of its error beside its own, or beside the mean of all where it
 * is smaller than that: its terms have cancelled, their errors have not. A row of zeros must be one. */
static spw_status compare_rows(spw_layer_run *k, size_t rows, size_t width, size_t stride, const float *got,
                               const float *want) {
    double squares = 0, nonzero = 0;
    for (size_t i = 0; i < rows; i++) {
        const double norm = norm_of(want + i * width, width);
        squares += norm * norm, nonzero += norm > 0;
    }
    const double usual = nonzero > 0 ? sqrt(squares / nonzero) : 0;
    for (size_t i = 0; i < rows; i++) {
        const double norm = norm_of(want + i * width, width);
        double error = 0;
        for (size_t j = 0; j < width; j++) {
            const double off = (double)got[i * stride + j] - (double)want[i * width + j];
            error += off * off;
        }
        error = sqrt(error);
        const double allowed = norm > 0 ? ROUNDINGS * 0x1p-8 * (norm > usual ? norm : usual) : 0;
        if (!(error <= allowed))
            return spw_fail(SPW_EMISMATCH, "row %zu of %zu: off by %.3g of %.3g, allowed %.3g", i, rows,
                            error, norm, allowed);
        if (allowed > 0 && error / allowed > k->judge->worst) k->judge->worst = error / allowed;
    }
    return SPW_OK;
}

/* Of the reference's bytes those that the kernels send: their ids are int32. */
static uint64_t bytes_of_kernels(const spw_layer_run *k, int counter, uint64_t bytes) {
    const uint64_t row = 2 * k->hidden + k->top_k * (k->how->id_bytes + 4) + 4;
    if (counter != SPW_COUNT_DISPATCH || k->how->id_bytes == 4) return bytes;
    return bytes / row * (row - k->top_k * (k->how->id_bytes - 4));
}

static spw_status check_exchanges(spw_layer_run *k, size_t r) {
    static const struct {
        const char *name;
        bool back;
    } exchanges[] = {[SPW_COUNT_DISPATCH] = {"dispatch", false},
                     [SPW_COUNT_COMBINE] = {"combine", true},
                     [SPW_COUNT_COMBINE_GRADIENT] = {"combine gradient", false},
                     [SPW_COUNT_DISPATCH_GRADIENT] = {"dispatch gradient", true},
                     [SPW_COUNT_ROUTER_GRADIENT] = {"router gradient", true}};
    spw_status status = SPW_OK;
    for (int c = 0; c < (int)(sizeof exchanges / sizeof *exchanges); c++) {
        const bool back = exchanges[c].back;
        uint64_t bytes[SPW_WORLD_RANKS];
        spw_status result = SPW_OK;
        SPW_TRY(spw_world_counter(k->world, r, c, bytes));
        for (size_t d = 0; d < k->ranks && result == SPW_OK; d++) {
            const uint64_t want = bytes_of_kernels(
                k, c, spw_fabric_bytes(k->fabric, exchanges[c].name, back ? d : r, back ? r : d));
            if (bytes[d] != want)
                result = spw_fail(SPW_EMISMATCH, "%llu bytes with rank %zu, the reference %llu",
                                  (unsigned long long)bytes[d], d, (unsigned long long)want);
        }
        spw_layer_count(k, result, r, exchanges[c].name);
    }
cleanup:
    return status;
}

/* Rows that the rank computed. */
static spw_status check_rows(spw_layer_run *k, size_t r) {
    int rows = 0;
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMemcpy(&rows, k->l->rank[r].offset + k->l->local, sizeof rows, cudaMemcpyDeviceToHost),
                "download");
    spw_layer_count(k, spw_judge_equal((uint64_t)rows, k->counts[r]), r, "rows of experts");
cleanup:
    return status;
}

static spw_status fetch(spw_layer_run *k, const spw_bf16 *from, size_t n) {
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMemcpy(k->got, from, n * 2, cudaMemcpyDeviceToHost), "download");
    spw_layer_widen((const spw_bf16 *)(void *)k->got, n, k->widened);
cleanup:
    return status;
}

spw_status spw_layer_check_rank(spw_layer_run *k, size_t r) {
    const size_t wide = k->tokens * k->hidden, all = k->ranks * wide, local = k->experts / k->ranks;
    const size_t weights = k->experts * k->matrix, first = r * local * k->matrix;
    const float *dw = k->out + 2 * all + k->ranks * k->choices;
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(k->world, r));
    SPW_TRY(fetch(k, k->at[r].y, wide));
    spw_layer_count(k, compare_rows(k, k->tokens, k->hidden, k->hidden, k->widened, k->out + r * wide), r,
                    "y");
    SPW_TRY(fetch(k, k->at[r].dx, wide));
    spw_layer_count(k, compare_rows(k, k->tokens, k->hidden, k->hidden, k->widened, k->out + all + r * wide),
                    r, "dx");
    SPW_TRY_GPU(cudaMemcpy(k->got, k->at[r].d_weight, k->choices * 4, cudaMemcpyDeviceToHost), "download");
    spw_layer_count(k,
                    compare_rows(k, k->tokens, k->top_k, k->top_k, (const float *)(void *)k->got,
                                 k->out + 2 * all + r * k->choices),
                    r, "gradients of choices");
    SPW_TRY(fetch(k, k->l->rank[r].gate_up_gradient, 2 * local * k->matrix));
    spw_layer_count(
        k,
        compare_rows(k, local * k->hidden, SPW_LAYER_FFN, (size_t)2 * SPW_LAYER_FFN, k->widened, dw + first),
        r, "gradient of gate");
    spw_layer_count(k,
                    compare_rows(k, local * k->hidden, SPW_LAYER_FFN, (size_t)2 * SPW_LAYER_FFN,
                                 k->widened + SPW_LAYER_FFN, dw + weights + first),
                    r, "gradient of up");
    SPW_TRY(fetch(k, k->l->rank[r].down_gradient, local * k->matrix));
    spw_layer_count(
        k, compare_rows(k, local * SPW_LAYER_FFN, k->hidden, k->hidden, k->widened, dw + 2 * weights + first),
        r, "gradient of down");
    SPW_TRY(check_rows(k, r));
    SPW_TRY(check_exchanges(k, r));
cleanup:
    return status;
}
