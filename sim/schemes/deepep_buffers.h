/* DeepEP V1: bytes a token row takes on the wire, and the sizes of the communication buffers
 * (docs/schemes.md, sections 4.2 and 4.3; deepseek-ai/DeepEP csrc/legacy/config.hpp). */
#ifndef SPW_SIM_SCHEMES_DEEPEP_BUFFERS_H
#define SPW_SIM_SCHEMES_DEEPEP_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

/* NVLink and, beyond 8 ranks, RDMA buffer of one rank, with `sms` multiprocessors in use (two a channel).
 * They do not depend on the tokens: rows pass through rings. element_bytes counts as 2 at least. */
typedef struct spw_deepep_buffers {
    uint64_t nvl_bytes, rdma_bytes;
} spw_deepep_buffers;
spw_deepep_buffers spw_deepep_buffer_hint(size_t ranks, size_t hidden, size_t element_bytes, size_t sms);

#endif
