/* Stands in for device.c where no GPU compiler was there, so that no other file needs an #ifdef. */
#include "kernels/gpu/device.h"

int spw_device_count(void) { return 0; }
int spw_device_multiprocessors(void) { return 0; }
const char *spw_device_name(void) { return "none"; }
const char *spw_device_architecture(void) { return "none"; }
const char *spw_device_runtime(void) { return ""; }
