/* Models whose parts are not described when a job splits them, by docs/schemes.md, 2.8 and 5.10: every part with every small grid, for
 * Megatron-Core's grids and for MaxText's mesh. */
#include "sim/job/goes_with.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/model/model.h"
#include "tests/unit/check.h"

#include <string.h>

enum { GPUS = 8 };

typedef struct part {
    const char *name; /* in the refusal */
    void (*put)(spw_model *m);
    bool (*refused)(const spw_grid *g, bool mesh);
} part;

static void put_latent(spw_model *m) { m->latent = m->hidden / 2; }
static bool latent_refused(const spw_grid *g, bool mesh) { return mesh && g->tensor > 1; }

static void put_indexer(spw_model *m) { m->indexer_heads = 4, m->indexer_dim = 64; }
static bool indexer_refused(const spw_grid *g, bool mesh) { return mesh || g->context > 1; }

static void put_norm(spw_model *m) { m->qk_norm = true, m->qk_norm_per_head = false; }
static bool norm_refused(const spw_grid *g, bool mesh) { return mesh && g->tensor * g->context > 1; }

static void put_head_norm(spw_model *m) { m->qk_norm = m->qk_norm_per_head = true; }
static bool never_refused(const spw_grid *g, bool mesh) {
    (void)g, (void)mesh;
    return false;
}

static void put_bias(spw_model *m) { m->expert_bias = true; }
static bool bias_refused(const spw_grid *g, bool mesh) {
    (void)mesh;
    return g->expert_tensor > 1;
}

static const part parts[] = {{"latent experts", put_latent, latent_refused},
                             {"a sparse indexer", put_indexer, indexer_refused},
                             {"norms over all query heads", put_norm, norm_refused},
                             {"", put_head_norm, never_refused},
                             {"biases of experts", put_bias, bias_refused}};

/* MaxText's grid: a whole model, its state sharded. */
static bool is_mesh(const spw_job *job) {
    const bool mesh = job->optimizer == SPW_OPTIMIZER_SHARDED && job->tensor * job->context > 1;
    const spw_grid g = spw_grid_of(job);
    CHECK(g.mesh_tensor == (mesh ? job->tensor : 1) && g.mesh_context == (mesh ? job->context : 1));
    CHECK(g.sequence_tensor == (mesh ? 1 : job->tensor) &&
          g.expert_sharers == (mesh ? 1 : job->expert_tensor));
    CHECK(spw_grid_mesh_gpus(&g) == (mesh ? job->tensor * job->context : 1));
    return mesh;
}

static spw_status check(const spw_job *job, const char **key) {
    const spw_status status = spw_grid_check(job, key);
    return status == SPW_OK ? spw_goes_with_check(job, NULL, key) : status;
}

static void try_part(const spw_job *base, const part *p, size_t *refused, size_t *passed) {
    static spw_job job;
    const char *key = NULL;
    const spw_grid g = spw_grid_of(base);
    job = *base;
    p->put(&job.model);
    if (!p->refused(&g, is_mesh(base))) {
        CHECK_OK(check(&job, &key));
        ++*passed;
        return;
    }
    CHECK_STATUS(check(&job, &key), SPW_ECONFIG);
    CHECK(strcmp(key, "parallel") == 0 && strstr(spw_last_error(), p->name) != NULL);
    ++*refused;
}

static void test_parts(const spw_job *read) {
    static spw_job job;
    const char *key = NULL;
    size_t refused = 0, passed = 0;
    for (size_t i = 0; i < 2 * 2 * 2 * 2; i++) {
        job = *read;
        job.tensor = 1 + (i & 1), job.context = 1 + (i >> 1 & 1), job.expert_tensor = 1 + (i >> 2 & 1);
        job.optimizer = i >> 3 != 0 ? SPW_OPTIMIZER_SHARDED : SPW_OPTIMIZER_DISTRIBUTED;
        job.sequence_parallel = true;
        job.expert = 2, job.fsdp = GPUS / 2 / job.expert_tensor;
        job.model.qk_norm = false;
        if (is_mesh(&job) && job.expert_tensor != job.tensor) {
            CHECK_STATUS(check(&job, &key), SPW_ECONFIG);
            CHECK(strcmp(key, "parallel.expert_tensor") == 0);
            continue;
        }
        CHECK_OK(check(&job, &key));
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            try_part(&job, &parts[p], &refused, &passed);
    }
    CHECK(refused > 15 && passed > 25);
}

