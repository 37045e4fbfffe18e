#include "sim/job/stage_layout.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char TEXT_KEY[] = "parallel.pipeline_model_parallel_layout";
static const char FIRST_KEY[] = "parallel.decoder_first_pipeline_num_layers";
static const char LAST_KEY[] = "parallel.decoder_last_pipeline_num_layers";
static const char EMBEDDING_KEY[] = "parallel.account_for_embedding_in_pipeline_split";
static const char LOSS_KEY[] = "parallel.account_for_loss_in_pipeline_split";

static const char *short_name(const char *key) { return strchr(key, '.') + 1; }

/* --- The text --- */

/* A letter, and where it stands in the text as it was written; positions count from 1. */
typedef struct letter {
    char c;
    uint16_t position;
} letter;
typedef struct letters {
    size_t count;
    letter at[SPW_LAYOUT_LETTERS];
} letters;

/* What is repeated, how often, and where the text goes on. */
typedef struct repeat {
    size_t from, to, times, next;
} repeat;

/* "*12" at `i`. A number too large for any layout stays too large. */
static bool read_times(const letters *in, size_t i, repeat *out) {
    size_t digits = 0;
    if (i + 1 >= in->count || in->at[i].c != '*') return false;
    out->times = 0;
    for (i++; i < in->count && isdigit((unsigned char)in->at[i].c); i++, digits++)
        if (out->times <= SPW_LAYOUT_LETTERS) out->times = out->times * 10 + (size_t)(in->at[i].c - '0');
    out->next = i;
    return digits > 0;
}

/* "(...)*n": up to the first ')', with at least one letter inside. */
static bool is_group(const letters *in, size_t i, repeat *out) {
    if (in->at[i].c != '(') return false;
    out->from = out->to = i + 1;
    while (out->to < in->count && in->at[out->to].c != ')') out->to++;
    return out->to > out->from && read_times(in, out->to + 1, out);
}

/* "x*n" */
static bool is_single(const letters *in, size_t i, repeat *out) {
    out->from = i;
    out->to = i + 1;
    return read_times(in, i + 1, out);
}

static spw_status put(letters *out, letter one) {
    if (out->count == SPW_LAYOUT_LETTERS)
        return spw_fail(
            SPW_ECONFIG,
            "the layout grows to more than %d letters at position %u; a model has at most %d layers",
            (int)SPW_LAYOUT_LETTERS, (unsigned)one.position, (int)SPW_LAYOUT_BLOCKS);
    out->at[out->count++] = one;
    return SPW_OK;
}

/* Writes out what `is_repeat` finds, once from left to right; what comes out is not looked at again. */
static spw_status unroll(const letters *in, bool (*is_repeat)(const letters *, size_t, repeat *),
                         letters *out) {
    spw_status status = SPW_OK;
    repeat r = {0, 0, 0, 0};
    out->count = 0;
    for (size_t i = 0; i < in->count && status == SPW_OK;) {
        if (!is_repeat(in, i, &r)) {
            status = put(out, in->at[i++]);
            continue;
        }
        for (size_t n = 0; n < r.times; n++) {
            for (size_t k = r.from; k < r.to && status == SPW_OK; k++) status = put(out, in->at[k]);
            if (status != SPW_OK) break;
        }
        i = r.next;
    }
    return status;
}

/* What stands where: the letters that must be there once. */
typedef struct ends {
    size_t embeddings, losses;          /* how many */
    size_t embedding, loss, prediction; /* in which block, counted from 1 */
    bool scattered;                     /* m in two blocks, or a layer behind m */
    char first, last;                   /* letters */
} ends;

static spw_status count_letter(spw_stage_layout *layout, letter one, ends *e) {
    switch (one.c) {
    case '|':
        if (layout->blocks == SPW_LAYOUT_BLOCKS)
            return spw_fail(SPW_ECONFIG, "the layout has more than %d blocks", (int)SPW_LAYOUT_BLOCKS);
        layout->layers[layout->blocks++] = 0;
        return SPW_OK;
    case 'E': e->embeddings++, e->embedding = layout->blocks; break;
    case 'L': e->losses++, e->loss = layout->blocks; break;
    case 'm':
        e->scattered = e->scattered || (e->prediction > 0 && e->prediction != layout->blocks);
        e->prediction = layout->blocks;
        layout->predictions++;
        break;
    case 't':
        e->scattered = e->scattered || e->prediction > 0;
        layout->layers[layout->blocks - 1]++;
        break;
    default:
        return spw_fail(SPW_ECONFIG,
                        "unknown letter '%c' at position %u of the layout; write E (embedding), t (layer), m "
                        "(multi-token prediction), L (loss), '|' between blocks, x*3 or (xy|)*3",
                        isprint((unsigned char)one.c) ? one.c : '?', (unsigned)one.position);
    }
    if (e->first == '\0') e->first = one.c;
    e->last = one.c;
    return SPW_OK;
}

