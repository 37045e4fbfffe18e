#include "traces/importers/npy.h"

#include "base/file.h"
#include "base/memory.h"
#include "traces/importers/npy_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAGIC_BYTES = 6, MOST_HEADER = 1 << 16 };

/* The dictionary, from `at` to `end`. */
typedef struct cursor {
    const spw_npy *npy;
    const char *at, *end;
} cursor;

static spw_status fail(const spw_npy *npy, const char *text) {
    return spw_fail(SPW_EFORMAT, "%s: %s", npy->where, text);
}

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool take(cursor *c, const char *word) {
    const size_t length = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

/* A quoted text of at most size - 1 characters, without escapes. */
static bool take_text(cursor *c, char *out, size_t size) {
    skip_blanks(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return false;
    const char quote = *c->at++;
    const char *close = memchr(c->at, quote, (size_t)(c->end - c->at));
    if (close == NULL || (size_t)(close - c->at) >= size ||
        memchr(c->at, '\\', (size_t)(close - c->at)) != NULL)
        return false;
    memcpy(out, c->at, (size_t)(close - c->at));
    out[close - c->at] = '\0';
    c->at = close + 1;
    return true;
}

static bool take_number(cursor *c, size_t *out) {
    skip_blanks(c);
    const char *begin = c->at;
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - begin < 18; c->at++)
        *out = *out * 10 + (size_t)(*c->at - '0');
    return c->at > begin;
}

/* "<i4", "|u1", "<U21" ... */
static spw_status read_type(cursor *c, spw_npy *npy) {
    char text[32] = "";
    size_t width = 0;
    if (!take_text(c, text, sizeof text))
        return fail(npy, "its type is no plain number (a record, or an object?)");
    cursor number = {npy, text + 2, text + strlen(text)};
    const bool known = text[0] != '\0' && strchr("<>|=", text[0]) != NULL && text[1] != '\0' &&
                       strchr("iufU", text[1]) != NULL;
    if (!known || !take_number(&number, &width) || number.at != number.end || width < 1)
        return spw_fail(SPW_EFORMAT, "%s: elements of type '%s'; whole numbers would be right", npy->where,
                        text);
    npy->kind = text[1];
    npy->big_endian = text[0] == '>';
    npy->element_bytes = npy->kind == 'U' ? width * 4 : width;
    const bool plain = width == 1 || width == 2 || width == 4 || width == 8;
    if (npy->kind == 'U' ? width > 256 : !plain || (npy->kind == 'f' && width == 1))
        return spw_fail(SPW_EFORMAT, "%s: elements of type '%s'", npy->where, text);
    return SPW_OK;
}

static spw_status read_shape(cursor *c, spw_npy *npy) {
    if (!take(c, "(")) return fail(npy, "its shape must be a tuple");
    while (!take(c, ")")) {
        if (npy->rank == SPW_NPY_MAX_RANK) return fail(npy, "more than 8 axes");
        if (!take_number(c, &npy->extent[npy->rank])) return fail(npy, "its shape must be whole numbers");
        npy->rank++;
        if (!take(c, ",")) {
            if (!take(c, ")")) return fail(npy, "its shape is not closed");
            break;
        }
    }
    return SPW_OK;
}

/* {'descr': ..., 'fortran_order': ..., 'shape': ...}, each once. */
static spw_status read_header(cursor *c, spw_npy *npy, bool *fortran) {
    spw_status status = SPW_OK;
    unsigned seen = 0;
    if (!take(c, "{")) return fail(npy, "its header must be a dictionary");
    while (!take(c, "}")) {
        char key[32] = "";
        unsigned bit = 0;
        if (!take_text(c, key, sizeof key) || !take(c, ":")) return fail(npy, "its header has a damaged key");
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            SPW_TRY(read_type(c, npy));
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            *fortran = take(c, "True");
            if (!*fortran && !take(c, "False")) SPW_TRY(fail(npy, "'fortran_order' must be True or False"));
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            if ((seen & bit) == 0) SPW_TRY(read_shape(c, npy));
        }
        if (bit == 0 || (seen & bit) != 0)
            SPW_TRY(fail(npy, "its header must have descr, fortran_order and shape, once each"));
        seen |= bit;
        if (!take(c, ",")) {
            if (!take(c, "}")) SPW_TRY(fail(npy, "its header is not closed"));
            break;
        }
    }
    skip_blanks(c);
    if (seen != 7 || c->at != c->end)
        SPW_TRY(fail(npy, "its header must have descr, fortran_order and shape, and nothing else"));

cleanup:
    return status;
}

