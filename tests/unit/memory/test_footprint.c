/* Memory of a rank. The table is the peak model of docs/schemes.md, section 7.6, for DeepSeek-V3 at expert 8 x
 * fsdp 8 in bf16, remat full. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"

#include "sim/memory/kept/verdict.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* bf16 throughout, unless the job says a precision or is Megatron-Core's. */
static const char *bf16(const char *more) {
    return strstr(more, "precision") == NULL && strstr(more, "optimizer") == NULL ? "precision: bf16\n" : "";
}

static spw_job job_of(const char *model, size_t expert, size_t fsdp, const char *more) {
    char text[512];
    spw_job job;
    (void)snprintf(text, sizeof text,
                   "model: %s\ncluster: mi355x-8x8\nparallel: {expert: %zu, fsdp: %zu}\n"
                   "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n%s%s",
                   model, expert, fsdp, bf16(more), more);
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    return job;
}

static spw_footprint compute(const spw_job *job, const char *scheme_text, size_t sequences) {
    spw_scheme scheme;
    spw_footprint f;
    CHECK_OK(spw_scheme_parse(scheme_text, &scheme));
    const spw_point point = spw_point_of(job, &scheme, sequences);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    return f;
}

static uint64_t component(const spw_footprint *f, const char *name) {
    for (size_t i = 0; i < f->components; i++) {
        if (strcmp(f->component[i].name, name) == 0) return f->component[i].bytes;
    }
    return 0;
}

/* Sum at one moment, without the components whose name begins with `without`. */
static uint64_t sum_at(const spw_footprint *f, spw_moment moment, const char *without) {
    uint64_t sum = 0;
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->live[moment] && strncmp(c->name, without, strlen(without)) != 0) sum += c->bytes;
    }
    return sum;
}

/* --- What the issue and the document print --- */

static void test_state(void) {
    const spw_job job = job_of("deepseek-v3", 8, 8, "");
    for (size_t p = 1; p <= 16; p *= 2) {
        const spw_footprint f = compute(&job, "gmm", p);
        CHECK(fabs((double)f.argument_bytes / GIB / 58.59 - 1.0) < 1e-3);
        CHECK(fabs((double)component(&f, "gradients") / GIB - 19.53) < 0.005);
        CHECK(fabs((double)component(&f, "carries") / GIB - 3.336 * (double)p) < 0.0005 * (double)p);
        CHECK(fabs((double)component(&f, "gathered_expert_weights") / GIB - 2 * 2.625) < 1e-6);
        CHECK(fabs((double)component(&f, "expert_weight_gradients") / GIB - 2.625) < 1e-6);
        CHECK(fabs((double)component(&f, "gathered_other_weights") / GIB - 2 * 0.434) < 0.001);
        CHECK(fabs((double)component(&f, "shared_expert") / GIB - 0.046875 * (double)p) < 1e-9);
    }
    const spw_job alone =
        job_of("deepseek-v3", 64, 1, ""); /* nobody shares a rank's experts: who gathers all, does so still */
    const spw_footprint own = compute(&alone, "gmm", 1),
                        every = compute(&alone, "dense:capacity_factor=1,layout=gathered", 1);
    CHECK(component(&own, "gathered_expert_weights") == 0 && component(&own, "expert_weight_gradients") == 0);
    CHECK(fabs((double)component(&every, "gathered_expert_weights") / GIB - 2 * 8 * 2.625) < 1e-6);
    CHECK(fabs((double)component(&every, "expert_weight_gradients") / GIB - 8 * 2.625) < 1e-6);
    const spw_job wide =
        job_of("deepseek-v3", 8, 8, "precision: {weights: fp32, optimizer: fp32, gradients: fp32}\n");
    const spw_footprint f = compute(&wide, "gmm", 1);
    CHECK(fabs((double)f.argument_bytes / GIB - 117.2) < 0.05);
    CHECK(fabs((double)component(&f, "gradients") / GIB - 39.1) < 0.05);
}

