/* Status, text, checked memory, records of it, and what libraries left. */
#include "base/grow.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "base/walk.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void test_status(void) {
    CHECK(strcmp(spw_status_name(SPW_EFORMAT), "SPW_EFORMAT") == 0);
    CHECK(spw_status_exit(SPW_OK) == 0 && spw_status_exit(SPW_EMISMATCH) == 1);
    CHECK(spw_status_exit(SPW_ECONFIG) == 2 && spw_status_exit(SPW_EIO) == 3);
    CHECK(spw_status_exit((spw_status)99) == 3);
    CHECK(spw_fail(SPW_EARG, "top_k %d", 3) == SPW_EARG && strcmp(spw_last_error(), "top_k 3") == 0);
    CHECK(spw_fail_within(SPW_EARG, "line %d", 7) == SPW_EARG);
    CHECK(strcmp(spw_last_error(), "line 7: top_k 3") == 0);
}

static void test_plain_text(void) {
    char out[32];
    CHECK(spw_text_has_gap("1,,2") && spw_text_has_gap(",1") && spw_text_has_gap("1,") &&
          spw_text_has_gap(","));
    CHECK(!spw_text_has_gap("") && !spw_text_has_gap("1") && !spw_text_has_gap("1,2, 3"));
    spw_plain_text("a\x1b[2Jb\n\x7f", out, sizeof out);
    CHECK(strcmp(out, "a?[2Jb??") == 0);
    spw_plain_text("\xc3\xa9\xc2\x85\xff\xe2\x82", out,
                   sizeof out); /* e acute; a control; no UTF-8; cut short */
    CHECK(strcmp(out, "\xc3\xa9????") == 0);
    spw_plain_text("a\xe2\x80\xae"
                   "b\xe2\x81\xa6"
                   "c\xd8\x9c"
                   "d\xe2\x80\x8f",
                   out, sizeof out); /* they turn the text around */
    CHECK(strcmp(out, "a?b?c?d?") == 0);
    spw_plain_text("\xc0\x80|\xed\xa0\x80|\xf0\x9f\x98\x80", out,
                   sizeof out); /* overlong; a surrogate; a face */
    CHECK(strcmp(out, "??|???|\xf0\x9f\x98\x80") == 0);
    spw_plain_text("0123456789", out, 10);
    CHECK(strlen(out) < 10);
}

/* Characters that steer a terminal or turn text around, and those that are none, at every border: Unicode 15, by its names. */
static void test_unfit(void) {
    static const struct {
        uint32_t first, last;
    } unfit[] = {{0x00, 0x08},     /* controls, but for tab and newline */
                 {0x0b, 0x1f},     /* controls */
                 {0x7f, 0x9f},     /* delete, and C1 */
                 {0x61c, 0x61c},   /* Arabic letter mark */
                 {0x200e, 0x200f}, /* left-to-right, right-to-left mark */
                 {0x2028, 0x202e}, /* line and paragraph separator, embeddings, overrides */
                 {0x2066, 0x2069}, /* isolates */
                 {0xfffe, 0xffff}, /* no characters, here and at the end of every plane */
                 {0x1fffe, 0x1ffff}, {0x10fffe, 0x10ffff}};
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        for (uint32_t c = unfit[i].first; c <= unfit[i].last; c++) CHECK(spw_text_is_unfit(c));
        if (unfit[i].first > 0) CHECK(!spw_text_is_unfit(unfit[i].first - 1));
        if (unfit[i].last < 0x10ffff) CHECK(!spw_text_is_unfit(unfit[i].last + 1));
    }
    CHECK(spw_text_is_unfit(SPW_TEXT_BROKEN));
}

