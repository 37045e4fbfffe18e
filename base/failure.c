#include "base/failure.h"

#include <stdio.h>

void spw_failure_note(spw_failure *f, size_t at, spw_status status) {
    if (status == SPW_OK) return;
    while (atomic_flag_test_and_set(&f->taken)) {
    }
    if (f->status == SPW_OK || at < f->at) {
        f->status = (int)status;
        f->at = at;
        (void)snprintf(f->message, sizeof f->message, "%s", spw_last_error());
    }
    atomic_flag_clear(&f->taken);
}

bool spw_failure_is_there(const spw_failure *f) { return f->status != SPW_OK; }

spw_status spw_failure_tell(const spw_failure *f) {
    return f->status == SPW_OK ? SPW_OK : spw_fail((spw_status)f->status, "%s", f->message);
}