/* What Megatron-Core's grid must divide: each width, one more than which is refused by its own name. */
static void test_widths(const spw_job *read) {
    static const struct {
        size_t tensor, expert_tensor, context;
        size_t heads, kv_heads, ffn, length;
        const char *key;
    } tries[] = {{4, 1, 1, 16, 16, 1024, 4096, NULL},
                 {4, 1, 1, 18, 18, 1024, 4096, "parallel.tensor"},
                 {4, 1, 1, 16, 2, 1024, 4096, NULL}, /* two GPUs to a head of keys */
                 {4, 1, 1, 12, 3, 1024, 4096, "parallel.tensor"},
                 {1, 4, 1, 16, 16, 1022, 4096, "parallel.expert_tensor"},
                 {4, 1, 1, 16, 16, 1022, 4096, NULL}, /* experts are whole */
                 {2, 1, 2, 16, 16, 1024, 4090, "batch.sequence_length"},
                 {2, 1, 2, 16, 16, 1024, 4092, NULL},
                 {1, 1, 2, 16, 16, 1024, 4090, "batch.sequence_length"}};
    static spw_job job;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const char *key = NULL;
        job = *read;
        job.tensor = tries[i].tensor, job.expert_tensor = tries[i].expert_tensor,
        job.context = tries[i].context;
        job.expert = 2, job.fsdp = GPUS / 2 / job.expert_tensor;
        job.optimizer = SPW_OPTIMIZER_DISTRIBUTED, job.sequence_parallel = true;
        job.model.heads = tries[i].heads, job.model.kv_heads = tries[i].kv_heads;
        job.model.qk_norm = false, job.model.expert_ffn = tries[i].ffn;
        job.sequence_length = tries[i].length;
        CHECK_STATUS(check(&job, &key), tries[i].key == NULL ? SPW_OK : SPW_ECONFIG);
        if (tries[i].key != NULL) CHECK(strcmp(key, tries[i].key) == 0);
    }
}

/* Can each of the GPUs of context, two parts apiece, and of what they hold each of tensor, have as many tokens as any other? */
static bool can_cut(size_t length, size_t context, size_t tensor) {
    const size_t cuts = context > 1 ? 2 * context : 1;
    for (size_t piece = 1; piece * cuts <= length; piece++) {
        const size_t own = piece * (context > 1 ? 2 : 1);
        for (size_t each = 1; piece * cuts == length && each * tensor <= own; each++)
            if (each * tensor == own) return true;
    }
    return false;
}

static void test_lengths(const spw_job *read) {
    static const size_t sizes[][2] = {{1, 1}, {1, 8}, {2, 1}, {2, 2},
                                      {2, 4}, {4, 1}, {4, 2}}; /* context, tensor */
    static spw_job job;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t length = 992; length <= 1024; length++) {
            const char *key = NULL;
            job = *read;
            job.context = sizes[i][0], job.tensor = sizes[i][1];
            job.expert = 2, job.fsdp = GPUS / 2;
            job.optimizer = SPW_OPTIMIZER_DISTRIBUTED, job.sequence_parallel = true;
            job.model.heads = job.model.kv_heads = 16, job.model.qk_norm = false;
            job.sequence_length = length;
            const bool good = can_cut(length, job.context, job.tensor);
            CHECK_STATUS(check(&job, &key), good ? SPW_OK : SPW_ECONFIG);
            if (!good) CHECK(strcmp(key, "batch.sequence_length") == 0);
        }
    }
}

int main(void) {
    static spw_job job;
    const spw_job_override values[] = {{"model", "olmoe-1b-7b", "--model"},
                                       {"cluster", "h200-8x1", "--cluster"}};
    CHECK_OK(spw_job_read_with(NULL, values, 2, &job));
    test_parts(&job);
    test_widths(&job);
    test_lengths(&job);
    return check_done();
}
