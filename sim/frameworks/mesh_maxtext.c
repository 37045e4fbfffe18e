/* MaxText's mesh on GPUs: ici_* axes within a node, dcn_* axes between nodes, which JAX counts as slices there (openxla/xla
 * xla/pjrt/distributed/topology_util.cc: devices of one boot_id have one slice_index). The axes of each make up its GPUs or nodes, and
 * one that is -1 is what the others leave (AI-Hypercomputer/maxtext e591f30c src/maxtext/configs/base.yml, max_utils.py
 * fill_unspecified_mesh_axes). */
#include "sim/frameworks/rules.h"

#include "sim/job/job.h"
#include "sim/job/job_check.h"
#include "sim/job/job_split.h"
#include "sim/print/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const axes[SPW_AXES] = {
    [SPW_AXIS_EXPERT] = "expert",   [SPW_AXIS_FSDP] = "fsdp",         [SPW_AXIS_TENSOR] = "tensor",
    [SPW_AXIS_CONTEXT] = "context", [SPW_AXIS_PIPELINE] = "pipeline", [SPW_AXIS_DATA] = "data"};

/* --- Forward --- */

/* 0: it is -1. */
static spw_status read_axis(spw_draft *d, const char *net, const char *name, size_t fallback, size_t *out) {
    char fact[40];
    (void)snprintf(fact, sizeof fact, "@%s_%s", net, name);
    if (!spw_draft_is(d, fact, "-1")) return spw_draft_count(d, fact, 1, fallback, out);
    *out = 0;
    return SPW_OK;
}

/* base.yml has -1 for `filler`, which is 1 where the file has -1 for another. */
static spw_status read_axes(spw_draft *d, const char *net, size_t filler, size_t out[SPW_AXES]) {
    size_t transpose = 1;
    bool filled = false;
    spw_status status = SPW_OK;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < SPW_AXES; i++) {
            if ((i == filler) != (pass == 1)) continue;
            SPW_TRY(read_axis(d, net, axes[i], pass == 1 && !filled ? 0 : 1, &out[i]));
            filled = filled || out[i] == 0;
        }
    SPW_TRY(read_axis(d, net, "fsdp_transpose", 1, &transpose)); /* shards weights by another dimension */
    out[SPW_AXIS_FSDP] *= transpose;

cleanup:
    return status;
}

/* An axis that is not among them: its GPUs would be counted as FSDP's, which hold less. */
static spw_status check_others(const spw_draft *d) {
    static const char end[] = "_parallelism";
    for (size_t i = 0; i < d->entries.count; i++) {
        const spw_file_entry *e = &d->entries.entry[i];
        char name[SPW_ENTRY_NAME];
        (void)spw_framework_plain_name(d->framework, e->name, name);
        const size_t length = strlen(name);
        const bool axis = (strncmp(name, "ici_", 4) == 0 || strncmp(name, "dcn_", 4) == 0) &&
                          length > sizeof end && strcmp(name + length + 1 - sizeof end, end) == 0;
        const spw_framework_row *row = axis ? spw_framework_row_of(d->framework, name) : NULL;
        if (row == NULL || row->ours != NULL || e->nothing || strcmp(e->value, "1") == 0) continue;
        return spw_fail(
            SPW_ECONFIG,
            "%s:%zu: %.60s %.20s: this axis of the mesh is not modelled, and its GPUs do not share "
            "weights as those of fsdp do; modelled are expert, fsdp, fsdp_transpose, tensor, "
            "context and pipeline: take 1 here",
            d->where, e->line, name, e->value);
    }
    return SPW_OK;
}

static spw_status note_data(spw_draft *d) {
    static const char *const facts[] = {"@ici_data", "@dcn_data"};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < 2 && status == SPW_OK; i++)
        if (!spw_draft_is(d, facts[i], "1"))
            status =
                spw_draft_note_fact(d, SPW_NOTE_LACKS, facts[i],
                                    "replicas that each hold the state: one of them is planned, and days "
                                    "and cost are those of all; a step has no sum of gradients over them");
    return status;
}

