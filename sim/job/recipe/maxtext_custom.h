/* MaxText's remat_policy custom, which names tensors one by one: device, offload or remat (src/maxtext/configs/base.yml of 0.2.5). Sets of
 * tensors that a named policy keeps are that policy (layers/nnx_decoders.py, get_remat_policy); others are refused. */
#ifndef SPW_SIM_JOB_RECIPE_MAXTEXT_CUSTOM_H
#define SPW_SIM_JOB_RECIPE_MAXTEXT_CUSTOM_H

#include "sim/job/recipe/maxtext_settings.h"

#include <stdbool.h>

#define SPW_MAXTEXT_POLICIES \
    "of remat_policy custom only sets of tensors that a named policy keeps are modelled; nearest: " \
    "save_qkv_proj, save_out_proj, save_dot_except_mlp, save_dot_with_context_except_mlp, minimal, " \
    "qkv_proj_offloaded"

/* A row that stands for the tensor "word" with that value; NULL: there is no such tensor. */
const spw_maxtext_setting *spw_maxtext_tensor_find(const char *word, size_t length, const char *value,
                                                   size_t value_length);

/* The policy that keeps the set "query_proj=device ..."; full where the text keeps nothing. false: no policy does. */
bool spw_maxtext_custom_policy(const char *text, spw_remat *out);

/* Takes the policy that "query_proj=device ..." says into job->remat. SPW_ECONFIG names the first tensor of a set that no policy has. Texts
 * without such words change nothing. */
SPW_MUST_CHECK spw_status spw_maxtext_custom_apply(const char *text, spw_job *job);

#endif
