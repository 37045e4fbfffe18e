#include "sim/command.h"

spw_status spw_command_trace(int argc, char **argv) {
    (void)argc, (void)argv;
    return spw_fail(SPW_EARG, "under way");
}