spw_status spw_compose_maxtext_mesh(spw_draft *d, size_t *sharers, size_t *stages) {
    size_t all[SPW_AXES];
    spw_draft_mesh *mesh = &d->mesh;
    spw_status status = SPW_OK;
    SPW_TRY(check_others(d));
    SPW_TRY(read_axes(d, "ici", SPW_AXIS_FSDP, mesh->node));
    SPW_TRY(read_axes(d, "dcn", SPW_AXIS_DATA, mesh->nodes));
    mesh->there = true;
    for (size_t i = 0; i < SPW_AXES; i++) all[i] = mesh->node[i] * mesh->nodes[i];
    const size_t context = all[SPW_AXIS_CONTEXT] > 0 ? all[SPW_AXIS_CONTEXT] : 1;
    *stages = all[SPW_AXIS_PIPELINE] > 0 ? all[SPW_AXIS_PIPELINE] : 1;
    *sharers = (all[SPW_AXIS_TENSOR] > 0 ? all[SPW_AXIS_TENSOR] : 1) * context;
    SPW_TRY(spw_draft_put_count(d, "parallel.expert", all[SPW_AXIS_EXPERT], "@ici_expert"));
    if (all[SPW_AXIS_EXPERT] == 0 && all[SPW_AXIS_FSDP] > 0)
        SPW_TRY(spw_draft_put_count(d, "parallel.fsdp", all[SPW_AXIS_FSDP] * context, "@ici_fsdp"));
    SPW_TRY(spw_draft_put_count(d, "parallel.tensor", all[SPW_AXIS_TENSOR], "@ici_tensor"));
    SPW_TRY(spw_draft_put_count(d, "parallel.context", all[SPW_AXIS_CONTEXT], "@ici_context"));
    SPW_TRY(spw_draft_put_count(d, "parallel.pipeline", *stages, "@ici_pipeline"));
    SPW_TRY(note_data(d));

cleanup:
    return status;
}

/* --- On a cluster --- */

/* Fills what is left of `size`; false: the axes do not make it up. */
static bool fill(const size_t said[SPW_AXES], size_t size, size_t out[SPW_AXES]) {
    size_t known = 1, left = SPW_AXES;
    for (size_t i = 0; i < SPW_AXES; i++) {
        out[i] = said[i];
        if (said[i] > 0)
            known *= said[i];
        else
            left = i;
    }
    if (size % known != 0) return false;
    if (left < SPW_AXES) out[left] = size / known;
    return left < SPW_AXES || known == size;
}

/* Of the axes beside data; 0: one of them is what is left. */
static size_t product(const size_t axis[SPW_AXES]) {
    size_t out = 1;
    for (size_t i = 0; i < SPW_AXES; i++) out *= i == SPW_AXIS_DATA ? 1 : axis[i];
    return out;
}

/* How many replicas of all state there are on this cluster; 1: it is that of one; 0: the axes do not make it up. `one`: GPUs of one, 0:
 * not known; *data_between: of the replicas, those on the axis between nodes. */
static size_t replicas_on(const spw_draft_mesh *m, size_t nodes, size_t gpus, size_t *one,
                          size_t *data_between) {
    const size_t known = product(m->node) * product(m->nodes);
    *data_between = 1;
    size_t node[SPW_AXES], between[SPW_AXES];
    const bool within = fill(m->node, gpus, node);
    *one = known;
    if (within && fill(m->nodes, nodes, between)) {
        *one = product(node) * product(between);
        *data_between = between[SPW_AXIS_DATA];
        return node[SPW_AXIS_DATA] * between[SPW_AXIS_DATA];
    }
    if (known == nodes * gpus) return 1; /* of one, on whatever nodes */
    if (within && product(m->nodes) == nodes) return node[SPW_AXIS_DATA];
    *data_between = m->nodes[SPW_AXIS_DATA] > 0 ? m->nodes[SPW_AXIS_DATA] : 1;
    const size_t said = (m->node[SPW_AXIS_DATA] > 0 ? m->node[SPW_AXIS_DATA] : 1) *
                        (m->nodes[SPW_AXIS_DATA] > 0 ? m->nodes[SPW_AXIS_DATA] : 1);
    if (within && said <= 1) *one = product(node) * product(m->nodes);
    return said > 1 ? said : 0;
}

/* FSDP's GPUs, when all that share no other axis share the state. */
static size_t all_fsdp(const spw_draft *d, size_t gpus) {
    static const char *const others[] = {"parallel.expert", "parallel.tensor", "parallel.context",
                                         "parallel.pipeline"};
    size_t used = 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *value = spw_draft_key_value(d, others[i]);
        const size_t size = value != NULL ? strtoul(value, NULL, 10) : 1;
        used *= size > 0 ? size : 1;
    }
    return gpus / used > 0 ? gpus / used : 1;
}

