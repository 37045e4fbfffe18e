#include "kernels/jax/jax_frame.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 160 };

static const struct {
    spw_jax_type type;
    XLA_FFI_DataType code;
    const char *name;
    size_t bytes;
} types[] = {
    {SPW_JAX_BF16, XLA_FFI_DataType_BF16, "bf16", 2},
    {SPW_JAX_F16, XLA_FFI_DataType_F16, "fp16", 2},
    {SPW_JAX_F32, XLA_FFI_DataType_F32, "fp32", 4},
    {SPW_JAX_S32, XLA_FFI_DataType_S32, "int32", 4},
};
enum { TYPES = sizeof types / sizeof types[0] };

size_t spw_jax_type_bytes(spw_jax_type type) {
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type) return types[i].bytes;
    return 0;
}

/* "bf16 or fp32 [8][16]" of what is right; a size that nothing has fixed yet is "any". */
static void say_right(const spw_jax_buffer *b, char *out, size_t size) {
    size_t at = 0;
    for (size_t i = 0; i < TYPES && at < size; i++)
        if (types[i].type & *b->type)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? " or " : "", types[i].name);
    if (at < size) at += (size_t)snprintf(out + at, size - at, " ");
    for (size_t i = 0; i < SPW_JAX_RANK_MAX && b->dimension[i] != NULL && at < size; i++) {
        if (*b->dimension[i] == SPW_JAX_ANY)
            at += (size_t)snprintf(out + at, size - at, "[any]");
        else
            at += (size_t)snprintf(out + at, size - at, "[%zu]", *b->dimension[i]);
    }
}

static void say_found(const XLA_FFI_Buffer *found, char *out, size_t size) {
    size_t at = 0;
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].code == found->dtype) at = (size_t)snprintf(out, size, "%s ", types[i].name);
    if (at == 0) at = (size_t)snprintf(out, size, "XLA's type %d ", (int)found->dtype);
    for (int64_t i = 0; i < found->rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "[%lld]", (long long)found->dims[i]);
}

static spw_status read_buffer(const spw_jax_buffer *want, const char *what, const XLA_FFI_Buffer *found) {
    char right[TEXT], is[TEXT];
    int64_t rank = 0;
    spw_jax_type type = 0;
    while (rank < SPW_JAX_RANK_MAX && want->dimension[rank] != NULL) rank++;
    say_right(want, right, sizeof right);
    say_found(found, is, sizeof is);
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].code == found->dtype) type = types[i].type & *want->type;
    bool good = type != 0 && found->rank == rank;
    for (int64_t i = 0; good && i < rank; i++) {
        size_t *size = want->dimension[i];
        if (*size == SPW_JAX_ANY) *size = (size_t)found->dims[i];
        good = *size == (size_t)found->dims[i];
    }
    if (!good) return spw_fail(SPW_EARG, "%s %s is %s; %s would be right", what, want->name, is, right);
    *want->type = type;
    *want->data = found->data;
    return SPW_OK;
}

