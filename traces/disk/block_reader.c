#include "traces/disk/block_reader.h"

#include "base/memory.h"
#include "traces/disk/chunk_decode.h"

#include <libdeflate.h>
#include <string.h>

struct spw_block_reader {
    hid_t dataset;
    spw_hdf5_shape shape;
    size_t chunk_bytes;
    struct libdeflate_decompressor *inflater;
    unsigned char *raw, *scratch, *data; /* data: the chunk at `offset`, if `loaded` */
    size_t raw_capacity;
    hsize_t offset[SPW_HDF5_MAX_RANK];
    bool loaded;
};

spw_status spw_block_reader_create(hid_t dataset, const spw_hdf5_shape *shape, spw_block_reader **out) {
    spw_status status = SPW_OK;
    spw_block_reader *reader = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &reader));
    reader->dataset = dataset;
    reader->shape = *shape;
    reader->chunk_bytes = shape->element_bytes;
    for (int i = 0; i < shape->rank; i++)
        reader->chunk_bytes *= (size_t)shape->chunk[i]; /* checked at opening */
    if (shape->chunk[0] > 0) {
        SPW_TRY(SPW_ALLOC(reader->chunk_bytes, &reader->data));
        SPW_TRY(SPW_ALLOC(spw_chunk_scratch_bytes(reader->chunk_bytes), &reader->scratch));
        reader->inflater = libdeflate_alloc_decompressor();
        if (reader->inflater == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "libdeflate has no memory to inflate"));
    }
    *out = reader;
    reader = NULL;

cleanup:
    spw_block_reader_destroy(reader);
    return status;
}

void spw_block_reader_destroy(spw_block_reader *reader) {
    if (reader == NULL) return;
    libdeflate_free_decompressor(reader->inflater);
    spw_free(reader->raw);
    spw_free(reader->scratch);
    spw_free(reader->data);
    spw_free(reader);
}

/* Has the chunk at `offset` in reader->data. */
static spw_status load(spw_block_reader *reader, const hsize_t *offset) {
    spw_status status = SPW_OK;
    hsize_t bytes = 0;
    uint32_t mask = 0;
    if (reader->loaded && memcmp(offset, reader->offset, sizeof reader->offset) == 0) return SPW_OK;
    reader->loaded = false;
    if (H5Dget_chunk_storage_size(reader->dataset, offset, &bytes) < 0) bytes = 0; /* never written */
    if (bytes > spw_chunk_most_bytes(reader->chunk_bytes)) {
        return spw_fail(SPW_EFORMAT, "%llu bytes stored for a chunk of %zu", (unsigned long long)bytes,
                        reader->chunk_bytes);
    }
    if (bytes > reader->raw_capacity) {
        spw_free(reader->raw);
        reader->raw = NULL;
        reader->raw_capacity = 0;
        SPW_TRY(SPW_ALLOC((size_t)bytes, &reader->raw));
        reader->raw_capacity = (size_t)bytes;
    }
    if (bytes == 0) {
        spw_chunk_fill(reader->dataset, reader->shape.element_bytes, reader->data, reader->chunk_bytes);
    } else if (H5Dread_chunk(reader->dataset, H5P_DEFAULT, offset, &mask, reader->raw) < 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "unreadable (file cut short?)"));
    } else {
        spw_decode_result result =
            spw_chunk_decode(&reader->shape, (spw_stored_chunk){reader->raw, (size_t)bytes, mask},
                             reader->inflater, reader->scratch, reader->data, reader->chunk_bytes);
        if (result != SPW_DECODE_GOOD) SPW_TRY(spw_fail(SPW_EFORMAT, "%s", spw_decode_text(result)));
    }
    memcpy(reader->offset, offset, sizeof reader->offset);
    reader->loaded = true;

cleanup:
    return status;
}

