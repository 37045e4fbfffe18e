/* Reads layouts, one a line, and prints for each "ok", the layers of every block and the multi-token prediction, or "no" and
 * why. */
#include "sim/job/stage_layout.h"

#include <stdio.h>
#include <string.h>

int main(void) {
    static spw_stage_layout layout;
    char line[SPW_LAYOUT_TEXT + 1];
    while (fgets(line, sizeof line, stdin) != NULL) {
        memset(&layout, 0, sizeof layout);
        (void)snprintf(layout.text, sizeof layout.text, "%.*s", (int)strcspn(line, "\n"), line);
        if (spw_stage_layout_parse(&layout) != SPW_OK) {
            printf("no %s\n", spw_last_error());
            continue;
        }
        printf("ok %zu %zu", layout.predictions, layout.prediction_block);
        for (size_t i = 0; i < layout.blocks; i++) printf(" %u", (unsigned)layout.layers[i]);
        printf("\n");
    }
    return 0;
}
