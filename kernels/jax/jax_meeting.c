#include "kernels/jax/jax_meeting.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_S = 60, MESSAGE = 512 };

struct spw_jax_meeting {
    spw_jax_meeting *next; /* the younger one */
    int64_t run, device;   /* of the group: its first */
    size_t channel, came, inside, done;
    bool open; /* all have come, and the leader has done its work */
    bool has[SPW_JAX_RANKS_MAX];
    void *part[SPW_JAX_RANKS_MAX];
    spw_status status; /* the first failure, and what it said */
    char message[MESSAGE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static spw_jax_meeting *oldest;

static struct timespec limit(long *seconds) {
    const char *text = getenv("SPW_JAX_PATIENCE_S");
    struct timespec until;
    *seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    if (*seconds < 1 || *seconds > 86400) *seconds = PATIENCE_S;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += *seconds;
    return until;
}

/* The oldest meeting of this run and channel to which the rank has not come yet; a new one where there is none. */
static spw_jax_meeting *meeting_of(const spw_jax_group *g) {
    spw_jax_meeting **at = &oldest, *m = NULL;
    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->run == g->run && (*at)->channel == g->channel && (*at)->device == g->devices[0] &&
            !(*at)->has[g->rank])
            return *at;
    }
    if (SPW_ALLOC(1, &m) != SPW_OK) return NULL;
    m->run = g->run, m->channel = g->channel, m->device = g->devices[0];
    return *at = m;
}

static void note(spw_jax_meeting *m, spw_status status) {
    if (status == SPW_OK || m->status != SPW_OK) return;
    m->status = status;
    (void)snprintf(m->message, sizeof m->message, "%s", spw_last_error());
    (void)pthread_cond_broadcast(&changed);
}

/* With the lock held: waits until the meeting is open, or one that has waited long enough gives up for all. Once all have come,
 * only the leader is waited for, whose work ends. */
static void wait_for_all(spw_jax_meeting *m, const spw_jax_group *g) {
    long seconds = 0;
    const struct timespec until = limit(&seconds);
    while (!m->open && m->status == SPW_OK) {
        if (m->came == g->ranks) {
            (void)pthread_cond_wait(&changed, &lock);
            continue;
        }
        if (pthread_cond_timedwait(&changed, &lock, &until) != ETIMEDOUT || m->came == g->ranks) continue;
        size_t absent = 0;
        while (m->has[absent]) absent++;
        note(m, spw_fail(
                    SPW_EDEVICE,
                    "rank %zu waited %ld s for rank %zu, which did not come; %zu of %zu ranks are here. The "
                    "same calls on every rank, in the same order, would be right",
                    g->rank, seconds, absent, m->came, g->ranks));
    }
}

/* With the lock held: the rank goes, with the meeting's status; the last one takes the meeting down. */
static spw_status go(spw_jax_meeting *m) {
    const spw_status status = m->status == SPW_OK ? SPW_OK : spw_fail(m->status, "%s", m->message);
    if (--m->inside == 0) {
        spw_jax_meeting **at = &oldest;
        while (*at != m) at = &(*at)->next;
        *at = m->next;
        spw_free(m);
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}

spw_status spw_jax_meet(const spw_jax_group *g, void *own, spw_jax_leader *leader, spw_jax_meeting **out) {
    (void)pthread_mutex_lock(&lock);
    spw_jax_meeting *m = meeting_of(g);
    *out = NULL;
    if (m == NULL) {
        (void)pthread_mutex_unlock(&lock);
        return spw_fail(SPW_ENOMEM, "no memory for a meeting of %zu ranks", g->ranks);
    }
    m->has[g->rank] = true, m->part[g->rank] = own, m->inside++;
    if (++m->came == g->ranks && m->status == SPW_OK) {
        (void)pthread_mutex_unlock(&lock); /* nobody else goes on: it is not open */
        const spw_status status = leader == NULL ? SPW_OK : leader(m->part, g);
        (void)pthread_mutex_lock(&lock);
        note(m, status);
        m->open = status == SPW_OK;
        (void)pthread_cond_broadcast(&changed);
    }
    wait_for_all(m, g);
    if (!m->open) return go(m);
    (void)pthread_mutex_unlock(&lock);
    *out = m;
    return SPW_OK;
}

void *const *spw_jax_meeting_parts(const spw_jax_meeting *m) { return m->part; }

/* Without a limit: all of them are here, and what they do in a meeting ends. */
spw_status spw_jax_leave(spw_jax_meeting *m, const spw_jax_group *g, spw_status own) {
    (void)pthread_mutex_lock(&lock);
    note(m, own);
    m->done++;
    (void)pthread_cond_broadcast(&changed);
    while (m->done < g->ranks) (void)pthread_cond_wait(&changed, &lock);
    return go(m);
}