spw_status spw_npy_parse(spw_npy *npy) {
    spw_status status = SPW_OK;
    static const unsigned char magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    const unsigned char *bytes = npy->bytes;
    size_t header = 0, start = 0, count = 1, data_bytes = 0;
    bool fortran = false;
    npy->rank = 0;
    const bool pickled = npy->length > 2 && (bytes[0] == 0x80 || memcmp(bytes, "PK", 2) == 0);
    if (pickled)
        return fail(npy,
                    "is no .npy array, but a pickle or a file of torch.save; the Python package reads these: "
                    "python -m spillway_moe.importing FILE.pt --output OUT.h5, with the same options "
                    "(docs/import.md)");
    if (npy->length < 10 || memcmp(bytes, magic, MAGIC_BYTES) != 0) return fail(npy, "is no .npy array");
    if (bytes[6] < 1 || bytes[6] > 3) return fail(npy, "an .npy format other than 1, 2 and 3");
    start = bytes[6] == 1 ? 10 : 12;
    if (npy->length < start) return fail(npy, "is cut short");
    header = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1) header |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (header > MOST_HEADER || header > npy->length - start)
        return fail(npy, "is cut short inside of its header");
    cursor c = {npy, (const char *)bytes + start, (const char *)bytes + start + header};
    SPW_TRY(read_header(&c, npy, &fortran));
    for (size_t i = 0; i < npy->rank; i++) {
        const size_t axis = fortran ? i : npy->rank - 1 - i; /* from the fastest */
        npy->stride[axis] = count;
        if (!spw_mul_size(count, npy->extent[axis], &count)) SPW_TRY(fail(npy, "its shape overflows"));
    }
    if (!spw_mul_size(count, npy->element_bytes, &data_bytes) || data_bytes != npy->length - start - header) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: its shape has %zu elements of %zu bytes, but %zu bytes follow",
                         npy->where, count, npy->element_bytes, npy->length - start - header));
    }
    npy->data = bytes + start + header;

cleanup:
    return status;
}

static spw_status read_bytes(FILE *file, size_t bytes, spw_npy *npy) {
    spw_free(npy->bytes);
    npy->bytes = NULL;
    const spw_status status = SPW_ALLOC(bytes, &npy->bytes);
    if (status != SPW_OK) return status;
    rewind(file);
    if (fread(npy->bytes, 1, bytes, file) == bytes) return SPW_OK;
    return spw_fail(SPW_EIO, "%s: cannot be read to its end", npy->where);
}

spw_status spw_npy_open(const char *path, spw_npy *out) {
    enum { HEAD_BYTES = 12 + MOST_HEADER };
    spw_status status = SPW_OK;
    struct stat there;
    FILE *file = NULL;
    *out = (spw_npy){.bytes = NULL};
    (void)snprintf(out->where, sizeof out->where, "%s", path);
    SPW_TRY(spw_file_open(path, &file));
    if (fstat(fileno(file), &there) != 0 || !S_ISREG(there.st_mode))
        SPW_TRY(spw_fail(SPW_EIO, "%s: is no regular file", path));
    out->length = (size_t)there.st_size;
    SPW_TRY(read_bytes(file, out->length < HEAD_BYTES ? out->length : HEAD_BYTES, out));
    SPW_TRY(spw_npy_parse(out)); /* the elements are read only where header and length are right */
    SPW_TRY(read_bytes(file, out->length, out));
    SPW_TRY(spw_npy_parse(out));

cleanup:
    if (file != NULL) (void)fclose(file);
    if (status != SPW_OK) spw_npy_close(out);
    return status;
}

void spw_npy_close(spw_npy *npy) {
    spw_free(npy->bytes);
    *npy = (spw_npy){.bytes = NULL};
}

bool spw_npy_is_whole(const spw_npy *npy) { return npy->kind == 'i' || npy->kind == 'u'; }

static uint64_t bits_at(const spw_npy *npy, size_t at) {
    const unsigned char *byte = npy->data + at * npy->element_bytes;
    const size_t bytes = npy->element_bytes;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)byte[npy->big_endian ? bytes - 1 - i : i] << (8 * i);
    return value;
}

static double of_half(uint64_t bits) {
    const int exponent = (int)(bits >> 10 & 31);
    const double mantissa = (double)(bits & 1023), sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == 31) return mantissa > 0.0 ? (double)NAN : sign * INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024.0, exponent - 25));
}

double spw_npy_real_at(const spw_npy *npy, size_t at) {
    const uint64_t bits = bits_at(npy, at);
    const uint32_t half_bits = (uint32_t)bits;
    double whole = 0.0;
    float single = 0.0f;
    if (npy->element_bytes == 2) return of_half(bits);
    memcpy(&single, &half_bits, sizeof single);
    memcpy(&whole, &bits, sizeof whole);
    return npy->element_bytes == 4 ? (double)single : whole;
}

int64_t spw_npy_at(const spw_npy *npy, size_t at, bool *fits) {
    const size_t bytes = npy->element_bytes;
    uint64_t value = bits_at(npy, at);
    const bool negative = npy->kind == 'i' && bytes > 0 && (value >> (8 * bytes - 1) & 1) != 0;
    if (negative && bytes < sizeof value) value |= UINT64_MAX << (8 * bytes);
    *fits = negative || value <= INT64_MAX;
    return (int64_t)value;
}

spw_status spw_npy_text(const spw_npy *npy, char *out, size_t size) {
    size_t used = 0;
    if (npy->kind != 'U' || npy->rank != 0) return fail(npy, "must be a text");
    for (size_t i = 0; i + 4 <= npy->element_bytes && used + 1 < size; i += 4) {
        uint32_t point = 0;
        for (size_t j = 0; j < 4; j++) point = point << 8 | npy->data[i + (npy->big_endian ? j : 3 - j)];
        if (point == 0) break;
        out[used++] = (char)(point >= ' ' && point < 127 ? point : '?');
    }
    out[used] = '\0';
    return SPW_OK;
}
