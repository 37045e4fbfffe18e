#include "kernels/record/record.h"

#include "base/file.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static const char *const rules[SPW_RECORD_RULES] = {"capacity", "source", "expert", "token"};
static const char first_line[] = "spillway-record 2";

/* The sizes, in the order of the file. */
typedef struct size_row {
    const char *key;
    size_t offset, least, most;
} size_row;

static const size_row shape_rows[] = {
    {"ranks", offsetof(spw_record, ranks), 1, SPW_RECORD_RANKS},
    {"experts", offsetof(spw_record, experts), 1, SPW_RECORD_EXPERTS},
    {"top_k", offsetof(spw_record, top_k), 1, SPW_RECORD_TOP_K},
    {"sequences", offsetof(spw_record, sequences), 1, 1 << 16},
    {"sequence_length", offsetof(spw_record, sequence_length), 1, 1 << 20},
    {"hidden", offsetof(spw_record, hidden), 8, SPW_RECORD_HIDDEN},
    {"schemes", offsetof(spw_record, schemes), 0, SPW_RECORD_SCHEMES},
};
static const size_row scheme_rows[] = {
    {"factor_thousandths", offsetof(spw_record_scheme, factor_thousandths), 0, 1000000},
    {"buffer_rows", offsetof(spw_record_scheme, buffer_rows), 1, 1 << 26},
    {"buffer_bytes", offsetof(spw_record_scheme, buffer_bytes), 1, (size_t)1 << 36},
    {"row_bytes", offsetof(spw_record_scheme, row_bytes), 1, 1 << 20},
    {"back_bytes", offsetof(spw_record_scheme, back_bytes), 1, 1 << 20},
};
enum {
    SHAPE_ROWS = sizeof shape_rows / sizeof *shape_rows,
    SCHEME_ROWS = sizeof scheme_rows / sizeof *scheme_rows
};

static size_t rank_choices(const spw_record *r) { return r->sequences * r->sequence_length * r->top_k; }

/* Each is inside its range already. Choices are at most half the bytes of the largest file. */
static const char *wrong_shape(const spw_record *r, size_t bytes) {
    if (r->experts % r->ranks != 0) return "experts must be a multiple of ranks";
    if (r->top_k > r->experts) return "top_k must not exceed experts";
    if (r->hidden % 8 != 0) return "hidden must be a multiple of 8";
    if (r->sequences * r->sequence_length > bytes / (2 * r->top_k * r->ranks))
        return "more choices than a file of its size can hold";
    return NULL;
}

/* A token's choices are of distinct experts. */
static bool repeats(const int32_t *token, size_t top_k) {
    for (size_t a = 1; a < top_k; a++)
        for (size_t b = 0; b < a; b++)
            if (token[a] >= 0 && token[a] == token[b]) return true;
    return false;
}

/* --- Writing --- */

static bool printable(const char *text) {
    const size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return length > 0 && length < SPW_RECORD_TEXT;
}

static void write_sizes(const size_row *row, size_t rows, const void *from, FILE *out) {
    for (size_t i = 0; i < rows; i++)
        (void)fprintf(out, "%s %zu\n", row[i].key,
                      *(const size_t *)(const void *)((const char *)from + row[i].offset));
}

static void write_list(const char *key, const size_t *value, size_t count, FILE *out) {
    (void)fputs(key, out);
    for (size_t i = 0; i < count; i++) (void)fprintf(out, " %zu", value[i]);
    (void)fputc('\n', out);
}

static spw_status check_sizes(const size_row *row, size_t rows, const void *from) {
    for (size_t i = 0; i < rows; i++) {
        const size_t value = *(const size_t *)(const void *)((const char *)from + row[i].offset);
        if (value < row[i].least || value > row[i].most)
            return spw_fail(SPW_EARG, "a record holds %s from %zu to %zu, not %zu", row[i].key, row[i].least,
                            row[i].most, value);
    }
    return SPW_OK;
}

