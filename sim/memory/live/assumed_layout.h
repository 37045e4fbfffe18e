/* Layers that pipeline x virtual stages do not divide, of a job of Megatron-Core that does not say which stage holds which:
 * Megatron-Core refuses that at its start (NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/transformer_block.py
 * get_num_layers_to_build). `pipeline` is the job's, or that of a point of a search. Counted is what sim/weights/pipeline.h shares out, and the layout that makes it so is named. */
#ifndef SPW_SIM_MEMORY_LIVE_ASSUMED_LAYOUT_H
#define SPW_SIM_MEMORY_LIVE_ASSUMED_LAYOUT_H

#include "sim/job/job_words.h"
#include "sim/job/stage_layout.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */

/* The text of parallel.pipeline_model_parallel_layout that has the same blocks, as in "Ett(|tt)*28(|t)*3L"; false: none is needed. */
bool spw_assumed_layout(const spw_pipeline *pipeline, const spw_job *job, const spw_scheme *scheme,
                        char out[SPW_LAYOUT_TEXT]);

enum { SPW_ASSUMED_LAYOUT_TEXT = SPW_LAYOUT_TEXT + 320 };
/* The same in a sentence, with the layers of every stage. */
bool spw_assumed_layout_note(const spw_pipeline *pipeline, const spw_job *job, const spw_scheme *scheme,
                             char out[SPW_ASSUMED_LAYOUT_TEXT]);

#endif
