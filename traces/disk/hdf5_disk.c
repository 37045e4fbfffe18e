#include "traces/disk/hdf5_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Metadata that the disk did not take, in the order in which it was written. */
typedef struct kept {
    struct kept *next;
    haddr_t at;
    size_t bytes;
    unsigned char data[];
} kept;

typedef struct disk_file {
    H5FD_t public; /* first, as HDF5 wants it */
    int descriptor;
    dev_t device;
    ino_t inode;
    haddr_t allocated, end;
    kept *first, *last;
    spw_hdf5_disk *disk;
} disk_file;

typedef struct disk_setting {
    spw_hdf5_disk *disk;
} disk_setting;

static void refuse(disk_file *f, int error) {
    if (f->disk->error == 0) f->disk->error = error != 0 ? error : EIO;
}

static H5FD_t *open_file(const char *name, unsigned flags, hid_t list, haddr_t most) {
    const disk_setting *setting = H5Pget_driver_info(list);
    struct stat entry;
    (void)most;
    if (setting == NULL || (flags & H5F_ACC_RDWR) == 0) return NULL;
    disk_file *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    const int made =
        ((flags & H5F_ACC_TRUNC) != 0 ? O_TRUNC : 0) | ((flags & H5F_ACC_CREAT) != 0 ? O_CREAT : 0);
    f->descriptor = open(name, O_RDWR | O_CLOEXEC | made, 0666);
    f->disk = setting->disk;
    if (f->descriptor < 0 || fstat(f->descriptor, &entry) != 0) {
        if (f->descriptor >= 0) (void)close(f->descriptor);
        free(f);
        return NULL;
    }
    f->device = entry.st_dev;
    f->inode = entry.st_ino;
    f->end = (haddr_t)entry.st_size;
    return &f->public;
}

static herr_t close_file(H5FD_t *file) {
    disk_file *f = (disk_file *)file;
    if (close(f->descriptor) != 0) refuse(f, errno);
    for (kept *k = f->first; k != NULL;) {
        kept *next = k->next;
        free(k);
        k = next;
    }
    free(f);
    return 0;
}

static int compare(const H5FD_t *left, const H5FD_t *right) {
    const disk_file *a = (const disk_file *)left, *b = (const disk_file *)right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* As HDF5's own driver, so that a file has the same bytes. */
static herr_t query(const H5FD_t *file, unsigned long *flags) {
    (void)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t get_allocated(const H5FD_t *file, H5FD_mem_t type) {
    (void)type;
    return ((const disk_file *)file)->allocated;
}

static herr_t set_allocated(H5FD_t *file, H5FD_mem_t type, haddr_t end) {
    (void)type;
    ((disk_file *)file)->allocated = end;
    return 0;
}

static haddr_t get_end(const H5FD_t *file, H5FD_mem_t type) {
    (void)type;
    return ((const disk_file *)file)->end;
}

static herr_t read_file(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t at, size_t bytes, void *out) {
    const disk_file *f = (const disk_file *)file;
    size_t done = 0;
    (void)type;
    (void)list;
    while (done < bytes) {
        const ssize_t got =
            pread(f->descriptor, (char *)out + done, bytes - done, (off_t)(at + (haddr_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    memset((char *)out + done, 0, bytes - done); /* allocated, and not written yet */
    for (const kept *k = f->first; k != NULL; k = k->next) {
        const haddr_t begin = k->at > at ? k->at : at,
                      end = k->at + k->bytes < at + bytes ? k->at + k->bytes : at + bytes;
        if (begin < end) memcpy((char *)out + (begin - at), k->data + (begin - k->at), (size_t)(end - begin));
    }
    return 0;
}

static bool write_all(int descriptor, haddr_t at, size_t bytes, const char *data) {
    while (bytes > 0) {
        const ssize_t done = pwrite(descriptor, data, bytes, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return false;
        data += done;
        at += (haddr_t)done;
        bytes -= (size_t)done;
    }
    return true;
}

/* Fails only where there is no memory either. */
static herr_t keep(disk_file *f, haddr_t at, size_t bytes, const void *data) {
    kept *k = malloc(sizeof *k + bytes);
    if (k == NULL) return -1;
    *k = (kept){.at = at, .bytes = bytes};
    memcpy(k->data, data, bytes);
    if (f->last != NULL) f->last->next = k;
    if (f->first == NULL) f->first = k;
    f->last = k;
    return 0;
}

static herr_t write_file(H5FD_t *file, H5FD_mem_t type, hid_t list, haddr_t at, size_t bytes,
                         const void *data) {
    disk_file *f = (disk_file *)file;
    (void)list;
    if (f->disk->error == 0 && !write_all(f->descriptor, at, bytes, data)) refuse(f, errno);
    if (at + bytes > f->end) f->end = at + bytes;
    return f->disk->error == 0 || type == H5FD_MEM_DRAW ? 0 : keep(f, at, bytes, data);
}

static herr_t truncate_file(H5FD_t *file, hid_t list, hbool_t closing) {
    disk_file *f = (disk_file *)file;
    (void)list;
    (void)closing;
    if (f->allocated == f->end) return 0;
    if (f->disk->error == 0 && ftruncate(f->descriptor, (off_t)f->allocated) != 0) refuse(f, errno);
    f->end = f->allocated;
    return 0;
}

static const H5FD_class_t driver_class = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 600, /* of those that HDF5 leaves to others */
#endif
    .name = "spillway",
    .maxaddr = ((haddr_t)1 << 62) - 1,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(disk_setting),
    .open = open_file,
    .close = close_file,
    .cmp = compare,
    .query = query,
    .get_eoa = get_allocated,
    .set_eoa = set_allocated,
    .get_eof = get_end,
    .read = read_file,
    .write = write_file,
    .truncate = truncate_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY};

spw_status spw_hdf5_disk_use(hid_t access_list, spw_hdf5_disk *disk) {
    static hid_t driver = H5I_INVALID_HID;
    const disk_setting setting = {disk};
    disk->error = 0;
    if (H5Iget_type(driver) != H5I_VFL) driver = H5FDregister(&driver_class); /* H5close() forgets it */
    if (driver >= 0 && H5Pset_driver(access_list, driver, &setting) >= 0) return SPW_OK;
    return spw_fail(SPW_ENOMEM, "out of memory: HDF5 cannot make a file");
}

spw_status spw_hdf5_disk_check(const spw_hdf5_disk *disk) {
    if (disk->error == 0) return SPW_OK;
    return spw_fail(SPW_EIO, "cannot be written: %s", strerror(disk->error));
}
