/* What several names of a framework say together, as keys of a job; and back. The laws are the frameworks' own, at the commits that
 * framework.h's `source` names. */
#ifndef SPW_SIM_FRAMEWORKS_RULES_H
#define SPW_SIM_FRAMEWORKS_RULES_H

#include "sim/frameworks/draft.h"
#include "sim/frameworks/flags.h" /* spw_flag_draft */

SPW_MUST_CHECK spw_status spw_compose_megatron(spw_draft *draft);
SPW_MUST_CHECK spw_status spw_compose_maxtext(spw_draft *draft);
/* MaxText's mesh, whose axes are facts @ici_* and @dcn_*: keys of the split, and the mesh itself for spw_settle_maxtext. `sharers`: GPUs
 * of a sequence, without those of other stages. */
SPW_MUST_CHECK spw_status spw_compose_maxtext_mesh(spw_draft *draft, size_t *sharers, size_t *stages);
SPW_MUST_CHECK spw_status spw_compose_maxtext_remat(spw_draft *draft);
/* What XLA_FLAGS says beside it and a job has no key for, as doubts. */
SPW_MUST_CHECK spw_status spw_compose_xla_flags(spw_draft *draft);
SPW_MUST_CHECK spw_status spw_settle_maxtext(const spw_draft *draft, const spw_cluster *cluster, size_t nodes,
                                             size_t gpus, spw_settled *out);
SPW_MUST_CHECK spw_status spw_compose_torchtitan(spw_draft *draft);
SPW_MUST_CHECK spw_status spw_compose_deepspeed(spw_draft *draft);
SPW_MUST_CHECK spw_status spw_compose_finetune(spw_draft *draft);

/* Shared parts. GPUs from @gpus, or @nodes x @gpus_per_node. */
SPW_MUST_CHECK spw_status spw_compose_gpus(spw_draft *draft);
/* The model: a preset of the name @model_name, or of the sizes @layers, @hidden ...; sizes that no preset has become a generic model
 * within the job. Where neither does, nothing is put and a note says why. */
SPW_MUST_CHECK spw_status spw_compose_model(spw_draft *draft);
/* The same of what says its layers by letters, @pattern. */
SPW_MUST_CHECK spw_status spw_compose_hybrid(spw_draft *draft);
/* The same where a model that is named has its own sizes, whatever the file says: MaxText without override_model_config, whose
 * pyconfig.py reads configs/models/NAME.yml over base.yml. */
SPW_MUST_CHECK spw_status spw_compose_named_model(spw_draft *draft);
/* Back: facts and keys of a job as names of the framework. */
SPW_MUST_CHECK spw_status spw_express_megatron(spw_flag_draft *flags);
SPW_MUST_CHECK spw_status spw_express_maxtext(spw_flag_draft *flags);
SPW_MUST_CHECK spw_status spw_express_maxtext_mesh(spw_flag_draft *flags);
SPW_MUST_CHECK spw_status spw_express_maxtext_remat(spw_flag_draft *flags);
SPW_MUST_CHECK spw_status spw_express_torchtitan(spw_flag_draft *flags);

/* Puts `schemes` and cuda_graph_impl. recipe: of fp8, for which rows are padded; NULL: none. */
SPW_MUST_CHECK spw_status spw_compose_megatron_scheme(spw_draft *draft, const char *recipe);

#endif
