/* Pipeline stages that do not hold equally many layers, said as Megatron-Core says it (NVIDIA/Megatron-LM d98e8a64,
 * megatron/core/transformer/transformer_block.py get_num_layers_to_build, transformer_config.py __post_init__,
 * pipeline_parallel_layer_layout.py). Three ways, one at a time:
 *   embedding, loss   the embedding and the loss count as a layer each when layers are shared out, so that the first and the
 *                     last block have one layer less
 *   first, last       layers of the first and of the last stage; the stages between them share the rest
 *   text              every block by its letters: E the embedding, t a layer, m a layer of multi-token prediction, L head
 *                     and loss; '|' ends a block, x*3 and (xy|)*3 repeat, commas mean nothing. P v blocks in the order in
 *                     which a token passes them: block c P + s is chunk c of stage s
 * Nothing said: the layers are shared out evenly. */
#ifndef SPW_SIM_JOB_STAGE_LAYOUT_H
#define SPW_SIM_JOB_STAGE_LAYOUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_LAYOUT_TEXT = 512, SPW_LAYOUT_BLOCKS = 1024, SPW_LAYOUT_LETTERS = 4096 };

typedef struct spw_stage_layout {
    bool embedding, loss;
    size_t first, last; /* 0: not said */
    size_t
        behind; /* mtp_num_layers: layers of multi-token prediction behind the last block where no text has them */
    char text[SPW_LAYOUT_TEXT];
    size_t blocks;                      /* of the text; 0: there is none */
    uint16_t layers[SPW_LAYOUT_BLOCKS]; /* of each block of the text */
    size_t predictions,
        prediction_block; /* layers of multi-token prediction, and the one block that has them */
} spw_stage_layout;

/* Fills what is of the text; an empty text has no blocks, and the predictions behind the last one. SPW_ECONFIG: an unknown letter and its
 * position; embedding, loss or multi-token prediction not where they belong; more than there is room for. */
SPW_MUST_CHECK spw_status spw_stage_layout_parse(spw_stage_layout *layout);

/* Is anything said? */
bool spw_stage_layout_is_said(const spw_stage_layout *layout);

/* Does what is said add up to the cut's layers in stages x chunks blocks? SPW_ECONFIG says what would; `key` is set to the
 * name of what is to be changed, as in "first". `model` is named in messages. */
typedef struct spw_stage_cut {
    size_t layers, stages, chunks;
    size_t predictions; /* layers of multi-token prediction that the model has */
} spw_stage_cut;
SPW_MUST_CHECK spw_status spw_stage_layout_check(const spw_stage_layout *layout, const spw_stage_cut *cut,
                                                 const char *model, const char **key);

/* Layers, beside those of multi-token prediction, of one block of a layout that was said and checked. */
size_t spw_stage_layout_layers(const spw_stage_layout *layout, const spw_stage_cut *cut, size_t stage,
                               size_t chunk);
size_t spw_stage_layout_predictions(const spw_stage_layout *layout, size_t block);

#endif