/* Muon has one moment of every parameter, and a second of what Adam updates: tables and norms. */
static void test_muon(void) {
    const spw_job job = job_of("mixtral-8x7b", 8, 8,
                               "optimizer: replicated\noptimizer_algorithm: muon\n"
                               "precision: {weights: bf16, optimizer: fp32, gradients: fp32}\n");
    const spw_footprint f = compute(&job, "megatron-alltoall", 1);
    const uint64_t adam = 2 * 32000 * 4096 + 65 * 4096;
    CHECK(component(&f, "optimizer") == 2 * component(&f, "weights") + 4 * adam);
}

/* Printed to 0.1, from coefficients printed to 0.0005 (3.336 p, 0.946 p). The log-sum-exp of section 7.4, 128
 * heads x 4 bytes a token, stands in that section and not in its 0.946. */
static void test_peak_model(void) {
    static const size_t sequences[] = {1, 2, 4, 8, 16};
    static const struct {
        const char *scheme;
        double gib[5];
    } rows[] = {
        {NULL, {91.1, 95.4, 104.0, 121.1, 155.4}}, /* without the activations of the experts */
        {"dense:capacity_factor=1.25", {94.2, 101.5, 116.2, 145.5, 204.1}},
        {"dense:capacity_factor=4", {100.9, 114.9, 143.0, 199.1, 311.4}},
        {"gmm", {105.5, 124.2, 161.5, 236.1, 385.4}},
        {"gmm-deepep", {105.5, 124.2, 161.5, 236.1, 385.4}},
    };
    const double lse = 128.0 * 4.0 * 4096.0 / GIB, shared = 3.0 * 4096.0 * 2048.0 * 2.0 / GIB;
    const spw_job job = job_of("deepseek-v3", 8, 8, "");
    CHECK(fabs(shared - 0.047) < 0.0005);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < 5; i++) {
            const double p = (double)sequences[i], rounding = 0.05 + 0.001 * p;
            const spw_footprint f =
                compute(&job, rows[r].scheme != NULL ? rows[r].scheme : "gmm", sequences[i]);
            const uint64_t bytes =
                sum_at(&f, SPW_MOMENT_MOE_LAYER, rows[r].scheme != NULL ? "communication" : "moe.");
            const double got = (double)bytes / GIB - (shared + lse) * p;
            CHECK(fabs(got - rows[r].gib[i]) < rounding);
            if (!(fabs(got - rows[r].gib[i]) < rounding))
                fprintf(stderr, "  p = %zu: %.3f, printed %.1f\n", sequences[i], got, rows[r].gib[i]);
            if (rows[r].scheme == NULL) continue;
            CHECK(f.moment == SPW_MOMENT_MOE_LAYER);
            CHECK(f.peak_bytes == bytes + component(&f, "communication_buffers"));
        }
    }
    const spw_footprint ragged = compute(&job, "ragged", 1);
    CHECK((double)ragged.peak_bytes / GIB > 91.1 + 112.0);
    CHECK(component(&ragged, "moe.ragged_dot_hidden_operand") == (uint64_t)112 << 30);
}

/* --- What holds for every job --- */

static void check_sums(const spw_footprint *f) {
    uint64_t arguments = 0, peak = 0;
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        char formula[SPW_COMPONENT_TEXT];
        spw_component_print(c, formula);
        if (c->argument) arguments += c->bytes;
        CHECK(c->name[0] != '\0' && formula[0] != '\0' && c->source != NULL);
        CHECK(c->live[0] || c->live[1] || c->live[2]);
    }
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const uint64_t sum = sum_at(f, (spw_moment)m, "-");
        peak = sum > peak ? sum : peak;
        CHECK(spw_moment_name((spw_moment)m)[0] != '\0');
    }
    CHECK(f->argument_bytes == arguments && f->peak_bytes == peak && sum_at(f, f->moment, "-") == peak);
    CHECK(f->temporary_bytes == f->peak_bytes - f->argument_bytes);
}

