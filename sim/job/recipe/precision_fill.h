/* Formats that a job's file or an option names, and those that nobody named. Private to sim/job. */
#ifndef SPW_SIM_JOB_RECIPE_PRECISION_FILL_H
#define SPW_SIM_JOB_RECIPE_PRECISION_FILL_H

#include "sim/job/job_words.h"
#include "sim/read/settings.h"

/* Values of weights, gradients, optimizer and activations until spw_precision_fill has run. "framework" is "auto". */
extern const spw_choice spw_precision_formats[];

/* Makes bytes of the four, notes fp16, what nobody said and is fp32, and what follows sharded fp32 weights. Needs
 * job->optimizer and job->part.
 * Sharded: MaxText keeps weights and gradients in fp32, computes in bf16, and Adam's moments follow the weights (weight_dtype,
 * grad_dtype, dtype, mu_dtype: src/maxtext/configs/base.yml, AI-Hypercomputer/maxtext e591f30c). So does torchtitan (dtype,
 * mixed_precision_param, mixed_precision_reduce: torchtitan/config/configs.py, pytorch/torchtitan b5bcd76c).
 * Megatron-Core keeps bf16 weights with fp32 masters, moments and main gradients (main_grads_dtype, exp_avg_dtype:
 * megatron/core/optimizer/optimizer_config.py, megatron/training/arguments.py, NVIDIA/Megatron-LM d98e8a64).
 * Bare layers have no optimizer: bf16. "mixed" keeps all state but Megatron-Core's weights in fp32. */
void spw_precision_fill(spw_job *job);
/* The other way: values of spw_precision_formats again, so that they have names. */
void spw_precision_unfill(spw_job *job);

#endif
