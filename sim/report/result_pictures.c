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
    double *links;   /* [ranks][members] of one result */
    spw_result_picture picture;
} reduction;

/* Bytes of the arrays of one picture, in the order in which they are handed over; each begins at a multiple of 8. */
typedef struct array_bytes {
    size_t gib, links, rows, ratios, chosen; /* chosen: of all results together */
} array_bytes;

static array_bytes arrays_of(const spw_result_pictures *head) {
    const size_t ratios = head->layer_bins * head->step_bins,
                 chosen = head->expert_steps * head->expert_layers * head->expert_bins;
    return (array_bytes){.gib = SPW_PICTURE_MEMORIES * head->step_bins * sizeof(double),
                         .links = head->link_parts * head->link_parts * sizeof(double),
                         .rows = head->rank_bins * sizeof(uint64_t),
                         .ratios = (ratios + ratios % 2) * sizeof(float),
                         .chosen = (chosen + chosen % 2) * sizeof(float)};
}

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
    float *cell = &out->max_over_mean[bin_of(layer, in->layers, r->head.layer_bins) * r->head.step_bins +
                                      bin_of(step, in->steps, r->head.step_bins)];
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

/* Members are those of the rank's own group. */
static void sum_links(const reduction *r, double *links) {
    const size_t ranks = r->input.ranks, members = r->input.members, parts = r->head.link_parts;
    for (size_t rank = 0; rank < ranks; rank++) {
        const size_t first = rank - rank % members, from = bin_of(rank, ranks, parts);
        for (size_t m = 0; m < members && first + m < ranks; m++)
            links[from * parts + bin_of(first + m, ranks, parts)] += r->links[rank * members + m];
    }
}

/* Choices of each expert of one step and layer over their mean, into a line of cells. */
static void take_choices(reduction *r, size_t step, size_t layer, const uint64_t *row, float *line) {
    spw_result_pictures *head = &r->head;
    const size_t experts = r->input.experts;
    double sum = 0.0;
    for (size_t x = 0; x < experts; x++) sum += (double)row[x];
    for (size_t x = 0; x < experts && sum > 0.0; x++) {
        const double ratio = (double)row[x] * (double)experts / sum;
        float *cell = line + bin_of(x, experts, head->expert_bins);
        *cell = fmaxf(*cell, (float)ratio);
        if (ratio <= head->hot_ratio) continue;
        head->hot_ratio = ratio;
        head->hot_expert = x;
        head->hot_step = r->step[step];
        head->hot_layer = r->layer[layer];
    }
}

/* Choices of each expert over the mean of its layer, of a few steps, and the largest of all; NULL where the file has none. */
static spw_status take_chosen(reduction *r, float **chosen) {
    const spw_result_input *in = &r->input;
    spw_result_pictures *head = &r->head;
    const size_t layer_cells = head->expert_layers * head->expert_bins;
    spw_status status = SPW_OK;
    uint64_t *choices = NULL;
    if (in->choices == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(in->layers * in->experts, &choices));
    SPW_TRY(SPW_ALLOC(arrays_of(head).chosen / sizeof **chosen, chosen));
    for (size_t step = 0; step < in->steps; step++) {
        float *cells = *chosen + bin_of(step, in->steps, head->expert_steps) * layer_cells;
        SPW_TRY(spw_result_input_choices(in, step, choices));
        for (size_t layer = 0; layer < in->layers; layer++)
            take_choices(r, step, layer, choices + layer * in->experts,
                         cells + bin_of(layer, in->layers, head->expert_layers) * head->expert_bins);
    }

cleanup:
    return status;
}

