/* Tables as a person, a JSON reader and a CSV reader see them. */
#include "sim/print/table.h"

#include "base/memory.h"
#include "sim/print/json_values.h"
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

/* A table that ran out of memory says so when it is printed, not before. */
static void test_allocations(void) {
    int failed = 0;
    for (; failed < 100; failed++) {
        spw_table *t = NULL;
        spw_alloc_fail_after(failed);
        spw_status status = spw_table_create(columns, &t);
        if (status == SPW_OK) {
            for (int i = 0; i < 40; i++) add_rows(t);
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

int main(void) {
    test_formats();
    test_awkward_cells();
    test_names();
    test_allocations();
    test_json_allocations();
    return check_done();
}
