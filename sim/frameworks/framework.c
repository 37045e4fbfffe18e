#include "sim/frameworks/framework.h"

#include <string.h>

static const spw_framework *const frameworks[] = {&spw_framework_megatron,
                                                  &spw_framework_bridge,
                                                  &spw_framework_primus,
                                                  &spw_framework_swift,
                                                  &spw_framework_nemo,
                                                  &spw_framework_verl,
                                                  &spw_framework_maxtext,
                                                  &spw_framework_torchtitan,
                                                  &spw_framework_deepspeed,
                                                  &spw_framework_finetune,
                                                  NULL};

const spw_framework *spw_framework_find(const char *name, size_t length) {
    for (const spw_framework *const *f = frameworks; *f != NULL; f++)
        if (strlen((*f)->name) == length && memcmp((*f)->name, name, length) == 0) return *f;
    return NULL;
}

const char *spw_framework_names(void) {
    return "megatron, bridge, primus, swift, nemo, verl, maxtext, torchtitan, deepspeed, finetune";
}

/* --- Whose --- */

enum { FRAMEWORKS = sizeof frameworks / sizeof *frameworks - 1, MARKS = 32 };

const spw_framework *spw_framework_of(const spw_file_entries *e) {
    unsigned seen[FRAMEWORKS] = {0};
    char name[SPW_ENTRY_NAME];
    size_t best = FRAMEWORKS;
    for (size_t i = 0; i < e->count; i++) {
        (void)spw_framework_plain_name(NULL, e->entry[i].name, name);
        if (strcmp(name, "primus.framework") == 0) { /* Primus says whose configuration it holds */
            const char *said = strcmp(e->entry[i].value, "megatron") == 0 ? "primus" : e->entry[i].value;
            const spw_framework *found = spw_framework_find(said, strlen(said));
            if (found != NULL) return found;
        }
        for (size_t f = 0; f < FRAMEWORKS; f++)
            for (size_t m = 0; m < MARKS && frameworks[f]->marks[m] != NULL; m++)
                if (strcmp(frameworks[f]->marks[m], name) == 0) seen[f] |= 1U << m;
    }
    for (size_t f = 0; f < FRAMEWORKS; f++) /* its least sure marks stand first */
        if (frameworks[f]->needs > 0 && (seen[f] & ((1U << frameworks[f]->needs) - 1)) == 0) seen[f] = 0;
    for (size_t f = 0; f < FRAMEWORKS; f++)
        if (seen[f] != 0 &&
            (best == FRAMEWORKS || __builtin_popcount(seen[f]) > __builtin_popcount(seen[best])))
            best = f;
    return best < FRAMEWORKS ? frameworks[best] : NULL;
}