static spw_status reduce(reduction *r, size_t result, spw_result_picture *out) {
    spw_status status = SPW_OK;
    const spw_result_input *in = &r->input;
    const array_bytes bytes = arrays_of(&r->head);
    *out = (spw_result_picture){.sequences = in->sequences[result],
                                .gib = out->gib,
                                .links = out->links,
                                .max_over_mean = out->max_over_mean,
                                .rows = out->rows};
    memset(out->gib, 0, bytes.gib);
    memset(out->rows, 0, bytes.rows);
    if (in->links != NULL) {
        memset(out->links, 0, bytes.links);
        SPW_TRY(spw_result_input_links(in, result, r->links));
        sum_links(r, out->links);
    }
    memset(out->max_over_mean, 0, bytes.ratios);
    for (size_t step = 0; step < in->steps; step++) {
        double gib[SPW_RESULT_MEMORIES];
        SPW_TRY(spw_result_input_step(in, result, step, r->rows, gib));
        for (size_t layer = 0; layer < in->layers; layer++) take_layer(r, step, layer, out);
        for (int m = 0; m < SPW_PICTURE_MEMORIES; m++) {
            double *bin =
                &out->gib[(size_t)m * r->head.step_bins + bin_of(step, in->steps, r->head.step_bins)];
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
    for (size_t s = head->steps; s-- > 0 && head->expert_steps > 0;)
        head->expert_step[bin_of(s, head->steps, head->expert_steps)] = r->step[s];
    head->last_step = r->step[head->steps - 1];
    head->last_layer = r->layer[head->layers - 1];
}

static spw_status read_file(reduction *r, FILE *out) {
    spw_status status = SPW_OK;
    spw_result_input *in = &r->input;
    spw_result_pictures *head = &r->head;
    spw_result_picture *picture = &r->picture;
    float *chosen = NULL;
    SPW_TRY(spw_result_input_open(r->path, in));
    *head = (spw_result_pictures){.results = in->results,
                                  .steps = in->steps,
                                  .layers = in->layers,
                                  .ranks = in->ranks,
                                  .step_bins = fewer(in->steps, SPW_PICTURE_STEPS),
                                  .layer_bins = fewer(in->layers, SPW_PICTURE_LAYERS),
                                  .rank_bins = fewer(in->ranks, SPW_PICTURE_RANKS),
                                  .summary_bytes = in->summary_bytes};
    if (in->choices != NULL) {
        head->experts = in->experts;
        head->expert_steps = fewer(in->steps, SPW_EXPERT_STEPS);
        head->expert_layers = fewer(in->layers, SPW_EXPERT_LAYERS);
        head->expert_bins = fewer(in->experts, SPW_EXPERT_BINS);
    }
    if (in->links != NULL) head->link_parts = fewer(in->ranks, SPW_LINK_PARTS);
    const size_t widest = in->experts > in->ranks ? in->experts : in->ranks;
    if (in->layers * widest * sizeof *r->rows > SLICE_BYTES)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%zu layers of %zu ranks or experts: more than %d MiB a step",
                         in->layers, widest, SLICE_BYTES >> 20));
    SPW_TRY(SPW_ALLOC(in->steps, &r->step));
    SPW_TRY(SPW_ALLOC(in->layers, &r->layer));
    SPW_TRY(SPW_ALLOC(in->layers * in->ranks, &r->rows));
    SPW_TRY(SPW_ALLOC(in->ranks, &r->worst));
    const array_bytes bytes = arrays_of(head);
    SPW_TRY(SPW_ALLOC(bytes.gib / sizeof(double), &picture->gib));
    SPW_TRY(SPW_ALLOC(bytes.links / sizeof(double) + 1, &picture->links));
    SPW_TRY(SPW_ALLOC(in->ranks * in->members + 1, &r->links));
    SPW_TRY(SPW_ALLOC(bytes.rows / sizeof(uint64_t), &picture->rows));
    SPW_TRY(SPW_ALLOC(bytes.ratios / sizeof(float), &picture->max_over_mean));
    SPW_TRY(spw_result_input_axes(in, r->step, r->layer));
    name_bins(r);
    SPW_TRY(take_chosen(r, &chosen));
    (void)fwrite(head, sizeof *head, 1, out);
    if (chosen != NULL) (void)fwrite(chosen, 1, bytes.chosen, out);
    for (size_t i = 0; i < in->results; i++) {
        SPW_TRY(reduce(r, i, picture));
        (void)fwrite(picture, sizeof *picture, 1, out);
        (void)fwrite(picture->gib, 1, bytes.gib, out);
        (void)fwrite(picture->links, 1, bytes.links, out);
        (void)fwrite(picture->rows, 1, bytes.rows, out);
        (void)fwrite(picture->max_over_mean, 1, bytes.ratios, out);
    }
    (void)fwrite(in->summary, 1, in->summary_bytes, out);

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

/* The pictures of the reply, their arrays where they lie in it. */
static spw_status take_pictures(spw_result_pictures *out) {
    const array_bytes bytes = arrays_of(out);
    char *at = out->block + sizeof *out;
    const spw_status status = SPW_ALLOC(out->results, &out->picture);
    if (status != SPW_OK) return status;
    out->chosen = (const float *)(const void *)at;
    at += bytes.chosen;
    for (size_t i = 0; i < out->results; i++) {
        spw_result_picture *picture = &out->picture[i];
        memcpy(picture, at, sizeof *picture);
        at += sizeof *picture;
        picture->gib = (double *)(void *)at;
        picture->links = (double *)(void *)(at += bytes.gib);
        picture->rows = (uint64_t *)(void *)(at += bytes.links);
        picture->max_over_mean = (float *)(void *)(at += bytes.rows);
        at += bytes.ratios;
    }
    out->summary = at;
    return SPW_OK;
}

static bool is_bins(size_t bins, size_t most) { return bins > 0 && bins <= most; }

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
    out->chosen = NULL;
    out->block = reply;
    reply = NULL;
    const bool true_bins = is_bins(out->step_bins, SPW_PICTURE_STEPS) &&
                           is_bins(out->layer_bins, SPW_PICTURE_LAYERS) &&
                           is_bins(out->rank_bins, SPW_PICTURE_RANKS) &&
                           out->expert_steps <= SPW_EXPERT_STEPS && out->expert_layers <= SPW_EXPERT_LAYERS &&
                           out->expert_bins <= SPW_EXPERT_BINS && out->link_parts <= SPW_LINK_PARTS &&
                           out->results <= SPW_RESULT_MOST && out->summary_bytes <= SPW_RESULT_SUMMARY_BYTES;
    const array_bytes each = true_bins ? arrays_of(out) : (array_bytes){.gib = 0};
    const size_t a_picture = sizeof *out->picture + each.gib + each.links + each.rows + each.ratios;
    if (!true_bins || bytes != sizeof *out + each.chosen + out->results * a_picture + out->summary_bytes)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: damaged: an answer of %zu bytes", path, bytes));
    SPW_TRY(take_pictures(out));

cleanup:
    spw_free(reply);
    if (status != SPW_OK) spw_result_pictures_clear(out);
    return status;
}

void spw_result_pictures_clear(spw_result_pictures *pictures) {
    spw_free(pictures->picture);
    spw_free(pictures->block);
    *pictures = (spw_result_pictures){.results = 0};
}
