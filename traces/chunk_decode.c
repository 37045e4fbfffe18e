#include "traces/chunk_decode.h"

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

static bool applied(int place, unsigned filter_mask) { return place >= 0 && (filter_mask >> place & 1) == 0; }

spw_decode_result spw_chunk_decode(const spw_hdf5_shape *shape, unsigned filter_mask,
                                   const unsigned char *raw, size_t raw_bytes,
                                   struct libdeflate_decompressor *inflater, unsigned char *scratch,
                                   unsigned char *data, size_t chunk_bytes) {
    bool shuffled = applied(shape->shuffle_at, filter_mask) && shape->element_bytes == 2;
    if (applied(shape->fletcher32_at, filter_mask)) {
        if (raw_bytes < CHECKSUM_BYTES) return SPW_DECODE_SIZE;
        raw_bytes -= CHECKSUM_BYTES;
        uint32_t stored = stored_checksum(raw + raw_bytes), sum = spw_fletcher32(raw, raw_bytes);
        if (stored != sum && stored != swap_halves(sum)) return SPW_DECODE_CHECKSUM;
    }
    if (applied(shape->deflate_at, filter_mask)) {
        unsigned char *to = shuffled ? scratch : data;
        if (libdeflate_zlib_decompress(inflater, raw, raw_bytes, to, chunk_bytes, NULL) !=
            LIBDEFLATE_SUCCESS) {
            return SPW_DECODE_DEFLATE;
        }
        raw = to;
        raw_bytes = chunk_bytes;
    }
    if (raw_bytes != chunk_bytes) return SPW_DECODE_SIZE;
    if (shuffled) {
        unshuffle(raw, chunk_bytes / 2, data);
    } else if (raw != data) {
        memcpy(data, raw, chunk_bytes);
    }
    return SPW_DECODE_GOOD;
}
