/* Arrays of numpy: .npy (format 1.0 to 3.0: magic, a header written as a Python dictionary, the elements) and .npz, a zip file of
 * them (libzip). Whole numbers, floats and texts; pickled objects, records and complex numbers are refused. An array must fill its
 * file to the last byte, so nothing is allocated that is not there. */
#ifndef SPW_TRACES_IMPORTERS_NPY_H
#define SPW_TRACES_IMPORTERS_NPY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_NPY_MAX_RANK = 8, SPW_NPY_WHERE = 512 };

typedef struct spw_npy {
    unsigned char *bytes; /* the file; owned */
    size_t length;
    char where[SPW_NPY_WHERE]; /* for messages */
    char kind;                 /* i, u: whole numbers; f: floats; U: a text of UTF-32 */
    size_t element_bytes, rank;
    bool big_endian;
    size_t extent[SPW_NPY_MAX_RANK], stride[SPW_NPY_MAX_RANK]; /* elements from one index to the next */
    const unsigned char *data;
} spw_npy;

/* SPW_EIO: cannot be read; SPW_EFORMAT: not such an array. */
SPW_MUST_CHECK spw_status spw_npy_open(const char *path, spw_npy *out);
void spw_npy_close(spw_npy *npy); /* a zeroed struct is fine */

/* Element `at`, a sum of index x stride, of whole numbers. *fits false: above INT64_MAX. */
int64_t spw_npy_at(const spw_npy *npy, size_t at, bool *fits);
/* The same of floats. */
double spw_npy_real_at(const spw_npy *npy, size_t at);
/* True when the elements are whole numbers. */
bool spw_npy_is_whole(const spw_npy *npy);
/* The text of a scalar of kind U; what is not ASCII becomes '?'. */
SPW_MUST_CHECK spw_status spw_npy_text(const spw_npy *npy, char *out, size_t size);

typedef struct spw_npz spw_npz;
/* `path` must outlive *out. */
SPW_MUST_CHECK spw_status spw_npz_open(const char *path, spw_npz **out);
void spw_npz_close(spw_npz *npz); /* NULL is fine */
/* Refuses arrays that are not in `known`, which ends with NULL. */
SPW_MUST_CHECK spw_status spw_npz_check_names(spw_npz *npz, const char *const *known);
/* The names of all arrays, without .npy, by the last number in each: "arr_2" before "arr_10". SPW_EFORMAT: an array without a
 * number, or two of one number. Freed by the caller; *out [*count]. */
typedef struct spw_npz_name {
    char text[64];
    int32_t number;
} spw_npz_name;
SPW_MUST_CHECK spw_status spw_npz_list(spw_npz *npz, spw_npz_name **out, size_t *count);
/* The array `name`.npy. */
SPW_MUST_CHECK spw_status spw_npz_read(spw_npz *npz, const char *name, spw_npy *out);

#endif
