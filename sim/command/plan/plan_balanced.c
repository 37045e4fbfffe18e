#include "sim/command/plan/plan_balanced.h"

#include "sim/print/table.h"
#include "traces/generate/generate.h"

#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

bool spw_plan_routing_is_even(const char *routing) {
    spw_distribution d = {.even = 0.0};
    if (spw_distribution_parse(routing, &d) != SPW_OK) return false;
    return d.popularity == SPW_UNIFORM && !(d.share > 0.0) && !(d.drift > 0.0) && !(d.peak > 0.0) &&
           !(d.hot > 0.0) && !(d.hash > 0.0);
}

void spw_plan_print_balanced(const spw_balanced_figures *b, int indent, FILE *out) {
    char step[SPW_SPAN_TEXT];
    fprintf(out, "%*swith balanced routing: ", indent, "");
    if (b->step.step_s > 0.0)
        fprintf(out, "%.*f tokens/s a GPU, step %s s, ",
                b->tokens_per_s_per_gpu < 10.0    ? 2
                : b->tokens_per_s_per_gpu < 100.0 ? 1
                                                  : 0,
                b->tokens_per_s_per_gpu, spw_figure_text(b->step.step_s, step));
    fprintf(out, "%.1f GiB", (double)b->peak_bytes / GIB);
    if (b->drop_fraction > 0.0)
        fprintf(out, ", drops %.2f %%\n", 100.0 * b->drop_fraction);
    else
        fprintf(out, ", drops nothing\n");
}
