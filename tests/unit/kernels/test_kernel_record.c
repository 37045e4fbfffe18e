/* Routing records: what is written is read, and what was not written is refused. No GPU needed. */
#include "kernels/record/choices.h"
#include "kernels/record/record.h"
#include "kernels/record/record_rules.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static const char good[] =
    "spillway-record 2\n"
    "origin by hand\n"
    "ranks 2\nexperts 4\ntop_k 2\nsequences 1\nsequence_length 3\nhidden 16\nschemes 1\n"
    "rank 0\n0 3\n1 -1\n0 2\n"
    "rank 1\n3 2\n0 1\n-1 -1\n"
    "scheme dense:capacity_factor=1.25\nrule capacity\nfactor_thousandths 1250\n"
    "buffer_rows 8\nbuffer_bytes 256\nrow_bytes 32\nback_bytes 36\nrows 8 8\ndropped 1 0\nwire 4 4\nwire 3 "
    "5\n"
    "end\n";

/* The good text with `from` replaced by `to`. */
static void expect(const char *from, const char *to, const char *message) {
    spw_record record;
    char text[2048];
    const char *at = strstr(good, from);
    CHECK(at != NULL);
    if (at == NULL) return;
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    CHECK_STATUS(spw_record_parse("r", text, strlen(text), &record), SPW_EFORMAT);
    const bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same && record.expert == NULL);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

static void test_round(void) {
    spw_record record, again;
    char *text = NULL;
    size_t length = 0;
    CHECK_OK(spw_record_parse("r", good, strlen(good), &record));
    CHECK(record.ranks == 2 && record.experts == 4 && record.top_k == 2 && record.sequence_length == 3);
    CHECK(record.expert[1] == 3 && record.expert[3] == -1 && record.expert[6] == 3 &&
          record.expert[11] == -1);
    CHECK(strcmp(record.origin, "by hand") == 0 && record.schemes == 1 &&
          record.scheme[0].rule == SPW_RECORD_CAPACITY);
    CHECK(record.scheme[0].factor_thousandths == 1250 && record.scheme[0].buffer_rows == 8);
    CHECK(record.scheme[0].buffer_bytes == 256 && record.scheme[0].rows[1] == 8 &&
          record.scheme[0].dropped[0] == 1);
    CHECK(record.scheme[0].row_bytes == 32 && record.scheme[0].back_bytes == 36);
    CHECK(record.scheme[0].wire[0][1] == 4 && record.scheme[0].wire[1][0] == 3 &&
          record.scheme[0].wire[1][1] == 5);
    FILE *out = open_memstream(&text, &length);
    CHECK(out != NULL);
    if (out == NULL) return;
    CHECK_OK(spw_record_write(&record, out));
    CHECK(fclose(out) == 0 && length == strlen(good) && memcmp(text, good, length) == 0);
    CHECK_OK(spw_record_parse("r", text, length, &again));
    spw_record_destroy(&again);
    record.hidden = 12;
    CHECK_STATUS(spw_record_write(&record, stderr), SPW_EARG);
    record.hidden = 16, record.scheme[0].buffer_rows = 0;
    CHECK_STATUS(spw_record_write(&record, stderr), SPW_EARG);
    record.scheme[0].buffer_rows = 8, record.expert[1] = record.expert[0];
    CHECK_STATUS(spw_record_write(&record, stderr), SPW_EARG);
    spw_record_destroy(&record);
    free(text);
}

