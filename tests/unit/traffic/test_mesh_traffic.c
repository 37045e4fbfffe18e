/* The collectives of a layer on MaxText's mesh beside those that XLA compiled: notebooks_data/compiled/mesh_axes.csv, every
 * operation, its axes, bytes and count, both ways. Left out are the ways by which a router's gradient that is cut by the hidden
 * size goes to who has its shard: pairs of GPUs, or groups of another order. */
#include "sim/job/job.h"
#include "sim/model/attention.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/traffic/step_traffic.h"

#include "sim/job/grid.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"

#include <string.h>

enum { MOST = 64, PROGRAMS = 67 };

typedef struct split {
    size_t fsdp, context, tensor, expert;
} split;

/* Operations of one kind, in one pass, over the same axes, of the same size. */
typedef struct entry {
    bool backward;
    char operation[32], axes[64];
    uint64_t bytes, count;
} entry;

typedef struct list {
    entry entry[MOST];
    size_t entries;
} list;

static void note(list *l, const entry *e) {
    for (size_t i = 0; i < l->entries; i++) {
        entry *have = &l->entry[i];
        if (have->backward != e->backward || have->bytes != e->bytes || strcmp(have->axes, e->axes) != 0 ||
            strcmp(have->operation, e->operation) != 0)
            continue;
        have->count += e->count;
        return;
    }
    CHECK(l->entries < MOST);
    if (l->entries < MOST) l->entry[l->entries++] = *e;
}

static void join(char *out, size_t size, const char *name, size_t gpus) {
    const size_t used = strlen(out);
    if (gpus > 1) (void)snprintf(out + used, size - used, "%s%s", used > 0 ? "+" : "", name);
}

/* The axes of a group, as the table calls them. */
static void name_axes(const split *s, spw_step_group group, char *out, size_t size) {
    const bool all = group == SPW_GROUP_ALL, fsdp = all || group == SPW_GROUP_FSDP,
               batch = group == SPW_GROUP_BATCH;
    out[0] = '\0';
    if (fsdp || batch || group == SPW_GROUP_FSDP_BATCH) join(out, size, "fsdp", s->fsdp);
    if (fsdp || group == SPW_GROUP_CONTEXT) join(out, size, "context", s->context);
    if (group == SPW_GROUP_TENSOR) join(out, size, "tensor", s->tensor);
    if (all || batch || group == SPW_GROUP_EXPERT) join(out, size, "expert", s->expert);
}

static bool is_part(const char *program, const char *word) { return strstr(program, word) != NULL; }
static bool has_slots(const char *program) {
    return is_part(program, "capacity") || is_part(program, "gathered");
}
/* XLA joins sums: all of one pass and group count as one. */
static bool joins_sums(const char *program) { return has_slots(program) || is_part(program, "mla"); }

static bool is_small(const char *sizes) { return strcmp(sizes, "small") == 0; }

static const char *scheme_of(const char *program) {
    if (is_part(program, "capacity")) return "dense:capacity_factor=1.25";
    if (is_part(program, "gathered")) return "dense:capacity_factor=1.25,layout=gathered";
    return is_part(program, "ring") ? "ring" : "gmm";
}

static void make_job(const split *s, const char *program, const char *sizes, const char *remat,
                     spw_job *job) {
    const bool small = is_small(sizes), deep = strcmp(sizes, "deep") == 0;
    const size_t ffn = small ? 192 : deep ? 1536 : 14336, heads = small ? 4 : deep ? 16 : 32;
    *job = (spw_job){.expert = s->expert,
                     .fsdp = s->fsdp * s->context,
                     .tensor = s->tensor,
                     .context = s->context,
                     .pipeline = 1,
                     .sequence_length = small ? 32 : 4096,
                     .precision = {2, 2, 2, 2},
                     .model = {.layers = 4,
                               .moe_layers = 3,
                               .hidden = small  ? 128
                                         : deep ? 2048
                                                : 4096,
                               .experts = 8,
                               .top_k = 2,
                               .expert_ffn = ffn,
                               .dense_ffn = ffn,
                               .heads = heads,
                               .kv_heads = heads,
                               .head_dim = small ? 40 : 128,
                               .v_head_dim = small ? 40 : 128,
                               .vocab = 320}};
    job->cluster.nodes = 1;
    job->cluster.gpus_per_node = 8;
    if (is_part(program, "shared")) job->model.shared_ffn = ffn;
    if (is_part(program, "mla")) {
        job->model.attention = &spw_latent_attention;
        job->model.q_lora_rank = is_part(program, "lite") ? 0 : small ? 72 : 768;
        job->model.kv_lora_rank = small ? 24 : 256;
        job->model.nope_dim = small ? 16 : 128;
        job->model.rope_dim = small ? 8 : 64;
        job->model.v_head_dim = small ? 12 : 128;
    }
    job->model.sigmoid_router = is_part(program, "sigmoid");
    CHECK_OK(spw_remat_parse(remat, &job->remat));
}

