#include "sim/library/gate.h"

#include "base/temporary.h"
#include "sim/command/job_options.h"

#include <assert.h>
#include <pthread.h>

static_assert((int)SPW_CODE_OK == (int)SPW_OK && (int)SPW_CODE_MISMATCH == (int)SPW_EMISMATCH &&
                  (int)SPW_CODE_ARGUMENT == (int)SPW_EARG && (int)SPW_CODE_CONFIG == (int)SPW_ECONFIG &&
                  (int)SPW_CODE_IO == (int)SPW_EIO && (int)SPW_CODE_FORMAT == (int)SPW_EFORMAT &&
                  (int)SPW_CODE_MEMORY == (int)SPW_ENOMEM && (int)SPW_CODE_DEVICE == (int)SPW_EDEVICE,
              "the codes of the public header are those of base/status.h");

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void) {
    spw_temporary_leave_signals();
    spw_job_argp_fill();
}

void spw_gate_enter(void) {
    (void)pthread_once(&once, begin);
    (void)pthread_mutex_lock(&gate);
    spw_forget_causes();
}

spw_code spw_gate_leave(spw_status status) {
    status = spw_settle(status);
    (void)pthread_mutex_unlock(&gate);
    return (spw_code)status;
}
