#include "sim/memory/live/assumed_layout.h"

#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/print/plural.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <stdio.h>
#include <string.h>

static void append(char *out, size_t size, const char *before, size_t count, const char *after) {
    const size_t used = strlen(out);
    (void)snprintf(out + used, size - used, "%s%zu%s", before, count, after);
}

/* "tt", "t*7" */
static void append_layers(size_t layers, char out[SPW_LAYOUT_TEXT]) {
    enum { WRITTEN_OUT = 3 };
    static const char letters[] = "ttt";
    const size_t used = strlen(out);
    if (layers > WRITTEN_OUT) {
        append(out, SPW_LAYOUT_TEXT, "t*", layers, "");
    } else {
        (void)snprintf(out + used, SPW_LAYOUT_TEXT - used, "%.*s", (int)layers, letters);
    }
}

/* `blocks` blocks behind the first, of so many layers: "(|tt)*28". */
static void append_blocks(size_t blocks, size_t layers, char out[SPW_LAYOUT_TEXT]) {
    size_t used = strlen(out);
    if (blocks == 0) return;
    (void)snprintf(out + used, SPW_LAYOUT_TEXT - used, blocks > 1 ? "(|" : "|");
    append_layers(layers, out);
    if (blocks > 1) append(out, SPW_LAYOUT_TEXT, ")*", blocks, "");
}

bool spw_assumed_layout(const spw_pipeline *p, const spw_job *job, const spw_scheme *scheme,
                        char out[SPW_LAYOUT_TEXT]) {
    const size_t blocks = p->stages * p->chunks, more = job->model.layers % blocks;
    if (p->stages == 1 || p->layout != NULL || more == 0 || !spw_scheme_around(scheme, job)->asks_layouts)
        return false;
    (void)snprintf(out, SPW_LAYOUT_TEXT, "E");
    append_layers(spw_pipeline_block(p, &job->model, 0, 0).layers, out);
    append_blocks(more - 1, job->model.layers / blocks + 1, out);
    append_blocks(blocks - more, job->model.layers / blocks, out);
    const size_t used = strlen(out);
    (void)snprintf(out + used, SPW_LAYOUT_TEXT - used, "L");
    return true;
}

static size_t layers_of_stage(const spw_pipeline *p, const spw_model *model, size_t stage) {
    size_t layers = 0;
    for (size_t c = 0; c < p->chunks; c++) layers += spw_pipeline_block(p, model, stage, c).layers;
    return layers;
}

/* "13 stages of 4, 3 stages of 3" in order; chunks of a stage together. */
static void append_stages(const spw_pipeline *p, const spw_model *model, char out[SPW_ASSUMED_LAYOUT_TEXT]) {
    const char *between = "";
    for (size_t s = 0, same = 0; s < p->stages; s += same) {
        const size_t layers = layers_of_stage(p, model, s);
        for (same = 1; s + same < p->stages && layers_of_stage(p, model, s + same) == layers;) same++;
        append(out, SPW_ASSUMED_LAYOUT_TEXT, between, same, same == 1 ? " stage of " : " stages of ");
        append(out, SPW_ASSUMED_LAYOUT_TEXT, "", layers, "");
        between = ", ";
    }
}

bool spw_assumed_layout_note(const spw_pipeline *p, const spw_job *job, const spw_scheme *scheme,
                             char out[SPW_ASSUMED_LAYOUT_TEXT]) {
    char layout[SPW_LAYOUT_TEXT];
    if (!spw_assumed_layout(p, job, scheme, layout)) return false;
    char blocks[64] = "";
    if (p->chunks > 1) (void)snprintf(blocks, sizeof blocks, " x %zu virtual stages", p->chunks);
    (void)snprintf(
        out, SPW_ASSUMED_LAYOUT_TEXT,
        "%zu layers do not divide over pipeline %zu%s, which Megatron-Core refuses unless it is told "
        "a layout; taken is --pipeline-model-parallel-layout '%s': ",
        job->model.layers, p->stages, blocks, layout);
    append_stages(p, &job->model, out);
    const size_t used = strlen(out);
    (void)snprintf(out + used, SPW_ASSUMED_LAYOUT_TEXT - used, " layer%s",
                   spw_plural(layers_of_stage(p, &job->model, p->stages - 1)));
    return true;
}
