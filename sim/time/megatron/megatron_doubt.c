#include "sim/time/megatron/megatron_doubt.h"
#include "sim/machine/stack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double spw_megatron_layers_half_width(const spw_megatron_coefficients *c, size_t ranks, size_t tokens) {
    char size[24];
    (void)snprintf(size, sizeof size, "%zu", ranks);
    const bool known =
        spw_has_word(c->expert_parallel, size) && tokens >= c->tokens_min && tokens <= c->tokens_max;
    return c->half_width.value + c->model_half_width.value + (known ? 0.0 : c->ranks_half_width.value);
}

/* Components by what they rest on; what is not listed is counted (sim/time/megatron/megatron_job_time.c). */
static const char *const layer_components[] = {"router",  "expert_products", "row_moves",       "exchanges",
                                               "waiting", "host_wait",       "expert_recompute"};
enum { COMPONENTS = sizeof layer_components / sizeof *layer_components };

/* Collectives of tensor, context and expert tensor parallelism. */
static bool is_of_grid(const char *name) {
    return strncmp(name, "tensor_parallel", sizeof "tensor_parallel" - 1) == 0 ||
           strcmp(name, "context_parallel") == 0 || strcmp(name, "expert_tensor_parallel") == 0;
}

typedef struct shares {
    double layers, dispatcher, exchanges, counted, grid, host;
} shares;

static shares share_out(const spw_timeline *t) {
    shares s = {.layers = 0.0};
    for (size_t i = 0; i < t->components; i++) {
        const spw_time_component *component = &t->component[i];
        size_t row = 0;
        while (row < COMPONENTS && strcmp(layer_components[row], component->name) != 0) row++;
        const bool layer = row < COMPONENTS;
        *(layer ? &s.layers : &s.counted) += component->exposed_s;
        s.exchanges += component->exchange_s;
        s.dispatcher += component->dispatcher_s;
        if (strcmp(component->name, "launch_gaps") == 0) s.host += component->exposed_s;
        if (is_of_grid(component->name)) s.grid += component->exposed_s;
    }
    return s;
}

/* As in the table below, from the second on; the last two are of spw_timeline_widen's kind. */
static const char *const doubt_names[SPW_TIMELINE_DOUBTS] = {
    "routing",
    "models",
    "counted_work",
    "host",
    "dispatcher",
    "between_nodes",
    "network",
    "gpu",
    "recipe",
    "untuned_release",
    "tensor_collectives",
    "hidden_or_whole",
};

void spw_megatron_doubt(const spw_megatron_coefficients *c, const spw_megatron_far *far, spw_timeline *out) {
    const shares of = share_out(out);
    const struct {
        bool there;
        double half_width, seconds;
        bool slower; /* alone: low_s is without it */
    } doubts[] = {{true, far->layers, of.layers},
                  {far->counted, c->counted_half_width.value, of.counted},
                  {c->host_half_width.value > 0.0, c->host_half_width.value - c->counted_half_width.value,
                   of.host}, /* within what is counted */
                  {far->dispatcher, c->dispatcher_half_width.value, of.dispatcher},
                  {far->network, c->exchange_half_width.value, of.exchanges},
                  {far->levels, c->network_half_width.value, out->step_s},
                  {far->scaled || far->foreign,
                   (far->scaled ? c->scaled_half_width.value : 0.0) +
                       (far->foreign ? c->foreign_half_width.value : 0.0),
                   out->step_s},
                  {far->recipe > 0.0, far->recipe, of.layers + of.counted},
                  {far->untuned, c->untuned_half_width.value, out->step_s, true}};
    enum { DOUBTS = sizeof doubts / sizeof *doubts };
    _Static_assert(DOUBTS + 3 <= SPW_TIMELINE_DOUBTS,
                   "beside them the fit's own, the grid's collectives, spw_timeline_widen's");
    double half_width = 0.0, slower = 0.0;
    for (size_t i = 0; i < DOUBTS && out->step_s > 0.0; i++) {
        if (!doubts[i].there) continue;
        *(doubts[i].slower ? &slower : &half_width) += doubts[i].half_width * doubts[i].seconds / out->step_s;
        out->doubt_s[i + 1] = doubts[i].half_width * doubts[i].seconds;
    }
    out->doubt_s[0] = c->half_width.value * of.layers;
    out->doubt_s[1] -= out->doubt_s[0];
    out->doubt_s[DOUBTS + 1] = of.grid;
    out->doubt_name = doubt_names;
    out->pair_width = c->pair_half_width.value;
    const double grid = out->step_s > 0.0 ? of.grid / out->step_s : 0.0;
    out->low_s = out->step_s * (1.0 - grid) * exp(-half_width);
    out->high_s = out->step_s * (1.0 + grid) * exp(half_width + slower);
}