static void test_all_models(void) {
    static const char *const schemes[] = {"dense:capacity_factor=1.25", "ragged", "gmm", "gmm-deepep",
                                          "ring"};
    for (size_t m = 0; spw_model_presets()[m] != NULL; m++) {
        const char *model = spw_model_presets()[m];
        const spw_job full = job_of(model, 4, 16, ""), none = job_of(model, 4, 16, "remat: none\n");
        for (size_t s = 0; s < 5; s++) {
            uint64_t before = 0;
            for (size_t p = 1; p <= 8; p *= 2) {
                const spw_footprint a = compute(&full, schemes[s], p), b = compute(&none, schemes[s], p);
                check_sums(&a);
                check_sums(&b);
                CHECK(b.peak_bytes > a.peak_bytes && b.argument_bytes == a.argument_bytes);
                CHECK(a.peak_bytes > before);
                before = a.peak_bytes;
            }
            const spw_footprint f = compute(&full, schemes[s], 1);
            CHECK(f.budget_bytes == (uint64_t)(0.93 * 287.96 * GIB + 0.5));
        }
        uint64_t before = 0;
        for (int factor = 1; factor <= 4; factor++) {
            char text[64];
            (void)snprintf(text, sizeof text, "gmm:buffer_factor=%d", factor);
            const spw_footprint f = compute(&full, text, 2);
            CHECK(sum_at(&f, SPW_MOMENT_MOE_LAYER, "-") > before);
            before = sum_at(&f, SPW_MOMENT_MOE_LAYER, "-");
        }
    }
}

/* Without remat every layer keeps its residuals; the one at work is not counted twice. */
static void test_saved(void) {
    const spw_job none = job_of("deepseek-v3", 8, 8, "remat: none\n");
    const spw_footprint f = compute(&none, "gmm", 1);
    const double saved = (double)(component(&f, "saved_activations") + component(&f, "saved_rows")),
                 others = (double)(component(&f, "saved_by_other_layers") +
                                   component(&f, "saved_rows_of_other_layers"));
    const double layer = (double)f.live_set.saved_bytes + (double)component(&f, "attention") +
                         (double)component(&f, "shared_expert");
    CHECK(fabs(saved - others - layer) < 4.0);
    CHECK(saved > 58.0 * layer && saved < 61.0 * layer);
}

static void test_verdicts(void) {
    CHECK(spw_footprint_verdict(0, 100) == SPW_VERDICT_FITS);
    CHECK(spw_footprint_verdict(95, 100) == SPW_VERDICT_FITS); /* 5 % free */
    CHECK(spw_footprint_verdict(96, 100) == SPW_VERDICT_TIGHT);
    CHECK(spw_footprint_verdict(100, 100) == SPW_VERDICT_TIGHT);
    CHECK(spw_footprint_verdict(101, 100) == SPW_VERDICT_OOM);
    CHECK(spw_footprint_verdict(INT64_MAX, (uint64_t)1 << 38) == SPW_VERDICT_OOM);
    CHECK(strcmp(spw_verdict_name(SPW_VERDICT_FITS), "fits") == 0);
    CHECK(strcmp(spw_verdict_name(SPW_VERDICT_TIGHT), "tight") == 0);
    CHECK(strcmp(spw_verdict_name(SPW_VERDICT_OOM), "oom") == 0);
}

/* Shapes that no machine holds: the sums stay at their end and the verdict is oom. */
static void test_absurd(void) {
    static const char *const schemes[] = {"dense:capacity_factor=1000000",
                                          "dense:capacity_factor=1.25",
                                          "ragged",
                                          "gmm",
                                          "gmm:buffer_factor=1000000",
                                          "gmm-deepep",
                                          "ring"};
    spw_job job = job_of("deepseek-v3", 8, 8, "");
    for (int remat = 0; remat < SPW_REMAT_COUNT; remat++) {
        job.remat = (spw_remat)remat;
        job.sequence_length = 1 << 24;
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
            const spw_footprint f = compute(&job, schemes[s], 1 << 20);
            CHECK(spw_footprint_verdict(f.peak_bytes, f.budget_bytes) == SPW_VERDICT_OOM);
            CHECK(f.temporary_bytes == f.peak_bytes - f.argument_bytes && f.peak_bytes <= INT64_MAX);
        }
    }
    job.model.hidden = job.model.expert_ffn = job.model.vocab = 1 << 24;
    job.model.experts = 65528;
    job.model.top_k = 1024;
    job.model.layers = job.model.moe_layers = SPW_MODEL_MAX_LAYERS;
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        const spw_footprint f = compute(&job, schemes[s], 1 << 7); /* the most tokens of a GPU: 2^31 */
        CHECK(spw_footprint_verdict(f.peak_bytes, f.budget_bytes) == SPW_VERDICT_OOM);
        CHECK(f.peak_bytes >= f.argument_bytes && f.temporary_bytes == f.peak_bytes - f.argument_bytes);
    }
    job.expert = job.fsdp = 1; /* the state alone is more than 63 bits count */
    job.model.experts = 65535;
    const spw_footprint f = compute(&job, "gmm", 1);
    CHECK(spw_footprint_verdict(f.peak_bytes, f.budget_bytes) == SPW_VERDICT_OOM);
    CHECK(f.peak_bytes >= f.argument_bytes && f.temporary_bytes == f.peak_bytes - f.argument_bytes);
}