/* Not over a tensor group: gradients of norms and of the router. */
static bool all_reduce_of_weights(const entry *e) {
    return strcmp(e->operation, "all-reduce") == 0 && strcmp(e->axes, "tensor") != 0;
}

static void join_sums(const char *program, entry *e) {
    if (!joins_sums(program) || strcmp(e->operation, "all-reduce") != 0) return;
    e->count *= e->bytes;
    e->bytes = 1;
}

/* The gradient of the spread weights comes together among those of the batch that do not have the same part of it. */
static void widen_group(const split *s, const char *program, size_t tokens, entry *e) {
    const uint64_t spread = s->fsdp * s->expert * tokens * 8 * 2 / s->tensor;
    if (!has_slots(program) || s->tensor == 1 || !e->backward || strcmp(e->operation, "all-gather") != 0)
        return;
    if (e->bytes == spread && (strcmp(e->axes, "fsdp") == 0 || strcmp(e->axes, "others") == 0))
        name_axes(s, SPW_GROUP_BATCH, e->axes, sizeof e->axes);
}

static void predict(const split *s, const char *program, const char *sizes, const char *remat, list *out) {
    const bool dense = is_part(program, "dense");
    const size_t shards = s->fsdp * s->expert > 0 ? s->fsdp * s->expert : 1; /* of the batch */
    spw_job job;
    spw_scheme scheme;
    spw_step_traffic t;
    make_job(s, program, sizes, remat, &job);
    CHECK_OK(spw_scheme_parse(scheme_of(program), &scheme));
    const spw_point point = spw_point_of(&job, &scheme, (is_small(sizes) ? 16 : 8) / shards);
    spw_step_stack stack = spw_step_stacks[SPW_STEP_STACK_CUDA];
    stack.router_over_fsdp = false; /* the programs' is over all */
    CHECK_OK(spw_step_traffic_of(&point, &stack, &t));
    *out = (list){.entries = 0};
    for (size_t i = 0; i < t.items; i++) {
        const spw_step_item *item = &t.item[i];
        entry e = {.backward = item->backward, .bytes = item->bytes, .count = item->count};
        if (item->place != (dense ? SPW_PLACE_DENSE_LAYER : SPW_PLACE_MOE_LAYER)) continue;
        if (item->operation == SPW_OPERATION_SEND) continue;
        (void)snprintf(e.operation, sizeof e.operation, "%s", spw_operation_name(item->operation));
        for (char *c = e.operation; *c != '\0'; c++) *c = (char)(*c == '_' ? '-' : *c);
        name_axes(s, item->group, e.axes, sizeof e.axes);
        join_sums(program, &e);
        if (is_small(sizes) || !all_reduce_of_weights(&e)) note(out, &e);
    }
}

