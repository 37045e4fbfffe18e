/* Failures of several threads: one is kept, with the message of the thread that met it. */
#include "base/failure.h"

#include "tests/unit/check.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { PIECES = 64, THREADS = 4 };

static spw_status work(size_t piece, size_t first_bad) {
    return piece >= first_bad ? spw_fail(piece % 2 == 0 ? SPW_EARG : SPW_EFORMAT, "piece %zu", piece)
                              : SPW_OK;
}

static void test_first_piece(void) {
    for (size_t first_bad = 0; first_bad <= PIECES; first_bad++) {
        spw_failure failure = SPW_NO_FAILURE;
        char want[32];
        (void)snprintf(want, sizeof want, "piece %zu", first_bad);
#pragma omp parallel for num_threads(THREADS) schedule(dynamic, 1)
        for (size_t i = 0; i < PIECES; i++)
            spw_failure_note(&failure, PIECES - 1 - i,
                             work(PIECES - 1 - i, first_bad)); /* the last comes first */
        CHECK(spw_failure_is_there(&failure) == (first_bad < PIECES));
        const spw_status none = spw_fail(SPW_EARG, "of before");
        CHECK(none == SPW_EARG);
        CHECK_STATUS(spw_failure_tell(&failure), first_bad == PIECES  ? SPW_OK
                                                 : first_bad % 2 == 0 ? SPW_EARG
                                                                      : SPW_EFORMAT);
        CHECK(strcmp(spw_last_error(), first_bad < PIECES ? want : "of before") == 0);
    }
}

/* Half of the pieces are another thread's: their messages are told here all the same. */
static void test_other_threads(void) {
    spw_failure failure = SPW_NO_FAILURE;
    int others = 0;
#pragma omp parallel num_threads(THREADS)
    {
#pragma omp single
        others = omp_get_num_threads() - 1;
        if (omp_get_thread_num() == others) spw_failure_note(&failure, 7, spw_fail(SPW_EIO, "from afar"));
    }
    CHECK(others > 0);
    CHECK_STATUS(spw_failure_tell(&failure), SPW_EIO);
    CHECK(strcmp(spw_last_error(), "from afar") == 0);
}

int main(void) {
    test_first_piece();
    test_other_threads();
    return check_done();
}