/* --- Pipeline, micro-batches, optimizer --- */

static spw_job pipeline_job(size_t stages, size_t chunks, size_t micro_batches, size_t sequences,
                            const char *more) {
    char text[512];
    spw_job job;
    (void)snprintf(text, sizeof text,
                   "model: mixtral-8x7b\ncluster: mi355x-8x8\n"
                   "parallel: {expert: 8, fsdp: %zu, pipeline: %zu, virtual_stages: %zu}\n"
                   "batch: {sequences_per_gpu: %zu, sequence_length: 4096, micro_batches: %zu}\n%s%s",
                   8 / stages, stages, chunks, sequences, micro_batches, bf16(more), more);
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    return job;
}

/* Mixtral: 32 MoE layers. 4 stages of 8 layers: the first keeps the inputs of 4 micro-batches in 8 layers. Two
 * blocks of 4 layers a stage: 2 x 3 + 4 + 1 = 11 passes of 4 layers. */
static void test_pipeline(void) {
    const double input = 4096.0 * 4096.0 * 2.0; /* T H b of a micro-batch of one sequence */
    spw_job job = pipeline_job(4, 1, 8, 8, "");
    spw_footprint f = compute(&job, "gmm", 8);
    CHECK(f.stage.index == 0 && (double)component(&f, "carries") == 4 * 8 * input);
    CHECK(component(&f, "logits") == 0); /* those are of the last stage */
    job = pipeline_job(4, 2, 8, 8, "");
    f = compute(&job, "gmm", 8);
    CHECK(f.stage.index == 0 && (double)component(&f, "carries") == 11 * 4 * input);
    job = pipeline_job(4, 1, 2, 8, ""); /* no more than there are: 2 micro-batches of 4 sequences */
    f = compute(&job, "gmm", 8);
    CHECK((double)component(&f, "carries") == 2 * 8 * 4 * input);
    job = pipeline_job(4, 1, 8, 8, "remat: none\n");
    f = compute(&job, "gmm", 8);
    const spw_job whole = pipeline_job(1, 1, 1, 1, "remat: none\n");
    const spw_footprint g = compute(&whole, "gmm", 1);
    CHECK(component(&f, "saved_rows") == component(&g, "saved_rows")); /* 4 x 8 of 32 layers */
    CHECK(component(&f, "saved_activations") == component(&g, "saved_activations"));
}

/* Gradient accumulation: as much as one micro-batch, plus nothing. */
static void test_accumulation(void) {
    const spw_job whole = pipeline_job(1, 1, 1, 2, ""), parts = pipeline_job(1, 1, 4, 8, "");
    CHECK(compute(&whole, "gmm", 2).peak_bytes == compute(&parts, "gmm", 8).peak_bytes);
    CHECK(compute(&whole, "gmm", 8).peak_bytes > compute(&parts, "gmm", 8).peak_bytes);
}

