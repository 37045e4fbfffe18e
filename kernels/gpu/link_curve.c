#include "kernels/gpu/link_curve.h"

const char *const spw_link_curve_keys[SPW_LINK_CURVE_LISTS] = {
    "message_bytes", "latency_ns", "out_mb_per_s", "in_mb_per_s", "exchange_mb_per_s", "incast_mb_per_s"};

spw_status spw_link_curve_write(const spw_link_curve *curve, FILE *out) {
    (void)fprintf(out, "link:\n  gpus: %zu\n", curve->gpus);
    for (int list = 0; list < SPW_LINK_CURVE_LISTS; list++) {
        (void)fprintf(out, "  %s: [", spw_link_curve_keys[list]);
        for (size_t i = 0; i < curve->points; i++)
            (void)fprintf(out, "%s%zu", i > 0 ? ", " : "", curve->value[list][i]);
        (void)fputs("]\n", out);
    }
    (void)fprintf(out, "  evidence: measured\n  source: \"%s\"\n", curve->source);
    return ferror(out) ? spw_fail(SPW_EIO, "the link curve could not be written") : SPW_OK;
}
