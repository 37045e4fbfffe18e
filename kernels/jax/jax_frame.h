/* What XLA hands to a custom call of ours, read by tables: buffers with their types and dimensions, attributes, the
 * device. XLA's header xla/ffi/api/c_api.h comes from the installed jaxlib. */
#ifndef SPW_KERNELS_JAX_JAX_FRAME_H
#define SPW_KERNELS_JAX_JAX_FRAME_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <xla/ffi/api/c_api.h>

enum { SPW_JAX_RANK_MAX = 3, SPW_JAX_BUFFERS_MAX = 10 };
#define SPW_JAX_ANY SIZE_MAX /* a size that is not known yet */

/* A set of element types; a buffer has one of them. */
typedef enum spw_jax_type {
    SPW_JAX_BF16 = 1,
    SPW_JAX_F32 = 2,
    SPW_JAX_S32 = 4,
    SPW_JAX_F16 = 8
} spw_jax_type;
size_t spw_jax_type_bytes(spw_jax_type type);

/* One buffer as it must be: a row of a table, in XLA's order.
 *   type       in: the types that are right; out: the one that was found. Buffers may share it.
 *   dimension  as many as are not NULL; each is a size that must be found, or SPW_JAX_ANY: the first buffer that has it
 *              says what it is
 *   data       out */
typedef struct spw_jax_buffer {
    const char *name;
    spw_jax_type *type;
    size_t *dimension[SPW_JAX_RANK_MAX];
    const void **data;
} spw_jax_buffer;

/* Reads `arguments` rows of arguments, then `results` rows of results. SPW_EARG says which buffer is how, and how it
 * would be right. */
SPW_MUST_CHECK spw_status spw_jax_read_buffers(const XLA_FFI_CallFrame *frame, const spw_jax_buffer *table,
                                               size_t arguments, size_t results);

/* A whole number in [least, most]; a finite fp32; or a list of whole numbers in [0, 2^31), which lives as long as the frame. */
SPW_MUST_CHECK spw_status spw_jax_read_number(const XLA_FFI_CallFrame *frame, const char *name, size_t least,
                                              size_t most, size_t *out);
SPW_MUST_CHECK spw_status spw_jax_read_real(const XLA_FFI_CallFrame *frame, const char *name, float *out);
SPW_MUST_CHECK spw_status spw_jax_read_list(const XLA_FFI_CallFrame *frame, const char *name,
                                            const int64_t **out, size_t *count);

/* The number of the device that the call runs on; a number that all devices of one run share; the device's stream. */
SPW_MUST_CHECK spw_status spw_jax_read_device(const XLA_FFI_CallFrame *frame, int *device);
SPW_MUST_CHECK spw_status spw_jax_read_run(const XLA_FFI_CallFrame *frame, int64_t *run);
SPW_MUST_CHECK spw_status spw_jax_read_stream(const XLA_FFI_CallFrame *frame, void **stream);

/* The body of every handler: answers XLA's question for the version of the interface, or does the work and hands its
 * message to XLA where it fails. `target` is what users know the call by, `kind` goes to the work. */
typedef spw_status spw_jax_work(const XLA_FFI_CallFrame *frame, unsigned kind);
XLA_FFI_Error *spw_jax_handle(XLA_FFI_CallFrame *frame, const char *target, spw_jax_work *work,
                              unsigned kind);

/* A function that users can register. */
#define SPW_JAX_HANDLER(name, target, work, kind) \
    __attribute__((visibility("default"))) XLA_FFI_Error *name(XLA_FFI_CallFrame *frame); \
    XLA_FFI_Error *name(XLA_FFI_CallFrame *frame) { return spw_jax_handle(frame, target, work, kind); }

#endif