static void test_optimizer(void) {
    const spw_job job =
        pipeline_job(1, 1, 1, 1, "precision: {gradients: fp32, optimizer: fp32}\noptimizer: distributed\n");
    const spw_parameters p = spw_model_parameters(&job.model);
    const double routed = 32.0 * (double)p.routed_per_layer, rest = (double)p.total - routed;
    spw_scheme scheme;
    spw_footprint f;
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    CHECK_STATUS(spw_footprint_check(&job, &scheme), SPW_ECONFIG);
    static const char *const maxtext[] = {"ragged-deepep", "moe-dedup:buffer_factor=1.5", "ring",
                                          "gmm-deepep"},
                             *const torch[] = {"megatron-flex", "primus-syncfree", "megablocks"};
    for (size_t i = 0; i < sizeof maxtext / sizeof *maxtext; i++) {
        CHECK_OK(spw_scheme_parse(maxtext[i], &scheme));
        CHECK_STATUS(spw_footprint_check(&job, &scheme), SPW_ECONFIG);
        CHECK(spw_footprint_state_note(&job, &scheme) == NULL);
    }
    spw_job sharded = job, bare = job;
    sharded.optimizer = bare.optimizer = SPW_OPTIMIZER_SHARDED;
    bare.part = SPW_PART_EXPERT_LAYERS;
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++) {
        CHECK_OK(spw_scheme_parse(torch[i], &scheme));
        CHECK_OK(spw_footprint_check(&job, &scheme));
        CHECK(spw_footprint_state_note(&job, &scheme) == NULL);
        CHECK(spw_footprint_state_note(&bare, &scheme) == NULL);
        CHECK(spw_footprint_state_note(&sharded, &scheme) != NULL);
    }
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f)); /* the state alone is looked at */
    const double workspaces = 2.0 * 128.0 * 1048576.0; /* of MI355X's hipBLAS */
    const double want = (6.0 + 12.0 / 8) * routed / 8 + (6.0 + 12.0 / 64) * rest + workspaces;
    CHECK(fabs((double)f.argument_bytes / want - 1.0) < 1e-9);
    CHECK(component(&f, "gathered_expert_weights") == 0);
}

/* The state by itself is that of the whole footprint, on every stage, and so is the budget. */
static void test_state_alone(void) {
    static const char *const schemes[] = {"megatron-alltoall", "megatron-flex"};
    const spw_job job =
        pipeline_job(4, 1, 1, 1, "precision: {gradients: fp32, optimizer: fp32}\noptimizer: distributed\n");
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        spw_scheme scheme;
        CHECK_OK(spw_scheme_parse(schemes[i], &scheme));
        const spw_point point = spw_point_of(&job, &scheme, 1);
        for (size_t stage = 0; stage < 4; stage++) {
            spw_footprint whole, state;
            CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &whole));
            CHECK_OK(spw_footprint_state_of_stage(&point, stage, &state));
            const uint64_t more = component(&whole, "cublas_workspaces");
            CHECK(state.argument_bytes > 0 && state.argument_bytes + more == whole.argument_bytes);
            CHECK(state.peak_bytes == state.argument_bytes && state.budget_bytes == whole.budget_bytes);
        }
    }
}

static void check_alike(const spw_footprint *a, const spw_footprint *b) {
    CHECK(a->peak_bytes == b->peak_bytes && a->argument_bytes == b->argument_bytes && a->moment == b->moment);
    CHECK(memcmp(a->fixed_bytes, b->fixed_bytes, sizeof a->fixed_bytes) == 0);
    CHECK(memcmp(a->beside_bytes, b->beside_bytes, sizeof a->beside_bytes) == 0);
    CHECK(a->live_set.backward_bytes == b->live_set.backward_bytes &&
          a->live_set.saved_bytes == b->live_set.saved_bytes && a->rows.held == b->rows.held &&
          a->rows.received == b->rows.received && a->follows_routing == b->follows_routing);
    CHECK(strcmp(a->step, b->step) == 0 && a->saved.all == b->saved.all);
    CHECK(a->components == b->components);
    for (size_t i = 0; i < a->components && i < b->components; i++) {
        const spw_component *c = &a->component[i], *d = &b->component[i];
        char text[2][SPW_COMPONENT_TEXT];
        spw_component_print(c, text[0]);
        spw_component_print(d, text[1]);
        CHECK(strcmp(c->name, d->name) == 0 && strcmp(text[0], text[1]) == 0);
        CHECK(c->bytes == d->bytes && c->routed == d->routed && c->source == d->source &&
              memcmp(c->live, d->live, sizeof c->live) == 0);
    }
}

/* Stages together, which share what their layers have in common, are the stages one by one: also where a stage has more in front of
 * that than those before it, or another layer. */