spw_status spw_jax_read_buffers(const XLA_FFI_CallFrame *frame, const spw_jax_buffer *table, size_t arguments,
                                size_t results) {
    if ((size_t)frame->args.size != arguments || (size_t)frame->rets.size != results)
        return spw_fail(SPW_EARG, "%lld arguments and %lld results; %zu and %zu would be right",
                        (long long)frame->args.size, (long long)frame->rets.size, arguments, results);
    for (size_t i = 0; i < arguments + results; i++) {
        const bool result = i >= arguments;
        const size_t at = result ? i - arguments : i;
        const XLA_FFI_Buffer *found = result ? frame->rets.rets[at] : frame->args.args[at];
        const spw_status status = read_buffer(&table[i], result ? "result" : "argument", found);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* The attribute of that name and kind, or NULL. */
static const void *find(const XLA_FFI_CallFrame *frame, const char *name, XLA_FFI_AttrType type) {
    const XLA_FFI_Attrs *a = &frame->attrs;
    for (int64_t i = 0; i < a->size; i++) {
        if (a->types[i] == type && a->names[i]->len == strlen(name) &&
            memcmp(a->names[i]->ptr, name, a->names[i]->len) == 0)
            return a->attrs[i];
    }
    return NULL;
}

spw_status spw_jax_read_number(const XLA_FFI_CallFrame *frame, const char *name, size_t least, size_t most,
                               size_t *out) {
    const XLA_FFI_Scalar *scalar = find(frame, name, XLA_FFI_AttrType_SCALAR);
    if (scalar == NULL || scalar->dtype != XLA_FFI_DataType_S64)
        return spw_fail(SPW_EARG, "no attribute %s; an int64 would be right", name);
    const int64_t value = *(const int64_t *)scalar->value;
    if (value < 0 || (size_t)value < least || (size_t)value > most)
        return spw_fail(SPW_EARG, "attribute %s is %lld; %zu to %zu would be right", name, (long long)value,
                        least, most);
    *out = (size_t)value;
    return SPW_OK;
}

spw_status spw_jax_read_real(const XLA_FFI_CallFrame *frame, const char *name, float *out) {
    const XLA_FFI_Scalar *scalar = find(frame, name, XLA_FFI_AttrType_SCALAR);
    if (scalar == NULL || scalar->dtype != XLA_FFI_DataType_F32)
        return spw_fail(SPW_EARG, "no attribute %s; an fp32 would be right", name);
    const float value = *(const float *)scalar->value;
    if (!isfinite(value))
        return spw_fail(SPW_EARG, "attribute %s is %g; a finite number would be right", name, (double)value);
    *out = value;
    return SPW_OK;
}

spw_status spw_jax_read_list(const XLA_FFI_CallFrame *frame, const char *name, const int64_t **out,
                             size_t *count) {
    const XLA_FFI_Array *array = find(frame, name, XLA_FFI_AttrType_ARRAY);
    if (array == NULL || array->dtype != XLA_FFI_DataType_S64 || array->size == 0)
        return spw_fail(SPW_EARG, "no attribute %s; a list of int64 would be right", name);
    *out = array->data, *count = array->size;
    for (size_t i = 0; i < *count; i++) {
        if ((*out)[i] < 0 || (*out)[i] > INT32_MAX)
            return spw_fail(SPW_EARG, "attribute %s holds %lld; 0 to 2^31 - 1 would be right", name,
                            (long long)(*out)[i]);
    }
    return SPW_OK;
}

/* The message of an error of XLA is its own affair; here it is only destroyed. */
static spw_status asked(const XLA_FFI_CallFrame *frame, XLA_FFI_Error *error, const char *what) {
    if (error == NULL) return SPW_OK;
    XLA_FFI_Error_Destroy_Args destroy = {.struct_size = sizeof destroy, .error = error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
    return spw_fail(SPW_EDEVICE, "XLA gives no %s", what);
}

spw_status spw_jax_read_device(const XLA_FFI_CallFrame *frame, int *device) {
    XLA_FFI_DeviceOrdinal_Get_Args a = {.struct_size = sizeof a, .ctx = frame->ctx};
    const spw_status status = asked(frame, frame->api->XLA_FFI_DeviceOrdinal_Get(&a), "number of the device");
    *device = a.device_ordinal;
    return status;
}

spw_status spw_jax_read_run(const XLA_FFI_CallFrame *frame, int64_t *run) {
    XLA_FFI_RunId_Get_Args a = {.struct_size = sizeof a, .ctx = frame->ctx};
    const spw_status status = asked(frame, frame->api->XLA_FFI_RunId_Get(&a), "number of the run");
    *run = a.run_id;
    return status;
}

spw_status spw_jax_read_stream(const XLA_FFI_CallFrame *frame, void **stream) {
    XLA_FFI_Stream_Get_Args a = {.struct_size = sizeof a, .ctx = frame->ctx};
    const spw_status status = asked(frame, frame->api->XLA_FFI_Stream_Get(&a), "stream");
    *stream = a.stream;
    return status;
}

static XLA_FFI_Error_Code code_of(spw_status status) {
    switch (status) {
    case SPW_EARG: return XLA_FFI_Error_Code_INVALID_ARGUMENT;
    case SPW_ENOMEM: return XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    case SPW_EDEVICE: return XLA_FFI_Error_Code_UNAVAILABLE;
    default: return XLA_FFI_Error_Code_INTERNAL;
    }
}

XLA_FFI_Error *spw_jax_handle(XLA_FFI_CallFrame *frame, const char *target, spw_jax_work *work,
                              unsigned kind) {
    if (frame->extension_start != NULL && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        metadata->api_version.major_version = XLA_FFI_API_MAJOR;
        metadata->api_version.minor_version = XLA_FFI_API_MINOR;
        metadata->traits = 0; /* never part of a recorded graph: a launch holds the number of its exchange */
        return NULL;
    }
    if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return NULL;
    const spw_status status = work(frame, kind);
    if (status == SPW_OK) return NULL;
    char message[1024];
    (void)snprintf(message, sizeof message, "%s: %s", target, spw_last_error());
    XLA_FFI_Error_Create_Args error = {
        .struct_size = sizeof error, .message = message, .errc = code_of(status)};
    return frame->api->XLA_FFI_Error_Create(&error);
}
