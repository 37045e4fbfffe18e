/* Threads for work that one thread brings in piece by piece. Unlike those of OpenMP they sleep while they wait, so that a
 * busy machine costs no more than its share: a parallel region that ends while one of its threads waits for a
 * processor keeps all the others spinning. */
#ifndef SPW_TRACES_DISK_WORKER_POOL_H
#define SPW_TRACES_DISK_WORKER_POOL_H

#include "base/status.h"

#include <stddef.h>

typedef struct spw_worker_pool spw_worker_pool;

/* `threads` in all, the caller of run() among them; fewer where the system gives no more. */
SPW_MUST_CHECK spw_status spw_worker_pool_create(size_t threads, spw_worker_pool **out);
void spw_worker_pool_destroy(spw_worker_pool *pool); /* NULL is fine */
size_t spw_worker_pool_threads(const spw_worker_pool *pool);

typedef struct spw_work {
    size_t count;
    void (*bring)(void *context, size_t item);                 /* on the calling thread, 0 1 2 ... */
    void (*handle)(void *context, size_t item, size_t thread); /* once it was brought; thread < threads */
    void *context;
} spw_work;

/* Returns when everything is handled. One call at a time. */
void spw_worker_pool_run(spw_worker_pool *pool, const spw_work *work);

#endif
