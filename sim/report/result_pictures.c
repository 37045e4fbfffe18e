#include "sim/report/result_pictures.h"

#include "base/child.h"
#include "base/memory.h"
#include "sim/report/result_open.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    SLICE_BYTES = 64 << 20, /* of one step of one result */
    REPLY_BYTES = 1 << 30,
    CPU_SECONDS = 10, /* and one more for so many bytes: */
    BYTES_A_SECOND = 4 << 20
};

static size_t bin_of(size_t index, size_t count, size_t bins) { return index * bins / count; }
static size_t fewer(size_t count, size_t most) { return count < most ? count : most; }

/* --- In the child --- */

typedef struct reduction {
    const char *path;
    spw_result_input input;
    spw_result_pictures head;
    int64_t *step;   /* [steps] ids */
    int32_t *layer;  /* [layers] ids */
    uint64_t *rows;  /* [layers][ranks] of one step */
    uint64_t *worst; /* [ranks] of the worst step and layer so far */
} reduction;

static void take_layer(reduction *r, size_t step, size_t layer, spw_result_picture *out) {
    const spw_result_input *in = &r->input;
    const uint64_t *rows = r->rows + layer * in->ranks;
    double sum = 0.0;
    size_t most = 0;
    for (size_t rank = 0; rank < in->ranks; rank++) {
        sum += (double)rows[rank];
        if (rows[rank] > rows[most]) most = rank;
    }
    const double mean = sum / (double)in->ranks, ratio = sum > 0.0 ? (double)rows[most] / mean : 0.0;
    float *cell = &out->max_over_mean[bin_of(layer, in->layers, r->head.layer_bins)]
                                     [bin_of(step, in->steps, r->head.step_bins)];
    if ((float)ratio > *cell) *cell = (float)ratio;
    if (ratio > out->worst_ratio) {
        out->worst_ratio = ratio;
        out->ratio_step = r->step[step];
        out->ratio_layer = r->layer[layer];
    }
    if (rows[most] <= out->worst_rows && (step > 0 || layer > 0)) return;
    out->worst_rows = rows[most];
    out->worst_step = r->step[step];
    out->worst_layer = r->layer[layer];
    out->worst_rank = most;
    out->worst_mean = mean;
    memcpy(r->worst, rows, in->ranks * sizeof *rows);
}

static spw_status reduce(reduction *r, size_t result, spw_result_picture *out) {
    spw_status status = SPW_OK;
    const spw_result_input *in = &r->input;
    *out = (spw_result_picture){.sequences = in->sequences[result]};
    for (size_t step = 0; step < in->steps; step++) {
        double gib[SPW_RESULT_MEMORIES];
        SPW_TRY(spw_result_input_step(in, result, step, r->rows, gib));
        for (size_t layer = 0; layer < in->layers; layer++) take_layer(r, step, layer, out);
        for (int m = 0; m < SPW_PICTURE_MEMORIES; m++) {
            double *bin = &out->gib[m][bin_of(step, in->steps, r->head.step_bins)];
            *bin = fmax(*bin, gib[m]);
        }
    }
    for (size_t rank = 0; rank < in->ranks; rank++) {
        uint64_t *bin = &out->rows[bin_of(rank, in->ranks, r->head.rank_bins)];
        if (r->worst[rank] > *bin) *bin = r->worst[rank];
    }

cleanup:
    return status;
}

static void name_bins(reduction *r) {
    spw_result_pictures *head = &r->head;
    for (size_t s = head->steps; s-- > 0;) head->step[bin_of(s, head->steps, head->step_bins)] = r->step[s];
    for (size_t l = head->layers; l-- > 0;)
        head->layer[bin_of(l, head->layers, head->layer_bins)] = r->layer[l];
    head->last_step = r->step[head->steps - 1];
    head->last_layer = r->layer[head->layers - 1];
}

