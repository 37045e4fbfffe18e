/* What the libraries that exchange rows do not take, whatever memory there is: a row a limit, with the code that says so. */
#ifndef SPW_SIM_SCHEMES_LIBRARY_LIMITS_H
#define SPW_SIM_SCHEMES_LIBRARY_LIMITS_H

#include "sim/schemes/scheme.h"

typedef enum spw_library {
    SPW_LIBRARY_NONE,
    SPW_LIBRARY_DEEPEP,             /* the buffer of version 1, high throughput */
    SPW_LIBRARY_DEEPEP_LOW_LATENCY, /* its low-latency kernels */
    SPW_LIBRARY_HYBRIDEP
} spw_library;

/* What is limited. Of a group: `ranks` in all, `node_ranks` on a node (of a group within one, all), `nodes`. */
typedef enum spw_limited {
    SPW_LIMITED_RANKS,
    SPW_LIMITED_NODE_RANKS,
    SPW_LIMITED_NODES,
    SPW_LIMITED_HIDDEN,
    SPW_LIMITED_ROW_BYTES,
    SPW_LIMITED_TOP_K,
    SPW_LIMITED_LOCAL_EXPERTS,
    SPW_LIMITED_NODE_EXPERTS,
    SPW_LIMITED_TOKENS,
    SPW_LIMITED_BUFFER_BYTES,
    SPW_LIMITED_COUNT
} spw_limited;

typedef enum spw_limit_rule { SPW_LIMIT_AT_MOST, SPW_LIMIT_MULTIPLE_OF, SPW_LIMIT_ONE_OF } spw_limit_rule;

typedef struct spw_library_limit {
    spw_library library;
    const char *name;   /* of the library, as in a message */
    bool between_nodes; /* of a group that spans nodes alone */
    spw_limited what;
    spw_limit_rule rule;
    const char *values; /* whole numbers, a space between them */
    const char *version, *evidence, *source;
} spw_library_limit;

/* All rows; *count of them. */
const spw_library_limit *spw_library_limits(size_t *count);

/* SPW_ECONFIG names the first limit that the layer does not keep to. Nothing is asked of a group of one rank, which exchanges nothing,
 * nor where the shape has no library_limits. */
SPW_MUST_CHECK spw_status spw_library_check(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
