/* How MaxText cuts a step into parts that run one after another.
 *
 * Without a pipeline, micro_batches are its gradient_accumulation_steps: the whole program runs M times on p = sequences / M
 * sequences and adds up the gradients.
 *
 * A pipeline of P stages is one loop of M V + P - 1 turns. In a turn every stage runs n layers on p sequences of one
 * micro-batch and hands the result on; a micro-batch goes V times round. In the first and the last turns some stages work on
 * nothing that counts (Huang et al., GPipe 2019; the circular form: AI-Hypercomputer/maxtext, layers/pipeline.py). Every turn is a
 * checkpoint: what it keeps is one [T, H] a layer, of all turns, whatever the stage: neither 1F1B nor GPipe by micro-batches. Layers without
 * experts, and MoE layers beyond the P V n, run before the loop on all GPUs, for which a stage is then one more split of the batch.
 *
 * job.micro_batches of a pipeline that says none (1) is P, as MaxText has it, each of the job's sequences_per_gpu: MaxText's
 * per_device_batch_size. Where it says M, a GPU works on its sequences in M parts, as everywhere: then per_device_batch_size is
 * sequences / P. job.virtual_stages is V; where it says none (0), n is 1, again as MaxText has it. */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_CUT_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_CUT_H

#include "sim/job/job_words.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>

typedef struct spw_compiled_cut {
    size_t stages, micro_batches; /* P, M */
    size_t sequences;             /* p, of a micro-batch on one GPU */
    size_t layers, repeats;       /* n, MoE layers of a stage and turn; V */
    size_t turns;                 /* of the loop; 0 without a pipeline */
    size_t piped, outside; /* MoE layers in the loop, and before it; without a pipeline all are outside */
    bool stores;           /* what leaves the last stage waits for its next round: V > 1 and M > P */
    double gpu_sequences;  /* of one GPU and step where all GPUs split the batch: p M / P */
} spw_compiled_cut;

/* SPW_ECONFIG where MaxText would not: micro-batches that are no multiple of the stages, fewer MoE layers than P V. */
SPW_MUST_CHECK spw_status spw_compiled_cut_of(const spw_job *job, size_t sequences, spw_compiled_cut *out);

enum { SPW_COMPILED_CUT_TEXT = 256 };
/* The cut in a sentence; false, and "", where the step is not cut. */
bool spw_compiled_cut_note(const spw_compiled_cut *cut, char text[SPW_COMPILED_CUT_TEXT]);

/* A MoE layer as the loop runs it, or outside of a loop. */
spw_layer_shape spw_compiled_cut_shape(const spw_job *job, const spw_compiled_cut *cut);

#endif