static spw_status check_ends(spw_stage_layout *layout, const ends *e) {
    if (e->embeddings != 1 || e->first != 'E' || e->embedding != 1)
        return spw_fail(SPW_ECONFIG,
                        "the layout has %zu times E; write it once, as the first letter of the first block",
                        e->embeddings);
    if (e->losses != 1 || e->last != 'L' || e->loss != layout->blocks)
        return spw_fail(SPW_ECONFIG,
                        "the layout has %zu times L; write it once, as the last letter of the last block",
                        e->losses);
    if (e->scattered)
        return spw_fail(
            SPW_ECONFIG,
            "the layout has %zu times m, but not all in one block behind the last t; write them there",
            layout->predictions);
    layout->prediction_block = e->prediction > 0 ? e->prediction - 1 : 0;
    return SPW_OK;
}

spw_status spw_stage_layout_parse(spw_stage_layout *layout) {
    spw_status status = SPW_OK;
    letters *work = NULL;
    ends e = {0};
    layout->blocks = 0;
    layout->predictions = layout->text[0] == '\0' ? layout->behind : 0;
    if (layout->text[0] == '\0') return SPW_OK;
    SPW_TRY(SPW_ALLOC(2, &work));
    for (uint16_t i = 0; layout->text[i] != '\0'; i++)
        if (layout->text[i] != ',') SPW_TRY(put(&work[0], (letter){layout->text[i], (uint16_t)(i + 1)}));
    SPW_TRY(unroll(&work[0], is_group, &work[1]));
    SPW_TRY(unroll(&work[1], is_single, &work[0]));
    layout->layers[layout->blocks++] = 0;
    for (size_t i = 0; i < work[0].count; i++) SPW_TRY(count_letter(layout, work[0].at[i], &e));
    SPW_TRY(check_ends(layout, &e));

cleanup:
    spw_free(work);
    return status;
}

/* --- What is said --- */

bool spw_stage_layout_is_said(const spw_stage_layout *layout) {
    return layout->blocks > 0 || layout->embedding || layout->loss || layout->first > 0 || layout->last > 0;
}

static size_t counted_ends(const spw_stage_layout *layout) {
    return (size_t)layout->embedding + (size_t)layout->loss;
}

size_t spw_stage_layout_layers(const spw_stage_layout *layout, const spw_stage_cut *cut, size_t stage,
                               size_t chunk) {
    const bool first = stage == 0, last = stage + 1 == cut->stages;
    const size_t named = (size_t)(layout->first > 0) + (size_t)(layout->last > 0);
    if (layout->blocks > 0) return layout->layers[chunk * cut->stages + stage];
    if (first && layout->first > 0) return layout->first / cut->chunks;
    if (last && layout->last > 0) return layout->last / cut->chunks;
    if (named > 0) return (cut->layers - layout->first - layout->last) / (cut->stages - named) / cut->chunks;
    const size_t each = (cut->layers + counted_ends(layout)) / (cut->stages * cut->chunks);
    return each - (size_t)(layout->embedding && first && chunk == 0) -
           (size_t)(layout->loss && last && chunk + 1 == cut->chunks);
}

size_t spw_stage_layout_predictions(const spw_stage_layout *layout, size_t block) {
    return layout->prediction_block == block ? layout->predictions : 0;
}

/* --- What does not add up --- */

/* Megatron-Core builds them in the last block of a stage, and not in the first stage. */
static spw_status check_predictions(const spw_stage_layout *layout, const spw_stage_cut *cut,
                                    const char *model) {
    const size_t block = layout->prediction_block;
    if (layout->predictions == 0) return SPW_OK;
    if (layout->predictions != cut->predictions)
        return spw_fail(
            SPW_ECONFIG,
            "the layout has %zu times m, model '%s' has %zu layers of multi-token prediction; write "
            "m %zu times, or leave it out to train without them",
            layout->predictions, model, cut->predictions, cut->predictions);
    const bool first = block % cut->stages == 0 && cut->stages > 1;
    if (block / cut->stages + 1 == cut->chunks && !first) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "the layout has m in block %zu, chunk %zu of stage %zu; Megatron-Core takes it in the last "
        "chunk of any stage but the first: write it in one of the last %zu blocks",
        block, block / cut->stages, block % cut->stages, cut->stages - 1);
}