static void test_refusals(void) {
    expect("record 2", "record 1", "r:1: must be 'spillway-record 2'");
    expect("by hand", "by\thand", "r:2: a text is 1 to 127 printable characters");
    expect("ranks 2", "ranks 65", "r:3: must be 'ranks' and a whole number from 1 to 64");
    expect("ranks 2", "ranks 02", "r:3: must be 'ranks' and a whole number from 1 to 64");
    expect("ranks 2", "ranks 99999999999999999999999",
           "r:3: must be 'ranks' and a whole number from 1 to 64");
    expect("experts 4", "experts -4", "r:4: must be 'experts' and a whole number from 1 to 512");
    expect("experts 4", "experts 3", "r:10: experts must be a multiple of ranks");
    expect("top_k 2", "top_k 5", "r:10: top_k must not exceed experts");
    expect("hidden 16", "hidden 12", "r:10: hidden must be a multiple of 8");
    expect("sequence_length 3", "sequence_length 1048576",
           "r:10: more choices than a file of its size can hold");
    expect("rank 1", "rank 2", "r:14: must be 'rank 1'");
    expect("3 2\n", "4 2\n", "r:15: an expert id must be below 4, or -1");
    expect("3 2\n", "3 2 1\n", "r:15: a token has 2 expert ids, a space apart");
    expect("3 2\n", "3\n", "r:15: a token has 2 expert ids, a space apart");
    expect("3 2\n", "3 3\n", "r:16: before this line: a token's experts must be distinct");
    expect("rule capacity", "rule luck",
           "r:20: before this line: a rule is capacity, source, expert or token");
    expect("buffer_rows 8", "buffer_rows 0",
           "r:21: must be 'buffer_rows' and a whole number from 1 to 67108864");
    expect("rows 8 8", "rows 8", "r:25: must be 'rows' and 2 whole numbers");
    expect("dropped 1 0", "dropped 1 0 0", "r:26: must be 'dropped' and 2 whole numbers");
    expect("wire 3 5", "wire 3", "r:28: must be 'wire' and 2 whole numbers");
    expect("row_bytes 32", "row_bytes x", "r:23: must be 'row_bytes' and a whole number from 1 to 1048576");
    expect("end\n", "end\nmore\n", "r:30: must be 'end', and nothing behind it");
    expect("end\n", "end", "r:29: must be 'end', and nothing behind it");
}

/* Cut anywhere, or with any byte replaced: never a crash, and cut short never accepted. */
static void test_damage(void) {
    spw_record record;
    const size_t length = strlen(good);
    for (size_t cut = 0; cut < length; cut++) {
        char *text = malloc(cut + 1); /* so that a sanitizer sees a byte too far */
        if (text == NULL) break;
        memcpy(text, good, cut);
        CHECK_STATUS(spw_record_parse("r", text, cut, &record), SPW_EFORMAT);
        free(text);
    }
    for (size_t i = 0; i < length; i++) {
        static const char bytes[] = {'\0', '9', '-', ' ', '\n', '\x7f', '\xff'};
        char text[sizeof good];
        for (size_t b = 0; b < sizeof bytes; b++) {
            memcpy(text, good, sizeof good);
            text[i] = bytes[b];
            const spw_status status = spw_record_parse("r", text, length, &record);
            CHECK(status == SPW_OK || (status == SPW_EFORMAT && record.expert == NULL));
            spw_record_destroy(&record);
        }
    }
}

/* The record that comes with the project. */
static void test_shipped(const char *path) {
    spw_record record;
    CHECK_OK(spw_record_read(path, &record));
    CHECK(record.ranks == 4 && record.experts == 64 && record.top_k == 8 && record.schemes == 6);
    spw_record_destroy(&record);
    CHECK_STATUS(spw_record_read("no/such/record", &record), SPW_EIO);
    spw_alloc_fail_after(0);
    CHECK_STATUS(spw_record_parse("r", good, strlen(good), &record), SPW_ENOMEM);
    spw_alloc_fail_after(-1);
}

