/* --imbalance as it is written and printed: one number once, at one size, in any order; the sizes of as many GPUs as there are. */
#include "sim/command/plan/plan_imbalance.h"

#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static void test_parse(void) {
    static const struct {
        const char *text;
        double most; /* 0: refused */
        size_t expert;
    } rows[] = {{"1.5", 1.5, 0},
                {"1", 1.0, 0},
                {"max_over_mean=2,ep=8", 2.0, 8},
                {"ep=16,moe/avg_overload_factor=1.25", 1.25, 16},
                {"max_cum_overload_factor=3", 3.0, 0},
                {"0.99", 0.0, 0},
                {"1.5,1.5", 0.0, 0},
                {"1.5,max_over_mean=2", 0.0, 0},
                {"ep=8", 0.0, 0},
                {"1.5,ep=0", 0.0, 0},
                {"1.5x", 0.0, 0},
                {"other=1.5", 0.0, 0},
                {"1e7", 0.0, 0},
                {"", 0.0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        spw_stated stated;
        const spw_status status = spw_stated_parse(rows[i].text, &stated);
        CHECK(status == (rows[i].most > 0.0 ? SPW_OK : SPW_EARG));
        if (status == SPW_OK) CHECK(stated.max_over_mean == rows[i].most && stated.expert == rows[i].expert);
        if (status != SPW_OK) CHECK(strncmp(spw_last_error(), "--imbalance", 11) == 0);
    }
}

/* Of a law for 8 experts at EP 1, 2, 4 and 8: on 4 GPUs the first three, on 5 too, on 8 all. */
static void test_print(void) {
    static const struct {
        size_t gpus;
        const char *last, *beyond;
    } rows[] = {{1, " 1: 1", " 2: "}, {4, " 4: ", " 8: "}, {5, " 4: ", " 8: "}, {8, " 8: ", " 16: "}};
    spw_imbalance_law law;
    CHECK_OK(spw_imbalance_law_create(8, 2, 8, 1.5, &law));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        CHECK(out != NULL);
        if (out == NULL) return;
        spw_stated_print(&law, rows[i].gpus, out);
        CHECK(fclose(out) == 0);
        const char *sizes = strstr(text, "stated; EP");
        CHECK(strncmp(text, "imbalance 1.5 at EP 8,", 22) == 0 && sizes != NULL);
        CHECK(sizes != NULL && strstr(sizes, rows[i].last) != NULL && strstr(sizes, rows[i].beyond) == NULL);
        free(text);
    }
    spw_imbalance_law_destroy(&law);
}

int main(void) {
    test_parse();
    test_print();
    return check_done();
}
