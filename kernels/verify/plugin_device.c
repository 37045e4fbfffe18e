#include "kernels/verify/plugin_device.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"

#include <string.h>

/* The operands of a case between guard bands of the device. */
typedef struct on_device {
    spw_device_array input[SPW_KERNEL_INPUTS], offset, output, index;
} on_device;

static spw_status copy_in(const void *host, size_t bytes, spw_device_array *array) {
    const spw_status status = spw_device_array_create(bytes, array);
    return status == SPW_OK ? spw_device_upload(array, host) : status;
}

static void on_device_destroy(on_device *d) {
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) spw_device_array_destroy(&d->input[i]);
    spw_device_array_destroy(&d->offset);
    spw_device_array_destroy(&d->output);
    spw_device_array_destroy(&d->index);
}

/* The kernel's inputs are as they were. */
static spw_status check_input(const spw_device_array *array, const void *was, size_t bytes,
                              const char *name) {
    void *is = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_alloc(bytes, 1, &is));
    SPW_TRY(spw_device_download(array, is));
    if (memcmp(is, was, bytes) != 0)
        SPW_TRY(spw_fail(SPW_EMISMATCH, "the kernel wrote to its %s, which must stay as it is", name));

cleanup:
    spw_free(is);
    return status;
}

spw_status spw_plugin_run_on_device(spw_kernel_function *function, const spw_kernel_case *c, int *answer) {
    spw_kernel_call call = c->call;
    on_device d = {.output = {.data = NULL}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) {
        if (c->input_bytes[i] == 0) continue;
        SPW_TRY(copy_in(c->call.input[i], c->input_bytes[i], &d.input[i]));
        call.input[i] = d.input[i].data;
    }
    if (c->offset != NULL) {
        SPW_TRY(copy_in(c->offset, c->offsets * sizeof *c->offset, &d.offset));
        call.offset = d.offset.data;
    }
    SPW_TRY(spw_device_array_create(c->output_bytes, &d.output)); /* every byte is 0xff */
    call.output = d.output.data;
    if (c->index_bytes > 0) {
        SPW_TRY(spw_device_array_create(c->index_bytes, &d.index));
        call.index = d.index.data;
    }
    *answer = function(&call);
    SPW_TRY(spw_device_synchronize());
    SPW_TRY(spw_device_array_guards(&d.output));
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) {
        static const char *const names[SPW_KERNEL_INPUTS] = {"input 0", "input 1", "input 2"};
        if (c->input_bytes[i] == 0) continue;
        SPW_TRY(spw_device_array_guards(&d.input[i]));
        SPW_TRY(check_input(&d.input[i], c->call.input[i], c->input_bytes[i], names[i]));
    }
    if (c->offset != NULL)
        SPW_TRY(check_input(&d.offset, c->offset, c->offsets * sizeof *c->offset, "offset"));
    SPW_TRY(spw_device_download(&d.output, c->call.output));
    if (c->index_bytes > 0) {
        SPW_TRY(spw_device_array_guards(&d.index));
        SPW_TRY(spw_device_download(&d.index, c->call.index));
    }

cleanup:
    on_device_destroy(&d);
    return status;
}
