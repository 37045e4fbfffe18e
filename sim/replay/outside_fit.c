#include "sim/replay/outside_fit.h"

#include <stdio.h>
#include <string.h>

static void outside_fit_add(spw_outside_fit *list, const char *of, const char *feature, size_t length) {
    if (length == 0 || list->count == SPW_OUTSIDE_ITEMS) return;
    spw_outside_item *item = &list->item[list->count++];
    item->of = of;
    if (length < sizeof item->feature) {
        (void)snprintf(item->feature, sizeof item->feature, "%.*s", (int)length, feature);
        return;
    }
    size_t whole = sizeof item->feature - sizeof " ..."; /* cut between words */
    while (whole > 0 && feature[whole] != ' ') whole--;
    (void)snprintf(item->feature, sizeof item->feature, "%.*s ...", (int)whole, feature);
}

void spw_outside_fit_add(spw_outside_fit *list, const char *of, const char *note) {
    for (const char *end = strstr(note, "; "); end != NULL; note = end + 2, end = strstr(note, "; "))
        outside_fit_add(list, of, note, (size_t)(end - note));
    outside_fit_add(list, of, note, strlen(note));
}
