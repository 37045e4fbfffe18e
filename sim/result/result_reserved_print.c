#include "sim/result/result_print.h"

#include <inttypes.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const double MOST_TOLD = 0.5; /* of a probability that may be 0: beyond it says nothing */

/* Of the steps: half of them have at most p50, 99 of 100 at most p99. */
typedef struct spread {
    uint64_t p50, p99, most;
} spread;

/* Once, where they are all one number as it is printed. */
static void print_spread(const spread *s, bool once, FILE *out) {
    if (!once) fprintf(out, " %.2f %.2f", (double)s->p50 / GIB, (double)s->p99 / GIB);
    fprintf(out, " %.2f", (double)s->most / GIB);
}

static bool is_one(const spread *s) {
    char text[2][32];
    (void)snprintf(text[0], sizeof text[0], "%.2f", (double)s->p50 / GIB);
    (void)snprintf(text[1], sizeof text[1], "%.2f", (double)s->most / GIB);
    return strcmp(text[0], text[1]) == 0;
}

void spw_result_print_reserved(const spw_result_row *r, FILE *out) {
    const spw_reserved_outcome *o = &r->reserved.as_set;
    const char *const least = o->failed_steps > 0 ? " at least" : "";
    char live[SPW_PLACE_TEXT], most[SPW_PLACE_TEXT], death[SPW_DEATH_TEXT];
    if (!r->reserved.there) return;
    const spread live_bytes = {r->memory.p50_bytes, r->memory.p99_bytes, r->memory.max_bytes},
                 allocated = {o->allocated.p50_bytes, o->allocated.p99_bytes, o->allocated.max_bytes},
                 reserved = {o->reserved.p50_bytes, o->reserved.p99_bytes, o->reserved.max_bytes};
    const bool alike = is_one(&live_bytes) && is_one(&allocated) && is_one(&reserved);
    fprintf(out, "\n%s at %zu seq/GPU, GiB over %zu step%s%s: live", r->scheme.text, r->sequences, r->steps,
            r->steps == 1 ? "" : "s", alike ? "" : " (p50, p99, most)");
    print_spread(&live_bytes, alike, out);
    fprintf(out, ", allocated%s", least);
    print_spread(&allocated, alike, out);
    fprintf(out, ", reserved%s", least);
    print_spread(&reserved, alike, out);
    fputc('\n', out);
    fprintf(out, "  most live at step %" PRId64 ", layer %" PRId32 ", %s; most reserved on %s\n",
            r->memory.worst_step, r->memory.worst_layer,
            spw_result_place_text(r, r->memory.worst_rank, r->footprint.stage.index, live),
            spw_result_place_text(r, o->worst_rank, o->worst_stage, most));
    if (spw_result_death_text(r, death)[0] != '\0') fprintf(out, "  runs out of memory first %s\n", death);
    if (r->memory.oom_probability > 0.0 || r->memory.oom_high <= MOST_TOLD)
        fprintf(out, "  a step runs out of memory with probability %.4g (95 %%: %.4g to %.4g)",
                r->memory.oom_probability, r->memory.oom_low, r->memory.oom_high);
    else
        fprintf(out, "  no step of %zu runs out of memory, which are too few to say how often one would",
                r->steps);
    fprintf(out, "; %" PRIu64 " retries in %zu steps; largest stranded block %.2f GiB\n", o->retries,
            o->retried_steps, (double)o->stranded_bytes / GIB);
    const spw_snapshot_match *m = &r->reserved.match;
    if (r->reserved.recorded)
        fprintf(out,
                "  the whole job as its snapshot has it: a step of %zu allocations, in which %zu of the %zu "
                "tensors that "
                "follow the routing have the trace's rows (%.1f %% of their bytes)\n",
                m->step_births, m->layer_matched, m->layer_births,
                100.0 * (double)m->matched_bytes / (double)m->layer_bytes);
    if (r->advice[0] != '\0') fprintf(out, "  %s\n", r->advice);
}
