#include "sim/read/coefficient.h"

#include "sim/read/coefficient_settings.h"

#include <stddef.h>
#include <string.h>

#define EVIDENCE_TEXT(name, text) text,
const char *spw_evidence_name(spw_evidence evidence) {
    static const char *const names[] = {SPW_EVIDENCE_LIST(EVIDENCE_TEXT)};
    return (unsigned)evidence < SPW_EVIDENCE_COUNT ? names[evidence] : "?";
}

#define EVIDENCE_CHOICE(name, text) {text, SPW_EVIDENCE_##name},
const spw_choice spw_evidence_choices[] = {SPW_EVIDENCE_LIST(EVIDENCE_CHOICE){NULL, 0}};

const spw_setting spw_coefficient_settings[] = SPW_COEFFICIENT_KEYS(0, 10, 1e3, "a share or a factor");

void spw_coefficient_write(FILE *file, const char *key, const spw_coefficient *c) {
    fprintf(file, "%s:\n  value: %.6f\n", key, c->value);
    if (c->uncertainty > 0) fprintf(file, "  uncertainty: %.6f\n", c->uncertainty);
    fprintf(file, "  evidence: %s\n  source: \"%s\"\n", spw_evidence_name(c->evidence), c->source);
}

bool spw_coefficient_is(const spw_coefficient *a, const spw_coefficient *b) {
    return !(a->value < b->value) && !(a->value > b->value) && strcmp(a->source, b->source) == 0;
}
