/* Made-up routings for the verifier and the bench: where the groups of a grouped GEMM end. */
#ifndef SPW_KERNELS_RECORD_ROUTING_H
#define SPW_KERNELS_RECORD_ROUTING_H

#include <stddef.h>
#include <stdint.h>

typedef enum spw_routing {
    SPW_ROUTING_UNIFORM, /* every row draws its expert with equal chance */
    SPW_ROUTING_ZIPF,    /* expert x with chance proportional to (x + 1)^-0.8 */
    SPW_ROUTING_ONE,     /* all rows to the middle expert */
    SPW_ROUTING_EMPTY,   /* every other expert, the first and the last without rows */
    SPW_ROUTING_SHORT,   /* uniform over 5/8 of the rows; the rest of the buffer is unused */
    SPW_ROUTING_COUNT
} spw_routing;

extern const char *const spw_routing_names[SPW_ROUTING_COUNT];

/* The expert of row (or assignment) i, or -1 for an unused one and where there are no experts. */
int spw_routing_expert(spw_routing routing, size_t experts, size_t rows, uint64_t seed, size_t i);

/* offset [experts + 1]: overwritten, in both widths; group e owns the rows [offset[e], offset[e + 1]). */
void spw_routing_offsets(spw_routing routing, size_t experts, size_t rows, uint64_t seed, size_t *offset,
                         int *offset32);

#endif
