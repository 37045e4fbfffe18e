/* The report when there is no memory: every allocation of reading and writing fails once. And text as HTML.
 * argv[1]: a result file; without one only the text is tested. */
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"
#include "sim/report/report_page.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static void expect_text(const char *text, const char *want) {
    char *got = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&got, &length);
    CHECK(out != NULL);
    if (out == NULL) return;
    spw_html_text(out, text);
    CHECK(fclose(out) == 0);
    CHECK(strcmp(got, want) == 0);
    if (strcmp(got, want) != 0) fprintf(stderr, "'%s', want '%s'\n", got, want);
    free(got);
}

#define REPLACED "\xef\xbf\xbd"

static void test_text(void) {
    expect_text("<script>alert('&\"')</script>", "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;");
    expect_text("caf\xc3\xa9 \xf0\x9f\x98\x80\n", "caf\xc3\xa9 \xf0\x9f\x98\x80\n");
    expect_text("a\x1b[2J\x7f\xc2\x85", "a" REPLACED "[2J" REPLACED REPLACED);
    expect_text("\xe2\x80\xae"
                "gpj.exe",
                REPLACED "gpj.exe");                                      /* right to left */
    expect_text("\xff\xc3", REPLACED REPLACED);                           /* no UTF-8; cut short */
    expect_text("\xc0\xbc", REPLACED REPLACED);                           /* '<' written too long */
    expect_text("\xed\xa0\x80", REPLACED REPLACED REPLACED);              /* half of a surrogate pair */
    expect_text("\xf4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED); /* beyond the last character */
    expect_text("\xef\xbf\xbe", REPLACED);                                /* no character */
}

static void test_percent(void) {
    static const struct {
        double share;
        const char *want;
    } cases[] = {{0.0, "0"},     {1.0, "100"},   {0.996, "100"},   {0.29, "29"},         {0.0994, "9.9"},
                 {0.0996, "10"}, {0.053, "5.3"}, {0.0053, "0.53"}, {0.0000531, "0.0053"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.*f", spw_percent_digits(cases[i].share), 100.0 * cases[i].share);
        CHECK(strcmp(text, cases[i].want) == 0);
        if (strcmp(text, cases[i].want) != 0) fprintf(stderr, "'%s', want '%s'\n", text, cases[i].want);
    }
}

static void test_scale(void) {
    double tick[SPW_CHART_TICKS], lengths[] = {3.0, 1.0, 100.0, 2.0};
    const size_t ticks = spw_chart_ticks(267.8, 4, tick);
    CHECK(ticks == 4 && tick[1] == 100.0 && tick[3] == 300.0);
    CHECK(spw_chart_ticks(0.0, 4, tick) >= 2 && tick[0] == 0.0 && tick[1] > 0.0);
    double most = 1e-12;
    for (int i = 0; i < 64; i++, most *= 3.7) { /* to 1e24 */
        const size_t count = spw_chart_ticks(most, 8, tick);
        CHECK(count >= 2 && count <= SPW_CHART_TICKS && tick[count - 1] >= most && tick[count - 2] < most);
    }
    CHECK(spw_chart_digits(0.25) == 2 && spw_chart_digits(20.0) == 0 && spw_chart_digits(0.5) == 1);
    CHECK(spw_chart_end(lengths, 4, 4.0, 0.0) == 8.0);
    CHECK(spw_chart_end(lengths, 4, 4.0, 1000.0) == 100.0);
}

static size_t page_bytes(const spw_report *report, spw_status *status) {
    char *page = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&page, &length);
    *status = out != NULL ? spw_report_write(report, "result.h5", out) : SPW_ENOMEM;
    if (out != NULL) (void)fclose(out);
    free(page);
    return length;
}

static void test_no_memory(const char *path) {
    spw_report report;
    spw_status status = SPW_ENOMEM;
    int n = 0;
    for (; status == SPW_ENOMEM && n < 1000; n++) {
        spw_alloc_fail_after(n);
        status = spw_report_read(path, &report);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || (report.rows == 0 && report.row == NULL && report.root == NULL));
    }
    CHECK_OK(status);
    CHECK(n > 5);
    if (status != SPW_OK) return;
    const size_t whole = page_bytes(&report, &status);
    CHECK(status == SPW_OK && whole > 1000);
    for (status = SPW_ENOMEM, n = 0; status == SPW_ENOMEM && n < 1000; n++) {
        spw_alloc_fail_after(n);
        const size_t bytes = page_bytes(&report, &status);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_ENOMEM || (status == SPW_OK && bytes == whole));
    }
    CHECK(n > 3);
    spw_report_clear(&report);
}

int main(int argc, char **argv) {
    test_text();
    test_scale();
    test_percent();
    if (argc > 1) test_no_memory(argv[1]);
    return check_done();
}