/* Row `row` and those behind it that are of the same program: how many. */
static size_t read_program(const spw_csv *csv, size_t row, const split *s, list *out) {
    const char *program = spw_csv_field(csv, row, "program");
    static const char *const keys[] = {"program", "sizes", "remat", "fsdp", "context", "tensor", "expert"};
    const bool joins = !is_small(spw_csv_field(csv, row, "sizes")); /* XLA joins small all-reduces */
    size_t rows = 0;
    *out = (list){.entries = 0};
    for (; row + rows < spw_csv_rows(csv); rows++) {
        const char *axes = spw_csv_field(csv, row + rows, "axes");
        entry e = {.backward = strcmp(spw_csv_field(csv, row + rows, "pass"), "backward") == 0,
                   .bytes = number(csv, row + rows, "bytes"),
                   .count = number(csv, row + rows, "count")};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strcmp(spw_csv_field(csv, row, keys[k]), spw_csv_field(csv, row + rows, keys[k])) != 0)
                return rows;
        (void)snprintf(e.operation, sizeof e.operation, "%s", spw_csv_field(csv, row + rows, "operation"));
        (void)snprintf(e.axes, sizeof e.axes, "%s", axes);
        widen_group(s, program, (joins ? 8 * 4096 : 16 * 32) / (s->fsdp * s->expert), &e);
        join_sums(program, &e);
        if (is_part(program, "mla") && strcmp(e.axes, "tensor") == 0 &&
            strcmp(e.operation, "all-to-all") == 0)
            continue;
        if (strcmp(e.axes, "pairs") != 0 && strcmp(e.axes, "others") != 0 &&
            !(joins && all_reduce_of_weights(&e)))
            note(out, &e);
    }
    return rows;
}

static const entry *find(const list *l, const entry *e) {
    for (size_t i = 0; i < l->entries; i++) {
        const entry *have = &l->entry[i];
        if (have->backward == e->backward && have->bytes == e->bytes && have->count == e->count &&
            strcmp(have->axes, e->axes) == 0 && strcmp(have->operation, e->operation) == 0)
            return have;
    }
    return NULL;
}

static size_t missing(const list *from, const list *in, const char *what, const char *program) {
    size_t count = 0;
    for (size_t i = 0; i < from->entries; i++) {
        const entry *e = &from->entry[i];
        if (find(in, e) != NULL) continue;
        count++;
        printf("%s: %s has no %s of %s, %llu B, %llu times, %s\n", program, what, e->operation, e->axes,
               (unsigned long long)e->bytes, (unsigned long long)e->count,
               e->backward ? "backward" : "forward");
    }
    return count;
}

static void test_compiled(const char *root) {
    char path[1024], name[256];
    spw_csv *csv = NULL;
    size_t programs = 0;
    (void)snprintf(path, sizeof path, "%s/notebooks_data/compiled/mesh_axes.csv", root);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t row = 0, rows = 0; csv != NULL && row < spw_csv_rows(csv); row += rows) {
        const char *program = spw_csv_field(csv, row, "program"), *sizes = spw_csv_field(csv, row, "sizes"),
                   *remat = spw_csv_field(csv, row, "remat");
        const split s = {(size_t)number(csv, row, "fsdp"), (size_t)number(csv, row, "context"),
                         (size_t)number(csv, row, "tensor"), (size_t)number(csv, row, "expert")};
        list compiled, predicted;
        rows = read_program(csv, row, &s, &compiled);
        predict(&s, program, sizes, remat, &predicted);
        (void)snprintf(name, sizeof name, "%s, %s, remat %s, fsdp %zu, context %zu, tensor %zu, expert %zu",
                       program, sizes, remat, s.fsdp, s.context, s.tensor, s.expert);
        CHECK(missing(&compiled, &predicted, "the list", name) == 0);
        CHECK(missing(&predicted, &compiled, "the program", name) == 0);
        programs++;
    }
    CHECK(programs == PROGRAMS);
    spw_csv_close(csv);
}

/* XLA was asked about two policies, of slots about one. */
static void test_refused(void) {
    const split s = {2, 1, 2, 2};
    spw_job job;
    spw_scheme scheme;
    spw_step_traffic t;
    make_job(&s, "gmm", "small", "minimal", &job);
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    spw_point point = spw_point_of(&job, &scheme, 4);
    CHECK(spw_step_traffic_of(&point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &t) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "remat none and full alone") != NULL);
    CHECK_OK(spw_scheme_parse("dense:capacity_factor=1", &scheme));
    job.remat = SPW_REMAT_NONE;
    point = spw_point_of(&job, &scheme, 4);
    CHECK(spw_step_traffic_of(&point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &t) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "remat full alone") != NULL);
}

int main(int argc, char **argv) {
    test_compiled(argc > 1 ? argv[1] : ".");
    test_refused();
    return check_done();
}
