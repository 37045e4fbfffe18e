/* Replays a trace and says what a GPU must hold: example TRACE.h5 JOB.yaml */
#include <spillway/spillway.h>
#include <stdio.h>

int main(int count, char **word) {
    spw_answer *answer = NULL;
    size_t rows = 0;
    if (count != 3) return 2;
    const char *arguments[] = {word[1], "--job", word[2], "--scheme", "gmm", "--scheme", "ring"};
    if (spw_ask("replay", sizeof arguments / sizeof *arguments, arguments, &answer) != SPW_CODE_OK ||
        spw_answer_size(answer, "rows", &rows) != SPW_CODE_OK) {
        fprintf(stderr, "spillway %s: %s\n", spw_version(), spw_last_error());
        return 1;
    }
    for (size_t i = 0; i < rows; i++) {
        char path[64];
        double bytes = 0;
        (void)snprintf(path, sizeof path, "rows.%zu.memory.peak_bytes", i);
        if (spw_answer_real(answer, path, &bytes) == SPW_CODE_OK) printf("%.2f GiB\n", bytes / 0x1p30);
    }
    spw_answer_destroy(answer);
    return 0;
}