static void test_stages_together(void) {
#define BASE "precision: {gradients: fp32, optimizer: fp32}\noptimizer: distributed\n"
    static const char *const more[] = {BASE, BASE "remat: none\n",
                                       BASE "remat: none\noffload_modules: [expert_fc1]\n"};
    static spw_footprint all[4], one;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const spw_job job = pipeline_job(4, 2, 8, 8, more[i]);
        spw_scheme scheme;
        CHECK_OK(spw_scheme_parse("megatron-flex", &scheme));
        const spw_point point = spw_point_of(&job, &scheme, 8);
        CHECK_OK(spw_footprint_of_stages(&point, 4, all));
        for (size_t stage = 0; stage < 4; stage++) {
            CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &one));
            check_alike(&all[stage], &one);
        }
    }
}

/* --- FSDP2 where the experts are no multiple of the GPUs: what torch.chunk gives the ranks, dealt expert by expert --- */

typedef struct uneven {
    const char *model, *cluster, *frozen, *rank;
    size_t gpus;
    double each; /* bytes of a parameter */
} uneven;

/* torch.chunk: every rank takes ceil(experts / ranks) of those that are left. */
static size_t most_of_a_rank(size_t experts, size_t ranks) {
    size_t left = experts, most = 0;
    for (size_t r = 0; r < ranks; r++) {
        size_t chunk = 0;
        while (chunk * ranks < experts) chunk++;
        const size_t here = chunk < left ? chunk : left;
        most = here > most ? here : most;
        left -= here;
    }
    CHECK(left == 0);
    return most;
}

static bool whole_bytes(double got, double want) { return fabs(got - want) <= 1.0; } /* whole bytes */

static void check_uneven(const uneven *a) {
    static spw_job job;
    static spw_footprint f;
    /* moments of another format: no list describes it */
    const spw_job_override values[] = {{"model", a->model, ""},
                                       {"cluster", a->cluster, ""},
                                       {"parallel.expert", "1", ""},
                                       {"optimizer", "sharded", ""},
                                       {"precision.weights", "fp32", ""},
                                       {"precision.gradients", "fp32", ""},
                                       {"precision.optimizer", "bf16", ""},
                                       {"attention", "unfused", ""},
                                       {"finetune.frozen", a->frozen, ""},
                                       {"finetune.lora_rank", a->rank, ""}};
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("transformers", &scheme));
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    CHECK(job.fsdp == a->gpus);
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    const size_t experts = job.model.experts, most = most_of_a_rank(experts, a->gpus);
    const double one = 3.0 * (double)job.model.hidden * (double)job.model.expert_ffn;
    const double layers = (double)job.model.moe_layers, even = (double)experts / (double)a->gpus;
    const double more = (double)most - even, gathered = (double)(most * a->gpus - experts);
    const bool trained = a->rank[0] == '0';
    if (most * a->gpus == experts) {
        CHECK(component(&f, "uneven_shards") == 0 && component(&f, "padded_gathers") == 0);
        CHECK(component(&f, "padded_gradients") == 0);
        return;
    }
    CHECK(whole_bytes((double)component(&f, "uneven_shards"), layers * more * one * a->each));
    CHECK(whole_bytes((double)component(&f, "padded_gathers"), 2.0 * gathered * one * 2.0)); /* in bf16 */
    if (trained)
        CHECK(whole_bytes((double)component(&f, "padded_gradients"), gathered * one * 2.0));
    else
        CHECK(component(&f, "padded_gradients") == 0);
}

static void test_uneven(void) {
    /* fp32 weights and gradients, a bf16 and an fp32 moment: 4 + 4 + 2 + 4; adapters: weights alone, which are frozen */
    static const uneven all[] = {{"mixtral-8x7b", "h200:8x8", "none", "0", 64, 14.0},
                                 {"mixtral-8x7b", "h200:8x1", "none", "0", 8, 14.0},
                                 {"olmoe-1b-7b", "h200:8x3", "none", "0", 24, 14.0},
                                 {"mixtral-8x7b", "h200:8x2", "base", "16", 16, 4.0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_uneven(&all[i]);
}

int main(void) {
    test_state_alone();
    test_stages_together();
    test_pipeline();
    test_accumulation();
    test_optimizer();
    test_state();
    test_muon();
    test_peak_model();
    test_all_models();
    test_saved();
    test_verdicts();
    test_absurd();
    test_uneven();
    return check_done();
}
