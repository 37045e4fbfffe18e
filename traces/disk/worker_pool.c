#include "traces/disk/worker_pool.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct worker {
    spw_worker_pool *pool;
    pthread_t thread;
    size_t number;
} worker;

struct spw_worker_pool {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t more, done;
    const spw_work *work;
    size_t brought, taken, handled;
    bool stop;
    worker *workers;
    size_t started;
    pid_t owner; /* a forked child has the pool without its threads, and perhaps with its lock taken */
};

static bool has_threads(const spw_worker_pool *pool) { return pool->started > 0 && pool->owner == getpid(); }

/* Takes one item and handles it; false when none is there. The lock is held before and after. */
static bool handle_one(spw_worker_pool *pool, size_t thread) {
    if (pool->taken == pool->brought) return false;
    const spw_work *work = pool->work;
    size_t item = pool->taken++;
    (void)pthread_mutex_unlock(&pool->lock);
    work->handle(work->context, item, thread);
    (void)pthread_mutex_lock(&pool->lock);
    if (++pool->handled == work->count) (void)pthread_cond_signal(&pool->done);
    return true;
}

static void *work_on(void *argument) {
    const worker *self = argument;
    spw_worker_pool *pool = self->pool;
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (!handle_one(pool, self->number)) (void)pthread_cond_wait(&pool->more, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

spw_status spw_worker_pool_create(size_t threads, spw_worker_pool **out) {
    spw_status status = SPW_OK;
    spw_worker_pool *pool = NULL;
    *out = NULL;
    if (threads < 1) threads = 1;
    SPW_TRY(SPW_ALLOC(1, &pool));
    pool->owner = getpid();
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->more, NULL);
    (void)pthread_cond_init(&pool->done, NULL);
    SPW_TRY(SPW_ALLOC(threads - 1, &pool->workers));
    for (size_t i = 0; i < threads - 1; i++) {
        pool->workers[i] = (worker){.pool = pool, .number = i + 1};
        if (pthread_create(&pool->workers[i].thread, NULL, work_on, &pool->workers[i]) != 0) break;
        pool->started++;
    }
    *out = pool;
    pool = NULL;

cleanup:
    spw_worker_pool_destroy(pool);
    return status;
}

void spw_worker_pool_destroy(spw_worker_pool *pool) {
    if (pool == NULL) return;
    if (pool->owner == getpid()) {
        (void)pthread_mutex_lock(&pool->lock);
        pool->stop = true;
        (void)pthread_cond_broadcast(&pool->more);
        (void)pthread_mutex_unlock(&pool->lock);
        for (size_t i = 0; i < pool->started; i++) (void)pthread_join(pool->workers[i].thread, NULL);
        (void)pthread_cond_destroy(&pool->more);
        (void)pthread_cond_destroy(&pool->done);
        (void)pthread_mutex_destroy(&pool->lock);
    }
    spw_free(pool->workers);
    spw_free(pool);
}

size_t spw_worker_pool_threads(const spw_worker_pool *pool) { return pool->started + 1; }

void spw_worker_pool_run(spw_worker_pool *pool, const spw_work *work) {
    if (work->count == 0) return;
    if (!has_threads(pool)) {
        for (size_t item = 0; item < work->count; item++) {
            work->bring(work->context, item);
            work->handle(work->context, item, 0);
        }
        return;
    }
    (void)pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->brought = pool->taken = pool->handled = 0;
    for (size_t item = 0; item < work->count; item++) {
        (void)pthread_mutex_unlock(&pool->lock);
        work->bring(work->context, item);
        (void)pthread_mutex_lock(&pool->lock);
        pool->brought++;
        if (work->count > 1) (void)pthread_cond_signal(&pool->more);
    }
    while (handle_one(pool, 0)) {
    }
    while (pool->handled < work->count) (void)pthread_cond_wait(&pool->done, &pool->lock);
    (void)pthread_mutex_unlock(&pool->lock);
}
