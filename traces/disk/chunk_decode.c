#include "traces/disk/chunk_decode.h"

#include <libdeflate.h>
#include <string.h>

enum { CHECKSUM_BYTES = 4, WORDS_BEFORE_FOLD = 360 };

uint32_t spw_fletcher32(const unsigned char *data, size_t bytes) {
    uint32_t sum1 = 0, sum2 = 0;
    for (size_t words = bytes / 2; words > 0;) {
        size_t some = words < WORDS_BEFORE_FOLD ? words : WORDS_BEFORE_FOLD;
        words -= some;
        for (; some > 0; some--, data += 2) {
            sum1 += (uint32_t)data[0] << 8 | data[1];
            sum2 += sum1;
        }
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    if (bytes % 2 != 0) {
        sum1 += (uint32_t)*data << 8;
        sum2 += sum1;
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    sum1 = (sum1 & 0xffff) + (sum1 >> 16);
    sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    return sum2 << 16 | sum1;
}

static uint32_t stored_checksum(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines, and still accepts it. */
static uint32_t swap_halves(uint32_t sum) { return (sum & 0x00ff00ffu) << 8 | (sum >> 8 & 0x00ff00ffu); }

/* value[i] = low byte i, high byte i. */
static void unshuffle(const unsigned char *restrict from, size_t count, unsigned char *restrict to) {
    const unsigned char *low = from, *high = from + count;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        to[2 * i] = low[i];
        to[2 * i + 1] = high[i];
    }
}

static void unshuffle_any(const unsigned char *from, size_t bytes, size_t size, unsigned char *to) {
    size_t count = bytes / size;
    for (size_t b = 0; b < size; b++) {
        for (size_t i = 0; i < count; i++) to[i * size + b] = from[b * count + i];
    }
    memcpy(to + count * size, from + count * size, bytes - count * size);
}

const char *spw_decode_text(spw_decode_result result) {
    static const char *const text[] = {"good", "wrong checksum", "damaged deflate stream",
                                       "wrong size of a chunk"};
    return text[result];
}

size_t spw_chunk_most_bytes(size_t chunk_bytes) { return chunk_bytes + chunk_bytes / 8 + 4096; }
size_t spw_chunk_scratch_bytes(size_t chunk_bytes) { return chunk_bytes + CHECKSUM_BYTES; }

spw_decode_result spw_chunk_decode(const spw_hdf5_shape *shape, spw_stored_chunk stored_chunk,
                                   struct libdeflate_decompressor *inflater, unsigned char *scratch,
                                   unsigned char *data, size_t chunk_bytes) {
    const unsigned char *at = stored_chunk.raw;
    const unsigned filter_mask = stored_chunk.filter_mask;
    size_t raw_bytes = stored_chunk.raw_bytes;
    for (int place = 2; place >= 0; place--) {
        if (filter_mask >> place & 1) continue;
        if (place == shape->fletcher32_at) {
            if (raw_bytes < CHECKSUM_BYTES) return SPW_DECODE_SIZE;
            raw_bytes -= CHECKSUM_BYTES;
            uint32_t stored = stored_checksum(at + raw_bytes), sum = spw_fletcher32(at, raw_bytes);
            if (stored != sum && stored != swap_halves(sum)) return SPW_DECODE_CHECKSUM;
        } else if (place == shape->deflate_at) {
            bool summed = shape->fletcher32_at >= 0 && shape->fletcher32_at < place &&
                          (filter_mask >> shape->fletcher32_at & 1) == 0;
            bool shuffled = shape->shuffle_at >= 0 && shape->shuffle_at < place;
            unsigned char *to = shuffled || summed ? scratch : data;
            size_t bytes = chunk_bytes + (summed ? CHECKSUM_BYTES : 0);
            if (libdeflate_zlib_decompress(inflater, at, raw_bytes, to, bytes, NULL) != LIBDEFLATE_SUCCESS) {
                return SPW_DECODE_DEFLATE;
            }
            at = to;
            raw_bytes = bytes;
        } else if (place == shape->shuffle_at && shape->shuffle_bytes > 1) {
            if (raw_bytes != chunk_bytes || at == data) return SPW_DECODE_SIZE;
            if (shape->shuffle_bytes == 2 && raw_bytes % 2 == 0) {
                unshuffle(at, raw_bytes / 2, data);
            } else {
                unshuffle_any(at, raw_bytes, shape->shuffle_bytes, data);
            }
            at = data;
        }
    }
    if (raw_bytes != chunk_bytes) return SPW_DECODE_SIZE;
    if (at != data) memcpy(data, at, chunk_bytes);
    return SPW_DECODE_GOOD;
}

void spw_chunk_fill(hid_t dataset, size_t element_bytes, unsigned char *data, size_t chunk_bytes) {
    unsigned char value[8] = {0};
    hid_t list = H5Dget_create_plist(dataset), type = H5Dget_type(dataset);
    if (list >= 0 && type >= 0 && element_bytes <= sizeof value) (void)H5Pget_fill_value(list, type, value);
    for (size_t i = 0; i < chunk_bytes; i++) data[i] = value[i % element_bytes % sizeof value];
    if (list >= 0) (void)H5Pclose(list);
    if (type >= 0) (void)H5Tclose(type);
}