static spw_status read_file(reduction *r, FILE *out) {
    spw_status status = SPW_OK;
    spw_result_input *in = &r->input;
    spw_result_pictures *head = &r->head;
    spw_result_picture *picture = NULL;
    SPW_TRY(spw_result_input_open(r->path, in));
    *head = (spw_result_pictures){.results = in->results,
                                  .steps = in->steps,
                                  .layers = in->layers,
                                  .ranks = in->ranks,
                                  .step_bins = fewer(in->steps, SPW_PICTURE_STEPS),
                                  .layer_bins = fewer(in->layers, SPW_PICTURE_LAYERS),
                                  .rank_bins = fewer(in->ranks, SPW_PICTURE_RANKS),
                                  .summary_bytes = in->summary_bytes};
    if (in->layers * in->ranks * sizeof *r->rows > SLICE_BYTES)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%zu layers of %zu ranks: more than %d MiB a step", in->layers,
                         in->ranks, SLICE_BYTES >> 20));
    SPW_TRY(SPW_ALLOC(in->steps, &r->step));
    SPW_TRY(SPW_ALLOC(in->layers, &r->layer));
    SPW_TRY(SPW_ALLOC(in->layers * in->ranks, &r->rows));
    SPW_TRY(SPW_ALLOC(in->ranks, &r->worst));
    SPW_TRY(SPW_ALLOC(1, &picture));
    SPW_TRY(spw_result_input_axes(in, r->step, r->layer));
    name_bins(r);
    (void)fwrite(head, sizeof *head, 1, out);
    (void)fwrite(in->summary, 1, in->summary_bytes, out);
    for (size_t i = 0; i < in->results; i++) {
        SPW_TRY(reduce(r, i, picture));
        (void)fwrite(picture, sizeof *picture, 1, out);
    }

cleanup: /* the process ends here: nothing is closed that a damaged file might break */
    return status;
}

static spw_status reduce_file(void *context, FILE *out) {
    reduction *r = context;
    const spw_status status = read_file(r, out);
    const bool named = strncmp(spw_last_error(), r->path, strlen(r->path)) == 0;
    return status == SPW_EFORMAT && !named ? spw_fail_within(status, "%s", r->path) : status;
}

/* --- Here --- */

spw_status spw_result_pictures_read(const char *path, spw_result_pictures *out) {
    spw_status status = SPW_OK;
    reduction r = {.path = path};
    struct stat entry;
    char *reply = NULL;
    size_t bytes = 0;
    *out = (spw_result_pictures){.results = 0};
    const unsigned seconds =
        CPU_SECONDS + (unsigned)(stat(path, &entry) == 0 ? entry.st_size / BYTES_A_SECOND % 3600 : 0);
    SPW_TRY(spw_child_run(path, seconds, REPLY_BYTES, reduce_file, &r, &reply, &bytes));
    if (bytes < sizeof *out) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: damaged: a short answer", path));
    memcpy(out, reply, sizeof *out);
    out->picture = NULL;
    out->summary = NULL;
    const size_t pictures = out->results * sizeof *out->picture;
    const bool true_bins = out->step_bins <= SPW_PICTURE_STEPS && out->layer_bins <= SPW_PICTURE_LAYERS &&
                           out->rank_bins <= SPW_PICTURE_RANKS;
    if (!true_bins || out->results > SPW_RESULT_MOST || bytes - sizeof *out != out->summary_bytes + pictures)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: damaged: an answer of %zu bytes", path, bytes));
    SPW_TRY(SPW_ALLOC(out->summary_bytes + 1, &out->summary));
    memcpy(out->summary, reply + sizeof *out, out->summary_bytes);
    SPW_TRY(SPW_ALLOC(out->results, &out->picture));
    memcpy(out->picture, reply + sizeof *out + out->summary_bytes, pictures);

cleanup:
    spw_free(reply);
    if (status != SPW_OK) spw_result_pictures_clear(out);
    return status;
}

void spw_result_pictures_clear(spw_result_pictures *pictures) {
    spw_free(pictures->picture);
    spw_free(pictures->summary);
    *pictures = (spw_result_pictures){.results = 0};
}
