/* CSV tables: RFC 4180 by hand, then damage. */
#include "sim/read/csv.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <string.h>

static spw_csv *open_text(const char *text) {
    spw_csv *csv = NULL;
    CHECK_OK(spw_csv_parse("t.csv", text, strlen(text), &csv));
    return csv;
}

static void expect_field(const spw_csv *csv, size_t row, const char *column, const char *want) {
    const char *got = spw_csv_field(csv, row, column);
    const bool same = got != NULL && strcmp(got, want) == 0;
    CHECK(same);
    if (!same)
        fprintf(stderr, "  row %zu %s: got '%s', want '%s'\n", row, column, got != NULL ? got : "none", want);
}

static void test_plain(void) {
    spw_csv *csv = open_text("a,b,c\n1,,3\n\n4,5,\n");
    CHECK(spw_csv_rows(csv) == 2 && strcmp(spw_csv_where(csv), "t.csv") == 0);
    CHECK(spw_csv_line(csv, 0) == 2 && spw_csv_line(csv, 1) == 4);
    expect_field(csv, 0, "a", "1");
    expect_field(csv, 0, "b", "");
    expect_field(csv, 0, "c", "3");
    expect_field(csv, 1, "c", "");
    CHECK(spw_csv_field(csv, 0, "d") == NULL);
    spw_csv_close(csv);
    csv = open_text("a\n"); /* a header alone */
    CHECK(spw_csv_rows(csv) == 0);
    spw_csv_close(csv);
    csv = open_text("\xef\xbb\xbf"
                    "a,b\r\n1,2\r\n\r\n3,4"); /* a mark, CR LF, no last line end */
    CHECK(spw_csv_rows(csv) == 2);
    expect_field(csv, 0, "a", "1");
    expect_field(csv, 0, "b", "2");
    expect_field(csv, 1, "b", "4");
    spw_csv_close(csv);
    csv = open_text("a,b\n1,2\r"); /* a lone CR ends the file */
    expect_field(csv, 0, "b", "2");
    spw_csv_close(csv);
}

static void test_quotes_by_hand(void) {
    spw_csv *csv = open_text("id,\"the, scheme\",note\n"
                             "1,\"ring:ragged_sort=true,buffer_factor=1\",\"say \"\"so\"\"\"\n"
                             "2,\"\",\"two\r\nlines\"\r\n"
                             "\"3\",x,\"\"\"\"");
    CHECK(spw_csv_rows(csv) == 3);
    expect_field(csv, 0, "the, scheme", "ring:ragged_sort=true,buffer_factor=1");
    expect_field(csv, 0, "note", "say \"so\"");
    expect_field(csv, 1, "the, scheme", "");
    expect_field(csv, 1, "note", "two\r\nlines");
    expect_field(csv, 2, "id", "3");
    expect_field(csv, 2, "note", "\"");
    CHECK(spw_csv_line(csv, 1) == 3 && spw_csv_line(csv, 2) == 5);
    spw_csv_close(csv);
}

static void refuse(const char *text, size_t length, const char *message) {
    spw_csv *csv = NULL;
    CHECK_STATUS(spw_csv_parse("t.csv", text, length, &csv), SPW_EFORMAT);
    CHECK(csv == NULL);
    const bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}
#define REFUSE(text, message) refuse(text, sizeof(text) - 1, message)

static void test_damage(void) {
    REFUSE("", "t.csv: empty; a header line is needed");
    REFUSE("\n\n", "t.csv: empty; a header line is needed");
    REFUSE("a,b\n1\n", "t.csv:2: 1 fields; the header has 2");
    REFUSE("a,b\n1,2\n1,2,3\n", "t.csv:3: 3 fields; the header has 2");
    REFUSE("a,b\n1,\"2\n3\n", "t.csv:2: a quote opens here and never closes");
    REFUSE("a,b\n1,2\"3\n",
           "t.csv:2: a quote stands inside a field; quote the whole field and double the quote");
    REFUSE("a,b\n1,\"2\"3\n",
           "t.csv:2: a quote stands inside a field; quote the whole field and double the quote");
    REFUSE("a,a\n1,2\n", "t.csv:1: column 'a' is there twice");
    REFUSE("a\n1\0002\n", "t.csv: holds a zero byte; a CSV file is text");
    spw_csv *csv = NULL;
    CHECK_STATUS(spw_csv_read("no such folder/t.csv", &csv), SPW_EIO);
    CHECK(csv == NULL);
}

/* More columns than are read, and every allocation failing once. */
static void test_limits(void) {
    char wide[2 * SPW_CSV_COLUMNS + 8] = "";
    for (size_t i = 0; i < SPW_CSV_COLUMNS; i++) memcpy(wide + 2 * i, "x,", 3);
    refuse(wide, strlen(wide), "t.csv:1: 257 columns; at most 256 are read");
    const char *text = "a,b\n1,2\n";
    int failed = 0;
    for (int n = 0; n < 16; n++) {
        spw_csv *csv = NULL;
        spw_alloc_fail_after(n);
        const spw_status status = spw_csv_parse("t.csv", text, strlen(text), &csv);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK ? csv != NULL : status == SPW_ENOMEM && csv == NULL);
        failed += status != SPW_OK;
        spw_csv_close(csv);
    }
    CHECK(failed >= 4);
}

/* Every cut of a table either reads or is refused, and never reads beyond its end. */
static void test_cuts(void) {
    const char *text = "id,\"the, scheme\",note\n1,\"a,b\",\"say \"\"so\"\"\"\r\n2,\"\",\"two\nlines\"\n";
    for (size_t length = 0; length <= strlen(text); length++) {
        char *copy = NULL;
        spw_csv *csv = NULL;
        CHECK_OK(SPW_ALLOC(length + 1, &copy));
        memcpy(copy, text, length);
        const spw_status status = spw_csv_parse("t.csv", copy, length, &csv);
        CHECK(status == SPW_OK || status == SPW_EFORMAT);
        spw_csv_close(csv);
        spw_free(copy);
    }
}

int main(void) {
    test_plain();
    test_quotes_by_hand();
    test_damage();
    test_limits();
    test_cuts();
    return check_done();
}
