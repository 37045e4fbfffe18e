/* Layers in few characters. */
#include "sim/command/model/model_tables.h"

#include "tests/unit/check.h"

#include <stdbool.h>
#include <string.h>

static void check_runs(const char *layers, size_t size, const char *want) {
    uint8_t mark[64] = {0};
    char got[64];
    for (size_t i = 0; layers[i] != '\0'; i++) mark[i] = layers[i] == 'x';
    const bool same = strcmp(spw_layer_runs(mark, strlen(layers), got, size), want) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got %s, want %s\n", got, want);
}

int main(void) {
    check_runs("...", 64, "none");
    check_runs("", 64, "none");
    check_runs("xxx", 64, "0-2");
    check_runs(".x.", 64, "1");
    check_runs("xx..x..xxx", 64, "0-1, 4, 7-9");
    check_runs("x.x.x.x", 64, "0-6 by 2");
    check_runs("..x..x.x", 64, "2, 5, 7"); /* two at a distance are no run */
    check_runs("..x..x..xx", 64, "2-8 by 3, 9");
    check_runs("xxx.xxx.xxx.xxx.xxx.xxx.xxx", 40, "0-2, 4-6, 8-10, 12-14, ...");
    return check_done();
}
