/* Megatron-Core's recompute_modules: what a layer computes again in its backward pass, one module or several
 * (NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/transformer_config.py; docs/schemes.md, section 7.3). */
#ifndef SPW_SIM_JOB_RECIPE_REMAT_MODULES_H
#define SPW_SIM_JOB_RECIPE_REMAT_MODULES_H

#include "sim/job/job_words.h"
#include "sim/model/module.h"
#include "sim/read/settings.h"

#include <stdbool.h>

/* Their bits; 0 of none, full and MaxText's policies. selective is core_attn alone. */
unsigned spw_remat_modules(spw_remat remat);
bool spw_remat_repeats(spw_remat remat, spw_module module);
/* Does the backward pass run any of these modules again, by itself or as full has the whole layer? */
bool spw_remat_runs_again(spw_remat remat, unsigned modules);
/* Modules beyond those in `read`: of which something is not described. */
bool spw_remat_exceeds(spw_remat remat, unsigned read);

/* Of a job's table: all names, the modules, and the remat of some of these (not 0). */
extern const spw_choice spw_remat_choices[], spw_remat_modules_list[];
size_t spw_remat_join(size_t modules);

#endif
