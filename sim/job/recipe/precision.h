/* Number formats of a job: their names, and what the figures do not say of them. Bytes of live tensors are exact in every
 * format. What a recipe of fp8 or fp4 keeps beside them is not counted: master weights (unless precision.master says them), copies
 * that are transposed for the backward products, scales and their history, tensors that stay in higher precision. Products
 * are timed as those of bf16 alone. */
#ifndef SPW_SIM_JOB_RECIPE_PRECISION_H
#define SPW_SIM_JOB_RECIPE_PRECISION_H

#include "sim/job/job.h"

enum { SPW_PRECISION_KINDS = 4, SPW_PRECISION_TEXT = 320 };

/* Of the i-th kind: weights, gradients, optimizer, activations; "bf16", "fp16", "fp32" or "fp8". */
const char *spw_precision_kind(size_t i);
const char *spw_precision_name(const spw_precision *precision, size_t i);

bool spw_precision_is_bf16(const spw_job *job); /* all of them; fp16 counts */
bool spw_precision_any_fp8(const spw_job *job);
/* Weights, gradients or activations in fp8, beside which copies and scales stand that nothing counts. */
bool spw_precision_lacks_copies(const spw_job *job);
/* Do times speak of it? Not of weights, gradients or activations in fp8, nor of activations in fp32. */
bool spw_precision_is_timed(const spw_job *job);

/* Bytes of an element of Adam's two moments together. */
size_t spw_precision_moments(const spw_precision *precision);
/* Bytes of a weight as it is gathered over those who share it: the format of products where the weight is kept in a larger one, as
 * MaxText casts before it gathers (dtype beside weight_dtype) and FSDP2 does (mixed_precision_param). */
size_t spw_precision_gathered(const spw_job *job);
/* Bytes of a gradient before it is kept: that of a weight cast for its products is in their format, in which MaxText scatters it. */
size_t spw_precision_scattered(const spw_job *job);

/* The formats in words, for a heading: "bf16 weights, bf16 gradients, bf16 activations; Adam: bf16 moments, no master weights". */
void spw_precision_line(const spw_job *job, char out[SPW_PRECISION_TEXT]);

/* What to ask where less is kept than mixed precision keeps, moments in fp32 and master weights; NULL where it is not. Static. */
const char *spw_precision_hint(const spw_job *job);

/* Formats by one word for all, as behind --precision: framework, mixed, bf16, fp32, ...; and, behind it, of single kinds, as in
 * "bf16 weights=fp32". Master weights are the framework's own. Needs job->optimizer and job->part. False, and nothing is changed,
 * where a word is none. */
bool spw_precision_choose(spw_job *job, const char *words);

/* The other set that people use of the same job: bf16 where state is kept in fp32, mixed where it is bf16 throughout. Returns its
 * name, as one writes it behind --precision; NULL where there is none: bare layers, recipes, or activations that are not bf16. */
const char *spw_precision_other(const spw_job *job, spw_job *out);

/* Which formats nobody said and the framework's own defaults stand for, or which of the formats that were said do not hold under
 * sharded fp32 weights; false where there are none, or no state. */
bool spw_precision_assumed(const spw_job *job, char out[SPW_PRECISION_TEXT]);

/* What is to be said of the memory of a job with fp8; false where there is nothing. */
bool spw_precision_note(const spw_job *job, char out[SPW_PRECISION_TEXT]);

#endif
