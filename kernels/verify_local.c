#include "kernels/verify_local.h"

spw_status spw_verify_local(int level, spw_judge *judge) {
    (void)level, (void)judge;
    return SPW_OK;
}
