/* Tables as a person, a JSON reader and a CSV reader see them. */
#include "sim/print/table.h"

#include "base/memory.h"
#include "sim/print/json_values.h"
#include "sim/print/wrap.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const spw_column columns[] = {
    {"name", "name"}, {"count", "a count"}, {"hidden", NULL}, {"share", "share"}, {NULL, NULL}};

static char *printed(const spw_table *table, spw_format format) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    CHECK(out != NULL);
    CHECK_OK(spw_table_print(table, format, out));
    CHECK(fclose(out) == 0);
    return text;
}

static void expect(const spw_table *table, spw_format format, const char *want) {
    char *got = printed(table, format);
    CHECK(strcmp(got, want) == 0);
    if (strcmp(got, want) != 0) fprintf(stderr, "--- got\n%s--- want\n%s", got, want);
    free(got);
}

static void add_rows(spw_table *t) {
    spw_table_text(t, "plain");
    spw_table_count(t, 7);
    spw_table_real(t, 0.1, NULL);
    spw_table_scaled(t, 0.25, 0.01, "%.1f %%");
    spw_table_text(t, "a \"b\", c\nd");
    spw_table_shown(t, UINT64_C(9007199254740993), "2^53 + 1");
    spw_table_none(t);
    spw_table_real(t, NAN, "%g");
    spw_table_text(t, "\xc3\xa9t\xc3\xa9"); /* three characters, five bytes */
    spw_table_none(t);
    spw_table_real(t, 1e300, NULL);
    spw_table_scaled(t, -1.0, 3.0, "%.2f");
}

static void test_formats(void) {
    spw_table *t = NULL;
    CHECK_OK(spw_table_create(columns, &t));
    expect(t, SPW_FORMAT_CSV, "name,count,hidden,share\n");
    expect(t, SPW_FORMAT_JSON, "[]\n");
    expect(t, SPW_FORMAT_TABLE, "name  a count  share\n");
    spw_table_text(t, "x");
    spw_table_count(t, 12345678);
    spw_table_real(t, 2.0 / 3.0, NULL);
    spw_table_scaled(t, 0.25, 0.01, "%.1f %%");
    expect(t, SPW_FORMAT_TABLE, "name   a count   share\nx     12345678  25.0 %\n");
    expect(t, SPW_FORMAT_CSV, "name,count,hidden,share\nx,12345678,0.66666666666666663,0.25\n");
    expect(t, SPW_FORMAT_JSON,
           "[\n {\n  \"name\": \"x\",\n  \"count\": 12345678,\n  \"hidden\": 0.66666666666666663,\n"
           "  \"share\": 0.25\n }\n]\n");
    spw_table_destroy(t);
    spw_table_destroy(NULL);
}

static void test_awkward_cells(void) {
    spw_table *t = NULL;
    CHECK_OK(spw_table_create(columns, &t));
    add_rows(t);
    expect(t, SPW_FORMAT_CSV,
           "name,count,hidden,share\nplain,7,0.10000000000000001,0.25\n"
           "\"a \"\"b\"\", c?d\",9007199254740993,,\n\xc3\xa9t\xc3\xa9,,1.0000000000000001e+300,-1\n");
    char *json = printed(t, SPW_FORMAT_JSON);
    CHECK(strstr(json, "\"a \\\"b\\\", c?d\"") != NULL && strstr(json, "9007199254740993") != NULL);
    CHECK(strstr(json, "\"share\": null") != NULL && strstr(json, "nan") == NULL);
    free(json);
    char *shown = printed(t, SPW_FORMAT_TABLE);
    CHECK(strstr(shown, "2^53 + 1") != NULL && strstr(shown, "25.0 %") != NULL &&
          strstr(shown, "hidden") == NULL);
    free(shown);
    spw_table_destroy(t);
}