static spw_status check_record(const spw_record *r) {
    spw_status status = check_sizes(shape_rows, SHAPE_ROWS, r);
    const char *wrong = status == SPW_OK ? wrong_shape(r, SPW_RECORD_BYTES) : NULL;
    if (wrong != NULL) return spw_fail(SPW_EARG, "record: %s", wrong);
    if (status == SPW_OK && !printable(r->origin))
        return spw_fail(SPW_EARG, "a record's origin is 1 to %d printable characters", SPW_RECORD_TEXT - 1);
    for (size_t i = 0; status == SPW_OK && i < r->ranks * rank_choices(r); i += r->top_k)
        if (repeats(r->expert + i, r->top_k))
            return spw_fail(SPW_EARG, "token %zu of the record chooses an expert twice", i / r->top_k);
    for (size_t i = 0; status == SPW_OK && i < r->schemes; i++) {
        if (!printable(r->scheme[i].text) || (unsigned)r->scheme[i].rule >= SPW_RECORD_RULES)
            return spw_fail(SPW_EARG, "scheme %zu of the record has no name or no rule", i);
        status = check_sizes(scheme_rows, SCHEME_ROWS, &r->scheme[i]);
    }
    return status;
}

spw_status spw_record_write(const spw_record *r, FILE *out) {
    const spw_status status = check_record(r);
    if (status != SPW_OK) return status;
    (void)fprintf(out, "%s\norigin %s\n", first_line, r->origin);
    write_sizes(shape_rows, SHAPE_ROWS, r, out);
    for (size_t i = 0; i < r->ranks * rank_choices(r); i++) {
        if (i % rank_choices(r) == 0) (void)fprintf(out, "rank %zu\n", i / rank_choices(r));
        (void)fprintf(out, "%" PRId32 "%c", r->expert[i], (i + 1) % r->top_k == 0 ? '\n' : ' ');
    }
    for (size_t i = 0; i < r->schemes; i++) {
        const spw_record_scheme *s = &r->scheme[i];
        (void)fprintf(out, "scheme %s\nrule %s\n", s->text, rules[s->rule]);
        write_sizes(scheme_rows, SCHEME_ROWS, s, out);
        write_list("rows", s->rows, r->ranks, out);
        write_list("dropped", s->dropped, r->ranks, out);
        for (size_t rank = 0; rank < r->ranks; rank++) write_list("wire", s->wire[rank], r->ranks, out);
    }
    (void)fputs("end\n", out);
    return ferror(out) ? spw_fail(SPW_EIO, "the record could not be written") : SPW_OK;
}

/* --- Reading --- */

typedef struct reader {
    const char *where, *at, *end;
    size_t line;
} reader;

static spw_status refuse(const reader *r, const char *what) {
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s", r->where, r->line, what);
}