static spw_status check_text(const spw_stage_layout *layout, const spw_stage_cut *cut, const char *model,
                             const char **key) {
    size_t layers = 0;
    *key = TEXT_KEY;
    if (layout->behind > 0 && layout->behind != layout->predictions)
        return spw_fail(SPW_ECONFIG,
                        "the layout has %zu times m, mtp_num_layers is %zu; write m as often, or leave "
                        "mtp_num_layers out",
                        layout->predictions, layout->behind);
    if (layout->blocks != cut->stages * cut->chunks)
        return spw_fail(
            SPW_ECONFIG,
            "the layout has %zu blocks, which are not pipeline %zu x virtual_stages %zu; write %zu "
            "blocks, or make pipeline a divisor of them and leave virtual_stages out",
            layout->blocks, cut->stages, cut->chunks, cut->stages * cut->chunks);
    for (size_t i = 0; i < layout->blocks; i++) layers += layout->layers[i];
    if (layers != cut->layers)
        return spw_fail(SPW_ECONFIG, "the layout has %zu layers (t), model '%s' has %zu; write %zu", layers,
                        model, cut->layers, cut->layers);
    return check_predictions(layout, cut, model);
}

/* Layers of one stage in `chunks` equal blocks. */
static spw_status check_chunks(size_t layers, const char *what, const spw_stage_cut *cut) {
    if (layers % cut->chunks == 0) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "the %zu layers of %s do not divide into virtual_stages %zu; use a number of layers that "
                    "does, or virtual_stages 1",
                    layers, what, cut->chunks);
}

static spw_status check_first_and_last(const spw_stage_layout *layout, const spw_stage_cut *cut,
                                       const char *model, const char **key) {
    const size_t named = (size_t)(layout->first > 0) + (size_t)(layout->last > 0),
                 middle = cut->stages - named, taken = layout->first + layout->last;
    *key = layout->first > 0 ? FIRST_KEY : LAST_KEY;
    if (taken > cut->layers || (taken == cut->layers) != (middle == 0) ||
        (middle > 0 && (cut->layers - taken) % middle != 0))
        return spw_fail(
            SPW_ECONFIG,
            "%zu layers in the first and %zu in the last stage (0: not said) do not leave equally "
            "many, at least one, of the %zu layers of model '%s' for each of the other %zu stages; "
            "change the first or the last",
            layout->first, layout->last, cut->layers, model, middle);
    spw_status status = check_chunks(layout->first, "the first stage", cut);
    if (status != SPW_OK) return status;
    *key = LAST_KEY;
    status = check_chunks(layout->last, "the last stage", cut);
    if (status != SPW_OK || middle == 0) return status;
    return check_chunks((cut->layers - taken) / middle, "a stage in the middle", cut);
}

static spw_status check_counted(const spw_stage_layout *layout, const spw_stage_cut *cut, const char *model,
                                const char **key) {
    const size_t all = cut->layers + counted_ends(layout), blocks = cut->stages * cut->chunks;
    *key = layout->embedding ? EMBEDDING_KEY : LOSS_KEY;
    if (all % blocks == 0) return SPW_OK;
    char chunks[64] = "";
    if (cut->chunks > 1) (void)snprintf(chunks, sizeof chunks, " x %zu virtual stages", cut->chunks);
    return spw_fail(
        SPW_ECONFIG,
        "the %zu layers of model '%s' and %s are %zu, which %zu stages%s do not divide; use %s, or "
        "stages that do",
        cut->layers, model,
        layout->embedding ? layout->loss ? "embedding and loss" : "the embedding" : "the loss", all,
        cut->stages, chunks, short_name(TEXT_KEY));
}

spw_status spw_stage_layout_check(const spw_stage_layout *layout, const spw_stage_cut *cut, const char *model,
                                  const char **key) {
    const bool named = layout->first > 0 || layout->last > 0, counted = layout->embedding || layout->loss;
    const int ways = (layout->blocks > 0) + named + counted;
    if (ways == 0) return SPW_OK;
    *key = layout->blocks > 0 ? TEXT_KEY : named ? FIRST_KEY : EMBEDDING_KEY;
    if (ways > 1)
        return spw_fail(SPW_ECONFIG,
                        "%s, the layers of the first and last stage, and embedding or loss counted as layers "
                        "exclude one another; keep one of the three",
                        short_name(TEXT_KEY));
    if (cut->stages == 1 && layout->blocks != 1) /* one block says where multi-token prediction is */
        return spw_fail(SPW_ECONFIG,
                        "%s says how layers are shared out over stages, but pipeline is 1; leave it out, or "
                        "use a pipeline of 2 or more",
                        short_name(*key));
    if (layout->blocks > 0) return check_text(layout, cut, model, key);
    return named ? check_first_and_last(layout, cut, model, key) : check_counted(layout, cut, model, key);
}
