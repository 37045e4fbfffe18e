#include "sim/command/explain/explain_parts.h"

#include "base/memory.h"
#include "sim/command/explain/explain_points.h"
#include "sim/command/job_options.h"
#include "sim/job/grid.h"
#include "sim/schemes/point.h"
#include "sim/time/routing_load.h"
#include "sim/traffic/step_traffic.h"

#include <stdio.h>

static const spw_column columns[] = {
    {"scheme", NULL},          {"sequences_per_gpu", NULL}, {"purpose", "purpose"},
    {"tensor", "tensor"},      {"where", "where"},          {"times", "times"},
    {"pass", "pass"},          {"operation", "operation"},  {"over", "over"},
    {"gpus", "GPUs"},          {"count", "count"},          {"bytes", "MB each"},
    {"step_bytes", "step GB"}, {"formula", "formula"},      {NULL, NULL},
};

static void add_rows(spw_table *t, const spw_scheme *scheme, size_t sequences,
                     const spw_step_traffic *traffic) {
    for (int p = 0; p < SPW_PURPOSES; p++) {
        for (size_t i = 0; i < traffic->items; i++) {
            const spw_step_item *item = &traffic->item[i];
            if (item->purpose != (spw_purpose)p) continue;
            spw_table_text(t, scheme->text);
            spw_table_count(t, sequences);
            spw_table_text(t, spw_purpose_name(item->purpose));
            spw_table_text(t, item->name);
            spw_table_text(t, spw_step_place_name(item->place));
            spw_table_count(t, spw_step_item_times(traffic, item));
            spw_table_text(t, item->backward ? "backward" : "forward");
            spw_table_text(t, spw_operation_name(item->operation));
            spw_table_text(t, spw_step_group_name(item->group));
            spw_table_count(t, traffic->group_size[item->group]);
            spw_table_count(t, item->count);
            spw_table_scaled(t, (double)item->bytes, 1e6, "%.3f");
            spw_table_scaled(t, spw_step_item_wire_bytes(traffic, item), 1e9, "%.3f");
            spw_table_text(t, item->formula);
        }
    }
}

/* What one dispatch of balanced routing, of all groups of a stage, puts on the busiest port of every level. */
static void print_levels(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    const spw_point point = spw_point_of(job, scheme, sequences);
    const spw_cluster *cluster = &job->cluster;
    spw_level_bytes levels;
    if (spw_stated_routing_levels(&point, &levels) != SPW_OK || levels.count == 0) return;
    printf("one dispatch of balanced routing, on the busiest port of every level of the network\n");
    for (size_t i = 0; i < levels.count; i++)
        printf("%-18s %9.3f MB  %.3f ms\n", spw_level_bytes_name(cluster, i), (double)levels.most[i] / 1e6,
               1e3 * spw_level_bytes_seconds(&levels, cluster, i));
    printf("%-18s %s\n", "slowest", spw_level_bytes_name(cluster, spw_level_bytes_slowest(&levels, cluster)));
}

static void print_heading(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                          const spw_step_traffic *traffic) {
    double sum = 0.0;
    char words[SPW_CLUSTER_WORDS];
    printf("%s, %s on %s (%s), expert %zu x fsdp %zu", scheme->text, job->model.name, job->cluster.name,
           spw_cluster_words(&job->cluster, words), job->expert, job->fsdp);
    spw_grid_print(job, stdout);
    printf(", %zu x %zu tokens %s, remat %s%s\n", sequences, job->sequence_length, spw_grid_tokens_of(job),
           spw_remat_name(job->remat), spw_offload_note(&job->offload));
    char sharers[SPW_GRID_ASSUMED_TEXT];
    if (spw_grid_assumed(job, sharers)) printf("assumed: %s\n", sharers);
    if (job->implied[0] != '\0') printf("split: %s\n", job->implied);
    spw_print_model_doubts(&job->model, "not here: ", stdout);
    for (int p = 0; p < SPW_PURPOSES; p++) {
        const double bytes = spw_step_purpose_wire_bytes(traffic, (spw_purpose)p);
        if (p != SPW_PURPOSE_HOST) sum += bytes;
        if (bytes > 0.0)
            printf("%-18s %9.3f GB  %s\n", spw_purpose_name((spw_purpose)p), bytes / 1e9,
                   spw_purpose_help((spw_purpose)p));
    }
    const bool without = spw_step_purpose_wire_bytes(traffic, SPW_PURPOSE_EXCHANGE) == 0.0 && job->expert > 1;
    printf("%-18s %9.3f GB  out of one GPU in one step%s\n", "together", sum / 1e9,
           without ? ", without the rows that its experts exchange" : "");
    print_levels(job, scheme, sequences);
    if (without)
        printf(
            "rows between experts follow the routing: plan and replay count them (dispatch MB, combine MB, "
            "step GB)\n");
    printf("\n");
}

static spw_status explain_traffic_add(void *state, const spw_explain_point *p, spw_table *table) {
    spw_step_traffic *traffic = state;
    const spw_point point = spw_point_of(p->job, p->scheme, p->sequences);
    spw_status status = SPW_OK;
    SPW_TRY(spw_scheme_check(p->scheme, &point.shape));
    SPW_TRY(spw_step_traffic_of(&point, &spw_step_stacks[SPW_STEP_STACK_CUDA_OLD], traffic));
    add_rows(table, p->scheme, p->sequences, traffic);

cleanup:
    return status;
}

static void head(void *state, const spw_explain_point *p) {
    print_heading(p->job, p->scheme, p->sequences, state);
}

spw_status spw_explain_traffic(const spw_job_options *o) {
    spw_status status = SPW_OK;
    spw_step_traffic *traffic = NULL;
    SPW_TRY(spw_job_is_whole(&o->job, "--traffic"));
    SPW_TRY(SPW_ALLOC(1, &traffic));
    const spw_explanation what = {columns, traffic, explain_traffic_add, head};
    SPW_TRY(spw_explain_points(o, &what));

cleanup:
    spw_free(traffic);
    return status;
}