/* A spreadsheet computes what begins so; numbers are none of it, and a person and JSON see the text as it is. */
static void test_formulas(void) {
    static const char *const texts[] = {"=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "=\"a\",b",
                                        "-0.5", "+2e3",   "-",    "a=b"};
    static const char *const want[] = {
        "\"'=1+1\"", "\"'+cmd|x\"", "\"'-2+3\"", "\"'@SUM(A1)\"", "\"'=\"\"a\"\",b\"", "-0.5",
        "+2e3",      "-",           "a=b"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        spw_table *t = NULL;
        char csv[128];
        CHECK_OK(spw_table_create(columns, &t));
        spw_table_text(t, texts[i]);
        for (int c = 1; c < 4; c++) spw_table_none(t);
        (void)snprintf(csv, sizeof csv, "name,count,hidden,share\n%s,,,\n", want[i]);
        expect(t, SPW_FORMAT_CSV, csv);
        char *shown = printed(t, SPW_FORMAT_TABLE);
        CHECK(strstr(shown, texts[i]) != NULL && strchr(shown, '\'') == NULL);
        free(shown);
        spw_table_destroy(t);
    }
}

/* Control characters become others when a cell is made; what begins with one may come as it is. */
static void test_formulas_behind_blanks(void) {
    static const char *const texts[] = {"\t=1", "\r=1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        spw_table *t = NULL;
        char csv[128];
        CHECK_OK(spw_table_create(columns, &t));
        spw_table_none(t);
        spw_table_shown(t, 1, "1");
        for (int c = 2; c < 4; c++) spw_table_none(t);
        spw_table_text(t, texts[i]);
        for (int c = 1; c < 4; c++) spw_table_none(t);
        char *got = printed(t, SPW_FORMAT_CSV);
        (void)snprintf(csv, sizeof csv, "\n%s", texts[i]);
        CHECK(strstr(got, csv) == NULL); /* never bare */
        free(got);
        spw_table_destroy(t);
    }
}