static void test_numbers(void) {
    static const struct {
        const char *text;
        double value;
        size_t used;
    } cases[] = {{"1.5e3B", 1500.0, 5}, {"-2", -2.0, 2},    {".5", 0.5, 2}, {"0", 0.0, 1},
                 {"0x10B", 0.0, 0},     {"-0X1p4", 0.0, 0}, {" 5", 0.0, 0}, {"inf", 0.0, 0},
                 {"nan", 0.0, 0},       {"", 0.0, 0},       {"+7", 7.0, 2}, {"-", 0.0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *end = NULL;
        CHECK(spw_text_number(cases[i].text, &end) == cases[i].value && end == cases[i].text + cases[i].used);
    }
    size_t length = 4;
    const char *marked = "\xef\xbb\xbf{";
    CHECK(spw_text_skip_mark(marked, &length) == marked + 3 && length == 1);
    CHECK(spw_text_skip_mark("{", &length)[0] == '{' && length == 1);
}

static void test_memory(void) {
    double *numbers = NULL;
    CHECK_OK(SPW_ALLOC(100, &numbers));
    CHECK(numbers != NULL && numbers[99] == 0.0 && ((uintptr_t)numbers & 63) == 0);
    spw_free(numbers);
    CHECK_STATUS(SPW_ALLOC(SIZE_MAX / 4, &numbers), SPW_ENOMEM);
    CHECK(numbers == NULL);
    char *text = NULL; /* a product that fits, and no longer does when it is rounded up */
    for (size_t less = 0; less < 64; less++) CHECK_STATUS(SPW_ALLOC(SIZE_MAX - less, &text), SPW_ENOMEM);
    CHECK(text == NULL);
    spw_alloc_fail_after(1);
    CHECK_OK(SPW_ALLOC(1, &numbers));
    spw_free(numbers);
    CHECK_STATUS(SPW_ALLOC(1, &numbers), SPW_ENOMEM);
    CHECK_OK(SPW_ALLOC(1, &numbers));
    spw_free(numbers);
    spw_forget_causes();
}

/* What a library met stands behind what is blamed on a file, and no run succeeds that met it. */
/* What is held comes back, and a limit is held. */
static void test_memory_limit(void) {
    const size_t before = spw_memory_held();
    char *some = NULL, *more = NULL;
    CHECK_OK(SPW_ALLOC(100000, &some));
    CHECK(spw_memory_held() >= before + 100000 && spw_memory_held() < before + 110000);
    CHECK(spw_memory_resident() > 100000);
    spw_memory_limit(1 << 20, before + 150000);
    CHECK(spw_memory_limited() == 1 << 20);
    CHECK(SPW_ALLOC(100000, &more) == SPW_ENOMEM && strstr(spw_last_error(), "1048576 bytes") != NULL);
    CHECK_OK(SPW_ALLOC(40000, &more));
    spw_free(more);
    spw_memory_limit(0, 0);
    CHECK_OK(SPW_ALLOC(1000000, &more));
    spw_free(more);
    spw_free(some);
    CHECK(spw_memory_held() == before);
    spw_forget_causes();
}

/* What an array holds stays when it grows, also by whole pages, and when it could not; held and limited is what it has now. */
/* What is held stays wherever the memory goes: others in between move it, and its place within a line changes. */
static void test_resize_moves(void) {
    enum { TIMES = 300 };
    unsigned char *bytes = NULL, *other[TIMES] = {NULL};
    for (size_t n = 1; n < TIMES; n++) {
        CHECK_OK(SPW_RESIZE(n * 7, &bytes));
        CHECK((uintptr_t)bytes % 64 == 0);
        for (size_t i = (n - 1) * 7; i < n * 7; i++) bytes[i] = (unsigned char)(i * 31);
        other[n] = malloc(n % 5 * 16 + 1); /* the heap's next place is elsewhere in a line */
        size_t right = 0;
        for (size_t i = 0; i < n * 7; i++) right += bytes[i] == (unsigned char)(i * 31);
        CHECK(right == n * 7);
    }
    for (size_t n = 0; n < TIMES; n++) free(other[n]);
    CHECK_OK(SPW_RESIZE(100, &bytes));
    for (size_t i = 0; i < 100; i++) CHECK(bytes[i] == (unsigned char)(i * 31));
    spw_free(bytes);
}

static void test_resize(void) {
    enum { FIRST = 100, MANY = 1 << 20 };
    const size_t before = spw_memory_held();
    size_t *number = NULL;
    CHECK_OK(SPW_RESIZE(FIRST, &number));
    for (size_t i = 0; i < FIRST; i++) number[i] = i + 3;
    CHECK_OK(SPW_RESIZE(MANY, &number));
    for (size_t i = FIRST; i < MANY; i++) number[i] = i + 3;
    CHECK_OK(SPW_RESIZE(2 * MANY, &number));
    CHECK(spw_memory_held() >= before + 2 * MANY * sizeof *number);
    CHECK(spw_memory_held() < before + 3 * MANY * sizeof *number);
    size_t *const kept = number;
    CHECK_STATUS(SPW_RESIZE(SIZE_MAX / 4, &number), SPW_ENOMEM);
    spw_alloc_fail_after(0);
    CHECK_STATUS(SPW_RESIZE(3 * MANY, &number), SPW_ENOMEM);
    spw_alloc_fail_after(-1);
    spw_memory_limit(1 << 20, before + 2 * MANY * sizeof *number + 4096);
    CHECK_STATUS(SPW_RESIZE(3 * MANY, &number), SPW_ENOMEM);
    CHECK(number == kept);
    CHECK_OK(SPW_RESIZE(2 * MANY, &number)); /* what it has goes back for it */
    spw_memory_limit(0, 0);
    size_t right = 0;
    for (size_t i = 0; i < MANY; i++) right += number[i] == i + 3;
    CHECK(right == MANY);
    spw_free(number);
    CHECK(spw_memory_held() == before);
    spw_forget_causes();
}

static void test_causes(void) {
    CHECK(spw_settle(SPW_OK) == SPW_OK && spw_settle(SPW_EMISMATCH) == SPW_EMISMATCH);
    spw_note_cause(SPW_ENOMEM, "out of memory in a library");
    spw_note_cause(SPW_EIO, "later, and of the same");
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_ENOMEM);
    CHECK(strcmp(spw_last_error(), "f.h5: out of memory in a library") == 0);
    CHECK(spw_fail(SPW_EARG, "no such option") == SPW_EARG);
    CHECK(spw_settle(SPW_OK) == SPW_ENOMEM && spw_settle(SPW_EMISMATCH) == SPW_ENOMEM);
    CHECK(spw_settle(SPW_EIO) == SPW_EIO);
    spw_forget_causes();
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_EFORMAT && spw_settle(SPW_OK) == SPW_OK);
    char *memory = NULL;
    spw_alloc_fail_after(0);
    CHECK_STATUS(SPW_ALLOC(1, &memory), SPW_ENOMEM);
    CHECK(spw_settle(SPW_OK) == SPW_ENOMEM); /* whoever may have swallowed it */
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_EFORMAT);
    spw_alloc_fail_after(-1);
    CHECK(spw_settle(SPW_OK) == SPW_OK);
}