static bool take(reader *r, const char *word) {
    const size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static bool end_line(reader *r) {
    if (!take(r, "\n")) return false;
    r->line++;
    return true;
}

/* Digits, no sign, no leading zero, at most `most`. */
static bool take_number(reader *r, size_t most, size_t *out) {
    const char *start = r->at;
    size_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        const size_t digit = (size_t)(*r->at - '0');
        if (digit > most || value > (most - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return r->at > start && (*start != '0' || r->at == start + 1);
}

static spw_status read_text(reader *r, const char *key, char text[SPW_RECORD_TEXT]) {
    if (!take(r, key) || !take(r, " "))
        return spw_fail(SPW_EFORMAT, "%s:%zu: must be '%s' and a text", r->where, r->line, key);
    size_t length = 0;
    while (r->at < r->end && *r->at >= ' ' && *r->at <= '~' && length < SPW_RECORD_TEXT - 1)
        text[length++] = *r->at++;
    text[length] = '\0';
    return length > 0 && end_line(r) ? SPW_OK : refuse(r, "a text is 1 to 127 printable characters");
}

static spw_status read_sizes(reader *r, const size_row *row, size_t rows, void *out) {
    for (size_t i = 0; i < rows; i++) {
        size_t value = 0;
        if (!take(r, row[i].key) || !take(r, " ") || !take_number(r, row[i].most, &value) ||
            value < row[i].least || !end_line(r))
            return spw_fail(SPW_EFORMAT, "%s:%zu: must be '%s' and a whole number from %zu to %zu", r->where,
                            r->line, row[i].key, row[i].least, row[i].most);
        *(size_t *)(void *)((char *)out + row[i].offset) = value;
    }
    return SPW_OK;
}

static spw_status read_list(reader *r, const char *key, size_t *value, size_t count) {
    bool good = take(r, key);
    for (size_t i = 0; i < count && good; i++)
        good = take(r, " ") && take_number(r, (size_t)1 << 32, &value[i]);
    if (good && end_line(r)) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s:%zu: must be '%s' and %zu whole numbers", r->where, r->line, key, count);
}

static spw_status read_choices(reader *r, spw_record *out) {
    const size_t choices = rank_choices(out);
    for (size_t rank = 0; rank < out->ranks; rank++) {
        size_t number = 0;
        if (!take(r, "rank ") || !take_number(r, SPW_RECORD_RANKS, &number) || number != rank || !end_line(r))
            return spw_fail(SPW_EFORMAT, "%s:%zu: must be 'rank %zu'", r->where, r->line, rank);
        for (size_t i = 0; i < choices; i++) {
            const bool last = (i + 1) % out->top_k == 0, none = take(r, "-1");
            if (!none && !take_number(r, out->experts - 1, &number))
                return spw_fail(SPW_EFORMAT, "%s:%zu: an expert id must be below %zu, or -1", r->where,
                                r->line, out->experts);
            out->expert[rank * choices + i] = none ? -1 : (int32_t)number;
            if (!(last ? end_line(r) : take(r, " ")))
                return spw_fail(SPW_EFORMAT, "%s:%zu: a token has %zu expert ids, a space apart", r->where,
                                r->line, out->top_k);
            if (last && repeats(&out->expert[rank * choices + i + 1 - out->top_k], out->top_k))
                return refuse(r, "before this line: a token's experts must be distinct");
        }
    }
    return SPW_OK;
}

static spw_status read_scheme(reader *r, size_t ranks, spw_record_scheme *out) {
    spw_status status = SPW_OK;
    char rule[SPW_RECORD_TEXT];
    size_t i = 0;
    SPW_TRY(read_text(r, "scheme", out->text));
    SPW_TRY(read_text(r, "rule", rule));
    while (i < SPW_RECORD_RULES && strcmp(rule, rules[i]) != 0) i++;
    if (i == SPW_RECORD_RULES)
        SPW_TRY(refuse(r, "before this line: a rule is capacity, source, expert or token"));
    out->rule = (spw_record_rule)i;
    SPW_TRY(read_sizes(r, scheme_rows, SCHEME_ROWS, out));
    SPW_TRY(read_list(r, "rows", out->rows, ranks));
    SPW_TRY(read_list(r, "dropped", out->dropped, ranks));
    for (size_t rank = 0; rank < ranks; rank++) SPW_TRY(read_list(r, "wire", out->wire[rank], ranks));
cleanup:
    return status;
}

spw_status spw_record_parse(const char *where, const char *text, size_t length, spw_record *out) {
    spw_status status = SPW_OK;
    reader r = {where, text, text + length, 1};
    *out = (spw_record){.ranks = 0};
    if (!take(&r, first_line) || !end_line(&r)) SPW_TRY(refuse(&r, "must be 'spillway-record 2'"));
    SPW_TRY(read_text(&r, "origin", out->origin));
    SPW_TRY(read_sizes(&r, shape_rows, SHAPE_ROWS, out));
    const char *wrong = wrong_shape(out, length);
    if (wrong != NULL) SPW_TRY(refuse(&r, wrong));
    SPW_TRY(SPW_ALLOC(out->ranks * rank_choices(out), &out->expert));
    SPW_TRY(read_choices(&r, out));
    for (size_t i = 0; i < out->schemes; i++) SPW_TRY(read_scheme(&r, out->ranks, &out->scheme[i]));
    if (!take(&r, "end") || !end_line(&r) || r.at != r.end)
        SPW_TRY(refuse(&r, "must be 'end', and nothing behind it"));
cleanup:
    if (status != SPW_OK) spw_record_destroy(out);
    return status;
}

spw_status spw_record_read(const char *path, spw_record *out) {
    char *text = NULL;
    size_t length = 0;
    *out = (spw_record){.ranks = 0};
    spw_status status = spw_file_read(path, SPW_RECORD_BYTES, &text, &length);
    if (status == SPW_OK) status = spw_record_parse(path, text, length, out);
    spw_free(text);
    return status;
}

void spw_record_destroy(spw_record *record) {
    spw_free(record->expert);
    *record = (spw_record){.ranks = 0};
}
