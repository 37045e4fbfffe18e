/* A preset is parsed once a process; a file every time, as it may have changed; what is refused is refused again. */
#include "sim/read/preset.h"

#include "tests/unit/check.h"

#include <string.h>

typedef struct parsed {
    char first;
    size_t length;
} parsed;

static int parses;

static spw_status parse(const char *where, const char *text, size_t length, void *out) {
    parses++;
    *(parsed *)out = (parsed){text[0], length};
    return length > 0 ? SPW_OK : spw_fail(SPW_ECONFIG, "%s: empty", where);
}

static spw_status parse_end(const char *where, const char *text, size_t length, void *out) {
    (void)where;
    parses++;
    *(parsed *)out = (parsed){text[length - 1], length};
    return SPW_OK;
}

/* Two texts, asked in turn. */
static void test_once(void) {
    static const char a[] = "abc", b[] = "de";
    const spw_preset_text one = {.where = "one", .text = a, .length = 3},
                          other = {.where = "other", .text = b, .length = 2};
    parsed out;
    parses = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(spw_preset_parse(&one, parse, sizeof out, &out));
        CHECK(out.first == 'a' && out.length == 3);
        CHECK_OK(spw_preset_parse(&other, parse, sizeof out, &out));
        CHECK(out.first == 'd' && out.length == 2);
        out.first = '?'; /* what a caller changes is its own copy */
    }
    CHECK(parses == 2);
    CHECK_OK(spw_preset_parse(&one, parse_end, sizeof out, &out));
    CHECK(out.first == 'c' && parses == 3);
}

static void test_file(void) {
    char path[] = "x.yaml", text[] = "abc";
    const spw_preset_text file = {.where = path, .text = text, .length = 3, .path = path, .content = text};
    parsed out;
    parses = 0;
    CHECK_OK(spw_preset_parse(&file, parse, sizeof out, &out));
    text[0] = 'z';
    CHECK_OK(spw_preset_parse(&file, parse, sizeof out, &out));
    CHECK(out.first == 'z' && parses == 2);
}

static void test_refused(void) {
    static const char text[] = "-";
    const spw_preset_text preset = {.where = "none", .text = text, .length = 0};
    parsed out;
    parses = 0;
    for (int i = 0; i < 2; i++) CHECK(spw_preset_parse(&preset, parse, sizeof out, &out) == SPW_ECONFIG);
    CHECK(parses == 2);
}

/* More than there is room for. */
static void test_many(void) {
    static char text[200][2];
    parsed out;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < 200; i++) {
            text[i][0] = (char)('a' + i % 26);
            const spw_preset_text preset = {.where = "many", .text = text[i], .length = 1};
            CHECK_OK(spw_preset_parse(&preset, parse, sizeof out, &out));
            CHECK(out.first == text[i][0]);
        }
}

int main(void) {
    test_once();
    test_file();
    test_refused();
    test_many();
    return check_done();
}
