#include "sim/result/page_print.h"

#include <inttypes.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

void spw_page_run_print(const spw_result_row *r, FILE *out) {
    const spw_page_run *p = &r->pages;
    if (!p->there || p->steps == 0) return;
    fprintf(
        out,
        "\n%s at %zu seq/GPU, paged stash: %.2f GiB of pages on a GPU, the fullest buffer needs %.1f %% of "
        "its pages (step %" PRId64 ");\n%zu of %zu steps overflow the pages, and %zu run again for that or "
        "for rows beyond rank_capacity: %.3g %% more forward and backward passes.\n",
        r->scheme.text, r->sequences, (double)p->pool_bytes / GIB, 100.0 * p->fullest, p->fullest_step,
        p->overflow_steps, p->steps, p->rerun_steps, 100.0 * (double)p->rerun_steps / (double)p->steps);
    if (p->host_bytes == 0) return;
    fprintf(
        out,
        "host memory: %.2f GiB of pages a GPU, used in %zu steps; a GPU sends %.3f GiB a step there in the "
        "mean, %.3f at most, and reads them back.\n",
        (double)p->host_bytes / GIB, p->spill_steps, p->spilled_bytes / GIB, (double)p->spilled_most / GIB);
}

json_t *spw_page_run_json(spw_json *json, const spw_result_row *r) {
    const spw_page_run *p = &r->pages;
    json_t *object = json_object();
    spw_json_put(json, object, "pool_bytes", spw_json_count(p->pool_bytes));
    spw_json_put(json, object, "host_bytes", spw_json_count(p->host_bytes));
    spw_json_put(json, object, "fullest", spw_json_real(p->fullest));
    spw_json_put(json, object, "fullest_step", json_integer(p->fullest_step));
    spw_json_put(json, object, "overflow_steps", spw_json_count(p->overflow_steps));
    spw_json_put(json, object, "rerun_steps", spw_json_count(p->rerun_steps));
    spw_json_put(json, object, "spill_steps", spw_json_count(p->spill_steps));
    spw_json_put(json, object, "spilled_bytes_per_gpu", spw_json_real(p->spilled_bytes));
    spw_json_put(json, object, "spilled_bytes_most", spw_json_count(p->spilled_most));
    return object;
}