/* Three digits that count, and letters of ten thousand, a million, a thousand million and a million million. */
static void test_amounts(void) {
    static const struct {
        double value;
        const char *want;
    } rows[] = {{0.5, "0.500"},   {2.34, "2.34"},     {21.34, "21.3"},     {999.4, "999"},
                {1000.0, "1000"}, {9999.0, "9999"},   {10000.0, "10.0 k"}, {192345.0, "192 k"},
                {1e6, "1.00 M"},  {6.79e9, "6.79 B"}, {1e12, "1.00 T"},    {2.5e15, "2500 T"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[SPW_SPAN_TEXT];
        CHECK(strcmp(spw_amount_text(rows[i].value, text), rows[i].want) == 0);
        if (strcmp(text, rows[i].want) != 0) fprintf(stderr, "%g: %s\n", rows[i].value, text);
    }
}

/* What is above the largest whole number of JSON is that number, and none below 0. */
static void test_counts(void) {
    static const uint64_t values[] = {0, 7, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json_t *number = spw_json_count(values[i]);
        CHECK(json_integer_value(number) == (json_int_t)(values[i] < INT64_MAX ? values[i] : INT64_MAX));
        json_decref(number);
    }
}

static void test_names(void) {
    spw_format format = SPW_FORMAT_CSV;
    CHECK_OK(spw_format_parse("table", &format));
    CHECK(format == SPW_FORMAT_TABLE);
    CHECK_OK(spw_format_parse("json", &format));
    CHECK(format == SPW_FORMAT_JSON);
    CHECK_OK(spw_format_parse("csv", &format));
    CHECK(format == SPW_FORMAT_CSV);
    static const char *const bad[] = {"", "CSV", "xml", "tab", "jsonx"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(spw_format_parse(bad[i], &format), SPW_EARG);
    CHECK(strcmp(spw_last_error(), "--format 'jsonx' is unknown; use table, json or csv") == 0);
}

static void add_named(spw_table *t, const char *name, uint64_t bytes, double low, bool sure) {
    spw_table_text(spw_table_in(t, "name", "name"), name);
    spw_table_count_of(spw_table_in(t, "bytes", "KiB"), bytes > 0, bytes, 1024.0, "%.1f");
    spw_table_interval(t, (spw_column){"low_s", "low-high"}, "high_s", low, 2.0 * low);
    spw_table_flag(spw_table_in(t, "sure", NULL), sure);
}

/* Columns that the cells of the first row name: a person, CSV and JSON have the same cells. */
static void test_named_columns(void) {
    spw_table *t = NULL;
    spw_json json = {.failed = false};
    json_t *object = json_object();
    char *text = NULL;
    CHECK_OK(spw_table_create(NULL, &t));
    add_named(t, "gone", 1, 1.0, true);
    spw_table_empty(t);
    expect(t, SPW_FORMAT_CSV, "name,bytes,low_s,high_s,sure\n");
    add_named(t, "a", 1536, 1.5, true);
    add_named(t, "b", 0, NAN, false);
    expect(t, SPW_FORMAT_TABLE, "name  KiB   low-high\na     1.5  1.50-3.00\nb       -          -\n");
    expect(t, SPW_FORMAT_CSV, "name,bytes,low_s,high_s,sure\na,1536,1.5,3,yes\nb,,,,no\n");
    add_named(t, "c", 7, 0.5, true);
    spw_table_put(t, "sure,bytes,low_s:step_s_low", &json, object);
    CHECK_OK(spw_json_string(&json, object, JSON_COMPACT, "a row", &text));
    CHECK(strcmp(text, "{\"sure\":true,\"bytes\":7,\"step_s_low\":0.5}") == 0);
    free(text);
    object = json_object();
    spw_table_put(t, "name,absent", &json, object);
    CHECK_STATUS(spw_json_string(&json, object, 0, "a row", &text), SPW_ENOMEM);
    spw_table_text(spw_table_in(t, "name", "name"), "d");
    spw_table_flag(spw_table_in(t, "sure", NULL), true); /* another column is due */
    CHECK_STATUS(spw_table_print(t, SPW_FORMAT_CSV, stdout), SPW_EMISMATCH);
    CHECK(strstr(spw_last_error(), "at sure") != NULL);
    spw_table_destroy(t);
    CHECK_OK(spw_table_create(NULL, &t));
    add_named(t, "a", 1, 1.0, true);
    spw_table_text(spw_table_in(t, "name", "name"), "too short a row");
    CHECK_STATUS(spw_table_print(t, SPW_FORMAT_CSV, stdout), SPW_EMISMATCH);
    spw_table_destroy(t);
}

/* A table that ran out of memory says so when it is printed, not before. */
static void test_allocations(bool named) {
    int failed = 0;
    for (; failed < 100; failed++) {
        spw_table *t = NULL;
        spw_alloc_fail_after(failed);
        spw_status status = spw_table_create(named ? NULL : columns, &t);
        if (status == SPW_OK) {
            for (int i = 0; i < 40; i++) named ? add_named(t, "a", 1, 1.0, true) : add_rows(t);
            spw_alloc_fail_after(-1);
            char *text = NULL;
            size_t length = 0;
            FILE *out = open_memstream(&text, &length);
            status = spw_table_print(t, SPW_FORMAT_CSV, out);
            (void)fclose(out);
            CHECK(status == SPW_OK || length == 0);
            free(text);
        }
        spw_alloc_fail_after(-1);
        spw_table_destroy(t);
        if (status == SPW_OK) break;
        CHECK(status == SPW_ENOMEM);
    }
    CHECK(failed >= 2 && failed < 100);
}

static int left = -1; /* allocations of jansson until one fails */

static void *allocate(size_t bytes) { return left >= 0 && left-- == 0 ? NULL : malloc(bytes); }

static json_t *document(spw_json *json) {
    json_t *root = json_object(), *list = json_array(), *inner = json_object();
    spw_json_put(json, root, "name", spw_json_text("dense"));
    for (int i = 0; i < 20; i++) spw_json_add(json, list, spw_json_count((uint64_t)i));
    spw_json_put(json, root, "list", list);
    spw_json_put(json, inner, "share", spw_json_real(0.25));
    spw_json_put(json, root, "inner", inner);
    return root;
}

/* Whichever allocation fails, a document is whole or there is none. */
static void test_json_allocations(void) {
    char *whole = NULL;
    int failed = 0;
    json_set_alloc_funcs(allocate, free);
    for (; failed < 200; failed++) {
        spw_json json = {.failed = false};
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        left = failed - 1; /* the first round is without a fault */
        const spw_status status = spw_json_print(&json, document(&json), JSON_COMPACT, "this", out);
        const bool met = left < 0;
        left = -1;
        CHECK(fclose(out) == 0);
        if (failed == 0) whole = text;
        if (status == SPW_OK && failed > 0) CHECK(strcmp(text, whole) == 0);
        if (status != SPW_OK) CHECK(status == SPW_ENOMEM && strstr(spw_last_error(), "memory") != NULL);
        if (failed > 0) free(text);
        if (failed > 0 && !met) break;
    }
    CHECK(failed > 20 && failed < 200 && whole != NULL);
    free(whole);
    json_set_alloc_funcs(malloc, free);
}

/* --- Lines of 40 characters --- */

static const spw_column wide_columns[] = {{"name", "name"},       {"size", "size"},
                                          {"first", "a heading"}, {"more", "more"},
                                          {"low", "low-high"},    {"last", "the last heading"},
                                          {"why", "because of"},  {NULL, NULL}};

static spw_table *wide_table(size_t columns_used) {
    static spw_column some[8];
    spw_table *t = NULL;
    memcpy(some, wide_columns, sizeof some);
    some[columns_used] = (spw_column){NULL, NULL};
    CHECK_OK(spw_table_create(some, &t));
    for (int row = 0; row < 3; row++) {
        spw_table_text(t, row == 2 ? "other" : "same");
        spw_table_count(t, row == 1 ? 2 : 1);
        for (size_t c = 2; c < columns_used && c < 6; c++) spw_table_count(t, 10000000 + (uint64_t)row);
        if (columns_used > 6)
            spw_table_text(t, row == 0 ? "one two three four five six seven eight nine ten eleven" : "");
    }
    return t;
}

static void expect_lines(size_t most, size_t columns_used, const char *want) {
    spw_table *t = wide_table(columns_used);
    spw_table_lines_at(most);
    expect(t, SPW_FORMAT_TABLE, want);
    char *csv = printed(t, SPW_FORMAT_CSV);
    spw_table_lines_at(SIZE_MAX);
    char *again = printed(t, SPW_FORMAT_CSV);
    CHECK(strcmp(csv, again) == 0); /* CSV is for machines */
    free(csv), free(again);
    spw_table_lines_at(SPW_LINE_CHARACTERS);
    spw_table_destroy(t);
}

/* Too wide by a heading: two lines of it. Wider: a second block, which names the rows again by the columns that tell them
 * apart, here two, and leaves "low-high" beside what it belongs to. */
static void test_folds(void) {
    expect_lines(
        120, 3,
        "name   size  a heading\nsame      1   10000000\nsame      2   10000001\nother     1   10000002\n");
    expect_lines(
        22, 3,
        "name   size  a heading\nsame      1   10000000\nsame      2   10000001\nother     1   10000002\n");
    expect_lines(
        21, 3,
        "                    a\nname   size   heading\nsame      1  10000000\nsame      2  10000001\n"
        "other     1  10000002\n");
    expect_lines(
        32, 5,
        "name   size  a heading\nsame      1   10000000\nsame      2   10000001\nother     1   10000002\n"
        "\nname   size      more  low-high\nsame      1  10000000  10000000\n"
        "same      2  10000001  10000001\nother     1  10000002  10000002\n");
}

/* A block as wide as the line, to the character: its heading stands on one line. */
static void test_exact_room(void) {
    spw_table *t = wide_table(5);
    spw_table_lines_at(22);
    char *text = printed(t, SPW_FORMAT_TABLE);
    CHECK(strncmp(text, "name   size  a heading\nsame      1   10000000\n", 46) == 0);
    free(text);
    spw_table_lines_at(SPW_LINE_CHARACTERS);
    spw_table_destroy(t);
}

/* A text that finds no room goes on below itself. */
static void test_folded_text(void) {
    spw_table *t = wide_table(7);
    spw_table_lines_at(100);
    char *text = printed(t, SPW_FORMAT_TABLE);
    CHECK(strstr(text, "  one two three four five six seven eight nine\n") != NULL);
    char rest[80];
    (void)snprintf(rest, sizeof rest, "\n%53sten eleven\n", "");
    CHECK(strstr(text, rest) != NULL && strstr(text, "  the last\n") != NULL);
    CHECK(strstr(text, "\nother     1  10000002  10000002  10000002  10000002\n") != NULL);
    free(text);
    spw_table_lines_at(SPW_LINE_CHARACTERS);
    spw_table_destroy(t);
}

/* Lines of prose: below the text behind their label, words kept whole, commands and what is not broken as they are. */
static void expect_wrapped(const char *said, const char *want) {
    char *text = NULL;
    size_t length = 0;
    spw_wrap *wrap = NULL;
    FILE *below = open_memstream(&text, &length);
    CHECK(below != NULL);
    CHECK_OK(spw_wrap_open(below, &wrap));
    spw_wrap_at(wrap, 30);
    CHECK(fputs(said, spw_wrap_stream(wrap)) >= 0 && spw_wrap_flush(wrap) == 0);
    spw_wrap_close(wrap);
    CHECK(fclose(below) == 0 && strcmp(text, want) == 0);
    if (strcmp(text, want) != 0) fprintf(stderr, "--- got\n%s\n--- want\n%s\n", text, want);
    free(text);
}

static void test_wrap(void) {
    expect_wrapped("123456789 123456789 1234567890\nno end", "123456789 123456789 1234567890\nno end");
    expect_wrapped("123456789 123456789 12345678901\n", "123456789 123456789\n  12345678901\n");
    expect_wrapped("routing   a trace of 3 steps and 4 layers",
                   "routing   a trace of 3 steps\n          and 4 layers");
    expect_wrapped("          what already goes on below a label\n",
                   "          what already goes on\n          below a label\n");
    expect_wrapped("routing   drops at most 11.36 %, or so\n",
                   "routing   drops at most\n          11.36 %, or so\n");
    /* a label of 24 characters is one, of 25 none */
    expect_wrapped(
        "a label of 22 letters   and more of it\n",
        "a label of 22 letters   and\n                        more\n                        of it\n");
    expect_wrapped("a label of 22, 23 let.   and more of it\n",
                   "a label of 22, 23 let.   and\n  more of it\n");
    expect_wrapped("a/path/that/has/no/blank/and/stays/whole, so\n",
                   "a/path/that/has/no/blank/and/stays/whole,\n  so\n");
    expect_wrapped("again: spillway verify --plugin a.so --case 1\n",
                   "again: spillway verify --plugin a.so --case 1\n");
    expect_wrapped("\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 "
                   "\xc3\xa9t\xc3\xa9 123456789\n",
                   "\xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 \xc3\xa9t\xc3\xa9 "
                   "\xc3\xa9t\xc3\xa9 123456789\n");
}

int main(void) {
    test_formats();
    test_folds();
    test_exact_room();
    test_folded_text();
    test_wrap();
    test_awkward_cells();
    test_formulas();
    test_named_columns();
    test_formulas_behind_blanks();
    test_amounts();
    test_counts();
    test_names();
    test_allocations(false);
    test_allocations(true);
    test_json_allocations();
    return check_done();
}
