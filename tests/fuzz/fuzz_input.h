/* What the fuzz targets share: the bytes as a file, and the rule for what is refused. */
#ifndef SPW_TESTS_FUZZ_FUZZ_INPUT_H
#define SPW_TESTS_FUZZ_FUZZ_INPUT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever is refused is refused in one line that says something; aborts otherwise. */
void spw_fuzz_refusal(spw_status status);

/* A path in a folder of this process, which goes at its end with all that it holds. Lives until the next call with this `slot`,
 * 0 to 7. */
const char *spw_fuzz_path(int slot, const char *name);
/* The same as a file that holds these bytes. */
const char *spw_fuzz_file(int slot, const char *name, const uint8_t *data, size_t size);

#endif