/* What MaxText's fill_unspecified_mesh_axes refuses, with a cluster that these axes make up: of `one` GPUs, 0: not known. */
static spw_status refuse_mesh(const spw_draft *d, const spw_cluster *cluster, size_t nodes, size_t gpus,
                              size_t one) {
    const char *const name = cluster->name, *const size = strrchr(name, '-'); /* "tpu-v6e-8x8" */
    const bool slices = cluster->gpu_generation == SPW_GPU_NONE;
    const char *const part = slices ? "slice" : "node", *const chips = slices ? "chips" : "GPUs";
    const bool sized = size != NULL && size[1 + strspn(size + 1, "0123456789")] == 'x';
    const int stem = sized ? (int)(size - name) : (int)strlen(name);
    char nearest[96] = "the GPUs of one";
    const size_t within = spw_mesh_product(d->mesh.node), between = spw_mesh_product(d->mesh.nodes);
    if (one > 0 && one % gpus == 0)
        (void)snprintf(nearest, sizeof nearest, "--cluster %.*s:%zux%zu", stem, name, gpus, one / gpus);
    else if (one > 0)
        (void)snprintf(nearest, sizeof nearest, "--gpus %zu", one);
    return spw_fail(
        SPW_ECONFIG,
        "%s: the axes of its mesh do not make up %s, %zu %s%s of %zu %s: ici_* axes are %zu of the %zu "
        "%s of a %s, dcn_* axes %zu of the %zu %ss, and MaxText refuses that. Write axes that "
        "multiply to them, -1 for one that is what the others leave, or plan %s; --set "
        "parallel.fsdp=%zu lets all these %s share the state",
        d->where, name, nodes, part, spw_plural(nodes), gpus, chips, within, gpus, chips, part, between,
        nodes, part, nearest, all_fsdp(d, nodes * gpus), chips);
}

spw_status spw_settle_maxtext(const spw_draft *d, const spw_cluster *cluster, size_t nodes, size_t gpus,
                              spw_settled *out) {
    size_t one = 0, between = 1;
    const size_t replicas = d->mesh.there ? replicas_on(&d->mesh, nodes, gpus, &one, &between) : 1;
    if (replicas == 1) return SPW_OK;
    if (replicas == 0 || one == 0 || one * replicas != nodes * gpus)
        return refuse_mesh(d, cluster, nodes, gpus, one);
    *out = (spw_settled){replicas, one, between};
    return SPW_OK;
}

/* --- Back --- */

/* The product of all axes is nodes x GPUs a node; what of the nodes an axis can take, it takes. */
spw_status spw_express_maxtext_mesh(spw_flag_draft *f) {
    static const size_t outer_first[] = {SPW_AXIS_PIPELINE, SPW_AXIS_FSDP, SPW_AXIS_EXPERT, SPW_AXIS_CONTEXT,
                                         SPW_AXIS_TENSOR};
    const spw_job *job = f->job;
    const size_t all[SPW_AXES] = {[SPW_AXIS_EXPERT] = job->expert,
                                  [SPW_AXIS_FSDP] = job->fsdp / job->context,
                                  [SPW_AXIS_TENSOR] = job->tensor,
                                  [SPW_AXIS_CONTEXT] = job->context,
                                  [SPW_AXIS_PIPELINE] = job->pipeline};
    const size_t gpus = spw_job_gpus(job);
    const size_t node =
        job->cluster.gpu_generation == SPW_GPU_NONE ? gpus : job->cluster.gpus_per_node; /* a slice */
    size_t left = gpus > node ? gpus / node : 1;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof outer_first / sizeof *outer_first && status == SPW_OK; i++) {
        const size_t axis = outer_first[i], nodes = spw_largest_common_divisor(all[axis], left, left);
        char fact[40];
        left /= nodes;
        (void)snprintf(fact, sizeof fact, "@ici_%s", axes[axis]);
        status = spw_flags_say_count(f, fact, all[axis] / nodes);
        (void)snprintf(fact, sizeof fact, "@dcn_%s", axes[axis]);
        if (nodes > 1 && status == SPW_OK) status = spw_flags_say_count(f, fact, nodes);
    }
    return status;
}
