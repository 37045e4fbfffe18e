/* What was handed to HDF5 for a file, as checksums, and whether the file says the same when it is read again. HDF5 tells of most
 * of what goes wrong between the two, not of all. */
#ifndef SPW_TRACES_DISK_HDF5_LEDGER_H
#define SPW_TRACES_DISK_HDF5_LEDGER_H

#include "base/status.h"

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

/* How the content of a dataset was written: from its first element to its last, in parts that are whole in all axes but
 * the first two, as chunks that are stored as they came, or as texts of variable length, which HDF5 keeps elsewhere. */
typedef enum spw_hdf5_way {
    SPW_HDF5_IN_ORDER,
    SPW_HDF5_PARTS,
    SPW_HDF5_CHUNKS,
    SPW_HDF5_STRINGS,
    SPW_HDF5_TEXT
} spw_hdf5_way;

typedef struct spw_hdf5_entry {
    char path[96]; /* OBJECT, or OBJECT@ATTRIBUTE of a text */
    spw_hdf5_way way;
    hid_t type; /* in memory, one that stays: H5T_NATIVE_...; H5I_INVALID_HID: the stored one */
    uint64_t sum;
} spw_hdf5_entry;

/* Begins zeroed. */
typedef struct spw_hdf5_ledger {
    spw_hdf5_entry *entry;
    size_t entries, capacity;
} spw_hdf5_ledger;

/* `data` [bytes] of a dataset was handed over: the next elements of it, or the part or chunk that begins at
 * `at` of its first two axes (NULL: at their beginning). SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_hdf5_ledger_note(spw_hdf5_ledger *ledger, const char *path, spw_hdf5_way way,
                                               hid_t type, const uint64_t at[2], const void *data,
                                               size_t bytes);

/* The text of an attribute was handed over. */
SPW_MUST_CHECK spw_status spw_hdf5_ledger_note_text(spw_hdf5_ledger *ledger, hid_t object, const char *name,
                                                    const char *text);

/* The texts [count] of a dataset of variable strings were handed over. */
SPW_MUST_CHECK spw_status spw_hdf5_ledger_note_strings(spw_hdf5_ledger *ledger, const char *path,
                                                       size_t count, const char *const *text);

/* Opens the closed file, reads all that was noted and every attribute, noted or not: SPW_EIO when something differs or cannot
 * be read. */
SPW_MUST_CHECK spw_status spw_hdf5_ledger_check(const spw_hdf5_ledger *ledger, const char *path);

/* out = the same entries; what `out` had is freed or used. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_hdf5_ledger_copy(const spw_hdf5_ledger *ledger, spw_hdf5_ledger *out);

void spw_hdf5_ledger_clear(spw_hdf5_ledger *ledger);

#endif
