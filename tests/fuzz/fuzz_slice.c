/* libFuzzer target of `trace slice`: whatever the bytes, the first step of a trace is cut out of it, or refused in one line. */
#include "tests/fuzz/fuzz_input.h"
#include "traces/write/slice.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t step[] = {0};
    const spw_slice_settings settings = {.step = step, .steps = 1, .layer_end = 1};
    const char *in = spw_fuzz_file(0, "in.h5", data, size), *out = spw_fuzz_path(1, "out.h5");
    spw_fuzz_refusal(spw_trace_slice(in, out, &settings));
    (void)unlink(out);
    return 0;
}
