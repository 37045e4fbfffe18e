#include "sim/memory/kept/verdict.h"

static const double TIGHT = 0.95; /* of the budget */

const char *spw_verdict_name(spw_verdict verdict) {
    static const char *const names[] = {"fits", "tight", "oom"};
    return names[verdict];
}

const char *spw_verdict_text(spw_verdict verdict, bool live) {
    static const char *const bounds[] = {"live fits", "live tight", "oom"};
    return live ? bounds[verdict] : spw_verdict_name(verdict);
}

bool spw_verdict_is_sure(spw_verdict verdict, double most_bytes, double budget_bytes) {
    return verdict != SPW_VERDICT_OOM && most_bytes <= budget_bytes;
}

const char *spw_verdict_sentence(spw_verdict verdict, bool surely) {
    static const char *const sentences[][2] = {{"may not fit", "surely fits"},
                                               {"is tight, and may not fit", "is tight, and surely fits"},
                                               {"does not fit", "does not fit"}};
    return sentences[verdict][surely];
}

spw_verdict spw_interval_verdict(double bytes, double high_bytes, double budget_bytes) {
    if (bytes > budget_bytes) return SPW_VERDICT_OOM;
    return high_bytes <= budget_bytes ? SPW_VERDICT_FITS : SPW_VERDICT_TIGHT;
}

spw_verdict spw_footprint_verdict(uint64_t peak_bytes, uint64_t budget_bytes) {
    if (peak_bytes > budget_bytes) return SPW_VERDICT_OOM;
    return (double)peak_bytes > TIGHT * (double)budget_bytes ? SPW_VERDICT_TIGHT : SPW_VERDICT_FITS;
}
