/* How we know a number, as files say it. */
#ifndef SPW_SIM_READ_EVIDENCE_H
#define SPW_SIM_READ_EVIDENCE_H

/* One list, expanded into the enum and the names. */
#define SPW_EVIDENCE_LIST(X) \
    X(DATASHEET, "datasheet") \
    X(PUBLISHED, "published") X(MEASURED, "measured") X(FITTED, "fitted") X(ASSUMED, "assumed")
#define SPW_EVIDENCE_ENUM(name, text) SPW_EVIDENCE_##name,
typedef enum spw_evidence { SPW_EVIDENCE_LIST(SPW_EVIDENCE_ENUM) SPW_EVIDENCE_COUNT } spw_evidence;
#undef SPW_EVIDENCE_ENUM
const char *spw_evidence_name(spw_evidence evidence);

enum { SPW_FIGURE_SOURCE = 192 }; /* bytes of the text that says where a figure is from */

#endif
