/* Files that HDF5 makes, on a disk that may be full. After a failed write HDF5 cannot close a file, and dies when the process ends or
 * closes it again. Its writes go through a driver that never fails: from the first write that the system refuses, raw data is
 * dropped and metadata kept in memory, so that HDF5 comes to its end. Whoever makes the file asks here whether all of it is there. */
#ifndef SPW_TRACES_DISK_HDF5_DISK_H
#define SPW_TRACES_DISK_HDF5_DISK_H

#include "base/status.h"

#include <hdf5.h>

/* Of one file; begins zeroed and lives until the file is closed. */
typedef struct spw_hdf5_disk {
    int error; /* errno of the first write that failed; 0: none */
} spw_hdf5_disk;

/* Lets a list of file access properties write through `disk`. */
SPW_MUST_CHECK spw_status spw_hdf5_disk_use(hid_t access_list, spw_hdf5_disk *disk);

/* SPW_EIO, "cannot be written: No space left on device", when a write has failed. To be asked after every part, and after the
 * file is closed. */
SPW_MUST_CHECK spw_status spw_hdf5_disk_check(const spw_hdf5_disk *disk);

#endif
