#include "traces/disk/hdf5_error.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What the error stack says, from the innermost record on. */
typedef struct reason {
    unsigned records;
    spw_status status;
    int system_error; /* errno, 0: none */
    bool lock;        /* of a lock that a file should get */
} reason;

static herr_t read_record(unsigned number, const H5E_error2_t *record, void *context) {
    static const char mark[] = "errno = ";
    reason *why = context;
    const char *at = record->desc != NULL ? strstr(record->desc, mark) : NULL;
    (void)number;
    why->records++;
    if (why->status != SPW_OK) return 0;
    if (record->maj_num == H5E_RESOURCE || record->min_num == H5E_NOSPACE || record->min_num == H5E_CANTALLOC)
        why->status = SPW_ENOMEM;
    /* no file can take a property from a list of HDF5's own: short of memory, HDF5 began without it and said nothing */
    if (record->maj_num == H5E_PLIST && record->min_num == H5E_NOTFOUND) why->status = SPW_ENOMEM;
    if (at == NULL) return 0;
    why->status = SPW_EIO;
    why->lock = strstr(record->desc, "lock file") != NULL;
    why->system_error = (int)strtol(at + sizeof mark - 1, NULL, 10);
    return 0;
}

static herr_t note(hid_t stack, void *nothing) {
    reason why = {.status = SPW_OK};
    (void)nothing;
    if (H5Ewalk2(stack, H5E_WALK_UPWARD, read_record, &why) < 0 || why.records == 0)
        why.status = SPW_ENOMEM; /* not even the record of the failure found room */
    if (why.status == SPW_ENOMEM) spw_note_cause(SPW_ENOMEM, "out of memory in HDF5");
    if (why.status == SPW_EIO && why.lock) {
        spw_note_cause(
            SPW_EIO,
            "this file system gives HDF5 no lock, which HDF5_USE_FILE_LOCKING asks for: set it to FALSE");
    } else if (why.status == SPW_EIO) {
        spw_note_cause(SPW_EIO, why.system_error != 0 ? strerror(why.system_error) : "input/output error");
    }
    return 0;
}

spw_status spw_hdf5_listen(void) {
    /* short of memory HDF5 begins without the driver of its files, says nothing, and takes every file for a foreign one */
    if (H5open() >= 0 && H5Eset_auto2(H5E_DEFAULT, note, NULL) >= 0 &&
        H5Iget_type(H5Pget_driver(H5P_FILE_ACCESS_DEFAULT)) == H5I_VFL)
        return SPW_OK;
    return spw_fail(SPW_ENOMEM, "out of memory: HDF5 cannot begin");
}

void spw_hdf5_look(void) {
    if (H5Eget_num(H5E_DEFAULT) > 0) (void)note(H5E_DEFAULT, NULL);
}
