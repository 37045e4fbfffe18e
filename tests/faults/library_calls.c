/* library_calls QUESTION [ARGUMENT...]: asks libspillway, twice, and ends as its own program would: with the sum of the two codes that
 * are neither SPW_CODE_OK nor SPW_CODE_MEMORY. Without arguments it does nothing, so that calls before main() can be counted. */
#include "sim/library/spillway.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int wrong = 0;
    for (int turn = 0; turn < 2 && argc > 1; turn++) {
        spw_answer *answer = NULL;
        const spw_code code = spw_ask(argv[1], (size_t)argc - 2, (const char *const *)argv + 2, &answer);
        if (code != SPW_CODE_OK && code != SPW_CODE_MEMORY) {
            fprintf(stderr, "code %d: %s\n", (int)code, spw_last_error());
            wrong = 1;
        }
        if (code == SPW_CODE_OK && strchr(argv[1], ' ') == NULL && spw_answer_json(answer)[0] != '{')
            wrong = 2;
        spw_answer_destroy(answer);
    }
    return wrong;
}
