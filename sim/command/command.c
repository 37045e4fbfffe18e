#include "sim/command/command.h"

#include <string.h>

spw_status spw_command_parse(const struct argp *argp, int argc, char **argv, void *state) {
    int error = argp_parse(argp, argc, argv, 0, NULL, state);
    return error == 0 ? SPW_OK : spw_fail(SPW_EARG, "%s", strerror(error));
}
