#include "sim/input/evidence.h"

#define EVIDENCE_TEXT(name, text) text,
const char *spw_evidence_name(spw_evidence evidence) {
    static const char *const names[] = {SPW_EVIDENCE_LIST(EVIDENCE_TEXT)};
    return (unsigned)evidence < SPW_EVIDENCE_COUNT ? names[evidence] : "?";
}
