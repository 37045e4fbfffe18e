/* spillway-verify: every kernel against the reference, on a machine with a GPU and nothing else. Exit status
 * 0 all agree, 1 a comparison failed, 2 usage, 3 no GPU or a file that cannot be used. */
#include "kernels/verify_device.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const bool record = argc == 3 && strcmp(argv[1], "--record") == 0;
    if (argc > 2 && !record) {
        fprintf(stderr, "usage: spillway-verify [small | reduced | full | all | --record FILE]\n");
        return 2;
    }
    const char *level = argc == 2 ? argv[1] : "small";
    const spw_status status = spw_verify_device(record ? NULL : level, record ? argv[2] : NULL);
    if (status != SPW_OK) fprintf(stderr, "spillway-verify: %s\n", spw_last_error());
    return spw_status_exit(status);
}