/* What was put into a record comes back in order; a record that was cut anywhere is refused where something is missing. */
static void test_notes(void) {
    static const size_t part[] = {8, 1, 17, 64, 3, 5};
    enum { PARTS = sizeof part / sizeof *part };
    spw_note note = {.data = NULL};
    for (size_t i = 0; i < PARTS; i++) {
        void *at = NULL;
        CHECK_OK(spw_note_add(&note, part[i], &at));
        CHECK(at != NULL && (uintptr_t)at % 8 == 0);
        if (at != NULL) memset(at, (int)i + 1, part[i]);
    }
    for (size_t bytes = 0; bytes <= note.bytes; bytes++) {
        spw_note_reader reader = {note.data, bytes};
        size_t i = 0, end = 0;
        for (; i < PARTS; i++) {
            const void *at = NULL;
            end += (part[i] + 7) / 8 * 8;
            const spw_status status = spw_note_next(&reader, part[i], &at);
            CHECK(status == (end <= bytes ? SPW_OK : SPW_EFORMAT) && reader.bytes <= bytes);
            if (status != SPW_OK) break;
            const unsigned char *data = at;
            CHECK(data[0] == i + 1 && data[part[i] - 1] == i + 1);
        }
        CHECK((i == PARTS) == (bytes == note.bytes));
    }
    spw_free(note.data);
}

static void test_grow(void) {
    size_t *number = NULL, room = 0;
    for (size_t i = 0; i < 100; i++) {
        const size_t before = room;
        CHECK_OK(SPW_GROW(i, i + 1, &room, &number));
        CHECK(room == (i < before ? before : 2 * (i + 1)));
        number[i] = i + 7;
    }
    for (size_t i = 0; i < 100; i++) CHECK(number[i] == i + 7);
    size_t *const kept = number;
    CHECK_STATUS(SPW_GROW(100, SIZE_MAX / 4, &room, &number), SPW_ENOMEM);
    spw_alloc_fail_after(0);
    CHECK_STATUS(SPW_GROW(100, room + 1, &room, &number), SPW_ENOMEM);
    spw_alloc_fail_after(-1);
    CHECK(number == kept && number[99] == 106);
    spw_free(number);
    spw_forget_causes();
}

int main(void) {
    test_status();
    test_plain_text();
    test_unfit();
    test_numbers();
    test_memory();
    test_memory_limit();
    test_resize();
    test_resize_moves();
    test_grow();
    test_causes();
    test_notes();
    return check_done();
}
