/* Why HDF5 failed. Its functions say only that they did; whether a file is damaged, memory ran out or a disk gave an error
 * stands in its error stack, which is gone with the next call. */
#ifndef SPW_TRACES_DISK_HDF5_ERROR_H
#define SPW_TRACES_DISK_HDF5_ERROR_H

#include "base/status.h"

/* From now on HDF5 prints nothing, and every call of it that fails for want of memory or by an error of the system is noted
 * with spw_note_cause(), whether its caller looks at the return value or not. SPW_ENOMEM when HDF5 cannot begin. */
SPW_MUST_CHECK spw_status spw_hdf5_listen(void);

/* The same for the call just made, for functions of HDF5's high-level library, which keep their failures to themselves. */
void spw_hdf5_look(void);

#endif
