/* Where the threads of several devices meet: each of them calls, and none goes on before all have come. */
#ifndef SPW_KERNELS_JAX_JAX_MEETING_H
#define SPW_KERNELS_JAX_JAX_MEETING_H

#include "kernels/jax/jax_calls.h"

/* One thread does it for all, between the last that comes and the first that goes on. part [ranks]: what each brought. */
typedef spw_status spw_jax_leader(void *const *part, const spw_jax_group *group);

typedef struct spw_jax_meeting spw_jax_meeting;

/* Waits for all ranks of the group; the n-th meeting of a run and channel is that of every rank's n-th call. `own` stays
 * readable for all until the meeting is left. leader may be NULL. SPW_EDEVICE when a rank does not come within a minute
 * (SPW_JAX_PATIENCE_S in the environment), a failure of the leader for all. After a failure there is nothing to leave. */
SPW_MUST_CHECK spw_status spw_jax_meet(const spw_jax_group *group, void *own, spw_jax_leader *leader,
                                       spw_jax_meeting **out);
void *const *spw_jax_meeting_parts(const spw_jax_meeting *meeting);

/* Waits until all ranks are done with what the others brought. A rank's failure, `own`, is a failure of all. */
SPW_MUST_CHECK spw_status spw_jax_leave(spw_jax_meeting *meeting, const spw_jax_group *group, spw_status own);

#endif
