/* Parts of a moment's bytes. */
#include "sim/memory/kept/stage_walk.h"

static uint64_t bytes_of(double bytes) { return bytes < 9.2e18 ? (uint64_t)(bytes + 0.5) : INT64_MAX; }

static double of_kinds(const size_t count[2], double dense, double moe) {
    return (double)count[0] * dense + (double)count[1] * moe;
}

uint64_t spw_stage_moment_inputs(const spw_waiting_layer *k, const spw_stage_moment *m) {
    return bytes_of(of_kinds(m->waiting, k[0].input, k[1].input) +
                    of_kinds(m->at_work, k[0].input, k[1].input));
}

uint64_t spw_stage_moment_policy(const spw_waiting_layer *k, const spw_stage_moment *m) {
    return bytes_of(of_kinds(m->waiting, k[0].policy, k[1].policy) +
                    of_kinds(m->at_work, k[0].policy, k[1].policy));
}

uint64_t spw_stage_moment_saved(const spw_waiting_layer *k, const spw_stage_moment *m) {
    return bytes_of(of_kinds(m->waiting, k[0].saved, k[1].saved));
}

uint64_t spw_stage_moment_left(const spw_waiting_layer *k, const spw_stage_moment *m) {
    return bytes_of(of_kinds(m->left, k[0].left, k[1].left));
}

uint64_t spw_stage_moment_made(const spw_waiting_layer *k, const spw_stage_moment *m) {
    return bytes_of(of_kinds(m->made, k[0].gradient, k[1].gradient) + of_kinds(m->ends, k[0].end, k[1].end));
}