/* Copies the part of the loaded chunk that lies in the block to its place in out [count...]. */
static void copy_part(const spw_block_reader *reader, const uint64_t *start, const uint64_t *count,
                      unsigned char *out) {
    const spw_hdf5_shape *shape = &reader->shape;
    uint64_t from[SPW_HDF5_MAX_RANK] = {0}, to[SPW_HDF5_MAX_RANK] = {0}, at[SPW_HDF5_MAX_RANK] = {0};
    int last = shape->rank - 1;
    for (int i = 0; i <= last; i++) {
        uint64_t end = reader->offset[i] + shape->chunk[i], block_end = start[i] + count[i];
        from[i] = reader->offset[i] > start[i] ? reader->offset[i] : start[i];
        to[i] = end < block_end ? end : block_end;
        at[i] = from[i];
    }
    size_t run = (size_t)(to[last] - from[last]) * shape->element_bytes;
    for (;;) {
        uint64_t source = 0, target = 0;
        for (int i = 0; i <= last; i++) {
            source = source * shape->chunk[i] + (at[i] - reader->offset[i]);
            target = target * count[i] + (at[i] - start[i]);
        }
        memcpy(out + target * shape->element_bytes, reader->data + source * shape->element_bytes, run);
        int i = last - 1;
        while (i >= 0 && ++at[i] == to[i]) {
            at[i] = from[i];
            i--;
        }
        if (i < 0) return;
    }
}

/* out [count...] in the type of the file. */
static spw_status read_chunks(spw_block_reader *reader, const uint64_t *start, const uint64_t *count,
                              unsigned char *out) {
    const spw_hdf5_shape *shape = &reader->shape;
    hsize_t offset[SPW_HDF5_MAX_RANK] = {0};
    for (int i = 0; i < shape->rank; i++) offset[i] = start[i] / shape->chunk[i] * shape->chunk[i];
    for (;;) {
        spw_status status = load(reader, offset);
        if (status != SPW_OK) return status;
        copy_part(reader, start, count, out);
        int i = shape->rank - 1;
        while (i >= 0) {
            offset[i] += shape->chunk[i];
            if (offset[i] < start[i] + count[i]) break;
            offset[i] = start[i] / shape->chunk[i] * shape->chunk[i];
            i--;
        }
        if (i < 0) return SPW_OK;
    }
}

spw_status spw_block_reader_read(spw_block_reader *reader, const uint64_t *start, const uint64_t *count,
                                 hid_t memory_type, void *out) {
    spw_status status = SPW_OK;
    const spw_hdf5_shape *shape = &reader->shape;
    unsigned char *staged = NULL;
    size_t elements = 1, size = H5Tget_size(memory_type);
    hid_t type = H5I_INVALID_HID;
    for (int i = 0; i < shape->rank; i++) {
        if (start[i] > shape->extent[i] || count[i] > shape->extent[i] - start[i]) {
            return spw_fail(SPW_EARG, "block outside of the dataset");
        }
        if (!spw_mul_size(elements, (size_t)count[i], &elements))
            return spw_fail(SPW_ENOMEM, "block too large");
    }
    if (elements == 0) return SPW_OK;
    if (shape->chunk[0] == 0)
        return spw_hdf5_read_block(reader->dataset, shape->rank, start, count, memory_type, out);
    type = H5Dget_type(reader->dataset);
    if (H5Tequal(type, memory_type) > 0) {
        SPW_TRY(read_chunks(reader, start, count, out));
        goto cleanup;
    }
    SPW_TRY(spw_alloc(elements, size > shape->element_bytes ? size : shape->element_bytes, (void **)&staged));
    SPW_TRY(read_chunks(reader, start, count, staged));
    if (H5Tconvert(type, memory_type, elements, staged, NULL, H5P_DEFAULT) < 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "numbers that cannot be converted"));
    }
    memcpy(out, staged, elements * size);

cleanup:
    if (type >= 0) (void)H5Tclose(type);
    spw_free(staged);
    return status;
}

spw_status spw_read_array(hid_t file, const char *path, hid_t memory_type, size_t count, void *out) {
    spw_status status = SPW_OK;
    hid_t dataset = H5I_INVALID_HID;
    spw_hdf5_shape shape;
    spw_block_reader *reader = NULL;
    SPW_TRY(spw_hdf5_open_dataset(file, path, 1, 0, &dataset, &shape));
    if (shape.type_class != H5T_INTEGER || !shape.plain_number) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: must hold integers of 1, 2, 4 or 8 bytes", path));
    }
    if (shape.extent[0] != count) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: %llu elements; must be %zu", path,
                         (unsigned long long)shape.extent[0], count));
    }
    SPW_TRY(spw_block_reader_create(dataset, &shape, &reader));
    status = spw_block_reader_read(reader, &(uint64_t){0}, shape.extent, memory_type, out);
    if (status == SPW_EFORMAT) status = spw_fail_within(status, "/%s", path);

cleanup:
    spw_block_reader_destroy(reader);
    spw_hdf5_close_dataset(&dataset);
    return status;
}