/* Rows of a rank's buffer, by hand: 2 ranks of 3 sequences of 100 tokens, 2 choices each. */
static void test_buffers(void) {
    static const struct {
        spw_record_rule rule;
        size_t experts, thousandths, rows;
    } tries[] = {{SPW_RECORD_CAPACITY, 8, 1250, 3 * 8 * 31}, /* 1.25 x 25 slots, cut */
                 {SPW_RECORD_CAPACITY, 8, 1, 3 * 8 * 0},
                 {SPW_RECORD_EXPERT, 8, 1500, 900},
                 {SPW_RECORD_EXPERT, 8, 3000, 1200}, /* never more than all choices of the group */
                 {SPW_RECORD_EXPERT, 8, 0, 1200},
                 {SPW_RECORD_SOURCE, 8, 1500, 900},
                 {SPW_RECORD_SOURCE, 8, 3000, 1800},
                 {SPW_RECORD_SOURCE, 8, 0, 1200}, /* a token has two choices, of 4 experts */
                 {SPW_RECORD_SOURCE, 2, 0, 600},  /* of 1 expert */
                 {SPW_RECORD_TOKEN, 8, 0, 1200}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const spw_record r = {
            .ranks = 2, .sequences = 3, .sequence_length = 100, .top_k = 2, .experts = tries[i].experts};
        const spw_record_scheme scheme = {.rule = tries[i].rule, .factor_thousandths = tries[i].thousandths};
        const size_t rows = spw_record_buffer(&r, &scheme);
        CHECK(rows == tries[i].rows);
        if (rows != tries[i].rows) fprintf(stderr, "buffer %zu: %zu, want %zu\n", i, rows, tries[i].rows);
    }
}

enum { DRAWN = 6000, CHOSEN = 3, AMONG = 16, OVER = 4 };
static int32_t drawn[DRAWN][CHOSEN];

/* What each kind of choices promises. */
static void test_choices(void) {
    for (int kind = 0; kind < SPW_CHOICES_KINDS; kind++) {
        size_t of[AMONG] = {0}, unused = 0, without = 0;
        spw_choices_fill((spw_choice_kind)kind, DRAWN, CHOSEN, AMONG, OVER, 5, &drawn[0][0]);
        for (size_t t = 0; t < DRAWN; t++) {
            size_t here = 0;
            for (size_t k = 0; k < CHOSEN; k++) {
                const int32_t x = drawn[t][k];
                CHECK(x >= -1 && x < AMONG);
                for (size_t j = 0; j < k; j++) CHECK(x < 0 || drawn[t][j] != x);
                if (x >= 0) of[x]++, here++;
            }
            unused += CHOSEN - here;
            without += here == 0;
        }
        const double each = (double)(DRAWN * CHOSEN - unused) / AMONG;
        for (size_t x = 0; x < AMONG; x++) {
            const double share = (double)of[x] / each;
            if (kind == SPW_CHOICES_UNIFORM || kind == SPW_CHOICES_FEW) CHECK(share > 0.9 && share < 1.1);
            if (kind == SPW_CHOICES_ONE) CHECK(of[x] == (x < CHOSEN ? DRAWN : 0));
            if (kind == SPW_CHOICES_EMPTY) CHECK(x < 12 ? share > 1.2 && share < 1.5 : of[x] == 0);
            if (kind == SPW_CHOICES_SKEWED && x > 0) CHECK((double)of[x] < 1.1 * (double)of[x - 1]);
        }
        if (kind == SPW_CHOICES_SKEWED) CHECK(of[0] > 4 * of[AMONG - 1] && of[AMONG - 1] > 0);
        if (kind != SPW_CHOICES_FEW) CHECK(unused == 0);
        if (kind == SPW_CHOICES_FEW) CHECK(without >= DRAWN / 7 && without < DRAWN / 6);
        if (kind == SPW_CHOICES_FEW) CHECK(unused > DRAWN * CHOSEN / 4 && unused < DRAWN * CHOSEN * 2 / 5);
    }
}

int main(int argc, char **argv) {
    test_round();
    test_refusals();
    test_damage();
    if (argc == 2) test_shipped(argv[1]);
    test_buffers();
    test_choices();
    return check_done();
}
