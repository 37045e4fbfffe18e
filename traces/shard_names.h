/* Which files a set of shards is. */
#ifndef SPW_TRACES_SHARD_NAMES_H
#define SPW_TRACES_SHARD_NAMES_H

#include "base/status.h"

#include <stddef.h>

enum { SPW_MAX_SHARDS = 1 << 20 };

typedef struct spw_shard_names {
    char **path; /* [count] of a folder: in the order of their names */
    size_t count;
} spw_shard_names;

/* As spw_shard_set_read() says. */
SPW_MUST_CHECK spw_status spw_shard_names_read(const char *path, spw_shard_names *out);
void spw_shard_names_clear(spw_shard_names *names); /* a zeroed one is fine */

#endif
