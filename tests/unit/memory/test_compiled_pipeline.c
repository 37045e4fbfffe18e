/* Pipelines and micro-batches of compiled programs: how MaxText cuts a step, executed; the lists with pencil and paper; totals of
 * programs that XLA compiled. */
#include "sim/job/job.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "sim/memory/live/footprint.h"
#include "sim/model/attention.h"
#include "tests/unit/check.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double UNBOUNDED = 1e15;

static spw_job job_of(const char *model, size_t fsdp, size_t stages) {
    spw_job job = {.expert = 8,
                   .fsdp = fsdp,
                   .pipeline = stages,
                   .tensor = 1,
                   .sequences_per_gpu = {4},
                   .batches = 1,
                   .sequence_length = 4096,
                   .precision = {2, 2, 2, 2},
                   .memory_fraction = 0.93,
                   .remat = SPW_REMAT_FULL};
    CHECK_OK(spw_model_read(model, NULL, &job.model));
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &job.cluster));
    return job;
}

static spw_scheme scheme_of(const char *text) {
    spw_scheme s;
    CHECK_OK(spw_scheme_parse(text, &s));
    return s;
}

static spw_compiled_cut cut_of(const spw_job *job, size_t sequences) {
    spw_compiled_cut c;
    CHECK_OK(spw_compiled_cut_of(job, sequences, &c));
    return c;
}

/* --- The cut --- */

/* The loop, turn by turn: stage 0 takes a new micro-batch, or the oldest that came round; the others take what the stage before
 * them left a turn ago. Returns the turns until every micro-batch has been round `repeats` times. */
static size_t execute(size_t stages, size_t micro_batches, size_t repeats, bool *stored) {
    enum { MOST = 64 };
    size_t at[MOST] = {0}, round[MOST] = {0}, queue[MOST * MOST] = {0}, first = 0, last = 0, begun = 0,
           done = 0, turns = 0;
    *stored = false;
    for (; done < micro_batches && turns < 100000; turns++) {
        if (begun < micro_batches) {
            at[0] = ++begun;
        } else {
            at[0] = first < last ? queue[first++] : 0;
        }
        const size_t out = at[stages - 1]; /* leaves at the end of the turn */
        for (size_t s = stages - 1; s > 0; s--) at[s] = at[s - 1];
        if (stages > 1) at[0] = 0;
        if (out == 0) continue;
        if (++round[out - 1] == repeats) {
            done++;
        } else {
            *stored = *stored || begun < micro_batches || first < last;
            queue[last++] = out;
        }
    }
    return turns;
}

static void test_turns(void) {
    spw_job job = job_of("deepseek-v3", 1, 8);
    for (size_t stages = 2; stages <= 6; stages++) {
        for (size_t times = 1; times <= 3; times++) {
            for (size_t repeats = 1; repeats <= 5; repeats++) {
                bool stored = false;
                job.pipeline = stages;
                job.micro_batches = stages * times;
                job.virtual_stages = repeats;
                const spw_compiled_cut c = cut_of(&job, stages * times);
                CHECK(c.turns == execute(stages, stages * times, repeats, &stored));
                CHECK(c.stores == stored);
            }
        }
    }
}

static void test_cut(void) {
    spw_job job = job_of("deepseek-v3", 1, 8);
    spw_compiled_cut c = cut_of(&job, 7);
    /* amd-agi/maxtext-slurm: 56 layers in 8 stages of 7 rounds, 8 micro-batches, 7 of 63 turns without work */
    CHECK(c.micro_batches == 8 && c.sequences == 7 && c.layers == 1 && c.repeats == 7 && c.turns == 63);
    CHECK(c.piped == 56 && c.outside == 2 && !c.stores && c.gpu_sequences == 7.0);
    job.virtual_stages = 1;
    c = cut_of(&job, 7);
    CHECK(c.layers == 7 && c.repeats == 1 && c.turns == 15 && c.piped == 56);
    job.virtual_stages = 0;
    job.micro_batches = 16;
    c = cut_of(&job, 32);
    CHECK(c.sequences == 2 && c.turns == 16 * 7 + 7 && c.stores && c.gpu_sequences == 4.0);
    job.micro_batches = 12;
    spw_compiled_cut none;
    CHECK_STATUS(spw_compiled_cut_of(&job, 12, &none), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "use 16") != NULL);
    job = job_of("gpt-oss-20b", 4, 2); /* two unlike layers make one turn of its scan */
    c = cut_of(&job, 4);
    CHECK(c.layers == 2 && c.repeats == 6 && c.piped == 24 && c.outside == 0);
    job.pipeline = 24;
    CHECK_STATUS(spw_compiled_cut_of(&job, 4, &none), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "has 24 in turns of 2") != NULL);
    job = job_of("deepseek-v3", 8, 1);
    job.micro_batches = 4;
    c = cut_of(&job, 8);
    CHECK(c.turns == 0 && c.sequences == 2 && c.gpu_sequences == 8.0 && c.outside == 58);
}

/* --- The lists --- */

static spw_compiled_memory predict(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    spw_stack stack;
    spw_compiled_memory m;
    CHECK_OK(spw_stack_read("xla-cuda-0.10.2", NULL, &stack));
    CHECK_OK(spw_compiled_memory_predict(&stack, job, scheme, sequences, UNBOUNDED, &m));
    return m;
}

static double gib_of(const spw_job *job, const char *text, size_t sequences, const char *name) {
    const spw_scheme scheme = scheme_of(text);
    const spw_compiled_memory m = predict(job, &scheme, sequences);
    spw_stack stack;
    spw_compiled_tensor *list = NULL;
    size_t count = 0;
    double gib = 0.0;
    CHECK_OK(spw_stack_read("xla-cuda-0.10.2", NULL, &stack));
    CHECK_OK(spw_compiled_memory_list(&stack, job, &scheme, sequences, &m.fullest, &list, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) gib += list[i].bytes / GIB;
    }
    spw_free(list);
    return gib;
}

static void near(double got, double want, double by, const char *what) {
    const bool good = fabs(got - want) <= by * fabs(want) + 1e-9;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.5g, want %.5g\n", what, got, want);
}

/* DeepSeek-V3, 8 stages, 4 sequences: T H b 7/32 GiB, 3 E H F b 21 GiB a layer. */
static void test_lists(void) {
    spw_job job = job_of("deepseek-v3", 1, 8);
    near(gib_of(&job, "gmm", 4, "iteration_inputs"), 63 * 0.21875, 1e-9, "one input a turn");
    near(gib_of(&job, "gmm", 4, "outside_carries"), 2 * 0.21875, 1e-9, "two layers before the loop");
    near(gib_of(&job, "gmm", 4, "expert_gradients"), 56 * 21.0 / 64, 1e-9, "gradients of the loop");
    near(gib_of(&job, "gmm", 4, "outside_expert_gradients"), 2 * 21.0 / 8, 1e-9, "a stage's GPUs share them");
    near(gib_of(&job, "gmm", 4, "outside_relaid_expert_weights"), 2 * 21.0 / 8, 1e-9, "laid out anew");
    CHECK(gib_of(&job, "gmm", 4, "relaid_expert_weights") == 0.0);
    near(gib_of(&job, "gmm", 4, "handed_on"), 2 * 0.21875, 1e-9, "on its way");
    near(gib_of(&job, "gmm", 4, "micro_batches_of_ends"), 0.21875, 1e-9, "M / P");
    CHECK(gib_of(&job, "gmm", 4, "micro_batches_between_rounds") == 0.0);
    near(gib_of(&job, "dense:capacity_factor=1.25,layout=gathered", 4, "scatter_u32"),
         8 * 4 * 4096 * 256 * 4.0 / GIB, 1e-9, "the batch of a stage's GPUs");
    job.fsdp = 4, job.pipeline = 2;
    near(gib_of(&job, "gmm", 4, "relaid_expert_weights"), 58 * 21.0 / 64, 1e-9, "gathered over fsdp");
    job.fsdp = 1, job.pipeline = 8, job.virtual_stages = 1;
    near(gib_of(&job, "gmm", 4, "iteration_inputs"), 15 * 7 * 0.21875, 1e-9, "seven layers a turn");
    CHECK(gib_of(&job, "gmm", 4, "wi_0") == 0.0); /* no round to take out of a stack */
    job.virtual_stages = 0, job.micro_batches = 16;
    near(gib_of(&job, "gmm", 64, "micro_batches_between_rounds"), 16 * 0.21875, 1e-9, "wait for their round");
    near(gib_of(&job, "gmm", 64, "micro_batches_of_ends"), 2 * 0.21875, 1e-9, "M / P");
    job.remat = SPW_REMAT_SAVE_QKV_PROJ;
    near(gib_of(&job, "gmm", 64, "saved_query"), (119 + 2 * 2) * 16384.0 * 128 * 192 * 2 / GIB, 1e-9,
         "of every turn, and of layers of twice the tokens");
}

/* Gradient accumulation: the program of a micro-batch, and a second set of gradients. */
static void test_accumulation(void) {
    spw_job job = job_of("mixtral-8x7b", 8, 1);
    const spw_scheme gmm = scheme_of("gmm");
    const spw_compiled_memory once = predict(&job, &gmm, 4);
    job.micro_batches = 4;
    const spw_compiled_memory parts = predict(&job, &gmm, 16);
    const double gradients = (double)spw_model_parameters(&job.model).total * 2 / 64;
    near(parts.wanted_bytes, once.wanted_bytes + gradients, 1e-9, "accumulated");
    near(parts.argument_bytes, once.argument_bytes, 1e-12, "the same state");
}

/* --- Programs that XLA compiled: notebooks_data/compiled/maxtext_pipeline.csv has those of published shapes. DeepSeek's
 * attention here has keys of 96 + 32, which the compiler's kernel takes, for 128 + 64. --- */

typedef struct program {
    const char *model, *scheme;
    size_t fsdp, stages, micro_batches, virtual_stages;
    double argument_gib, temporary_gib;
} program;

static void test_programs(void) {
    static const char gathered[] = "dense:capacity_factor=1.25,layout=gathered";
    static const program programs[] = {
        {"mixtral-8x7b", gathered, 1, 8, 0, 0, 4.238, 16.048},
        {"mixtral-8x7b", "gmm", 1, 8, 0, 0, 4.238, 22.996},
        {"mixtral-8x7b", "ring", 1, 8, 0, 0, 4.238, 40.836},
        {"mixtral-8x7b", "gmm", 4, 2, 0, 0, 4.102, 22.660},
        {"mixtral-8x7b", gathered, 4, 2, 0, 0, 4.102, 16.214},
        {"mixtral-8x7b", gathered, 1, 8, 16, 0, 4.238, 12.943},
        {"mixtral-8x7b", "gmm", 1, 8, 0, 1, 4.238, 44.714},
        {"deepseek-v3", gathered, 1, 8, 0, 0, 74.814, 84.467},
        {"deepseek-v3", "gmm", 1, 8, 0, 0, 74.814, 125.884},
        {"deepseek-v3", "ring", 1, 8, 0, 0, 74.814, 123.428},
        {"mixtral-8x7b", "gmm", 1, 8, 16, 0, 4.238, 15.585},
        {"mixtral-8x7b", "gmm", 8, 1, 4, 0, 4.080, 22.095},
        {"mixtral-8x7b", gathered, 8, 1, 4, 0, 4.080, 17.621},
        {"deepseek-v3", "gmm", 8, 1, 2, 0, 58.580, 150.107},
        {"deepseek-v2-lite", gathered, 4, 2, 0, 0, 1.412, 13.751},
        {"deepseek-v2-lite", "gmm", 4, 2, 0, 0, 1.412, 21.809},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const program *p = &programs[i];
        const spw_scheme scheme = scheme_of(p->scheme);
        spw_job job = job_of(p->model, p->fsdp, p->stages);
        if (spw_attention_is_latent(&job.model)) job.model.nope_dim = 96, job.model.rope_dim = 32;
        job.micro_batches = p->micro_batches;
        job.virtual_stages = p->virtual_stages;
        const spw_compiled_memory m = predict(&job, &scheme,
                                              p->micro_batches == 0 ? 4
                                              : p->stages > 1       ? 4 * p->stages
                                                                    : 4 * p->micro_batches);
        near(m.argument_bytes / GIB, p->argument_gib, 0.004, "arguments");
        near(m.temporary_bytes / GIB, p->temporary_gib, 0.05, p->scheme);
        CHECK(p->temporary_gib * GIB >= m.low_bytes && p->temporary_gib * GIB <= m.high_bytes);
    }
}

/* A scan over layers lays its stacks out anew even where nothing is gathered: experts over all 64 GPUs. XLA's figures for
 * DeepSeek-V3 at 4 sequences, keys as above. */
static void test_no_fsdp(void) {
    spw_job job = job_of("deepseek-v3", 1, 1);
    const spw_scheme dense = scheme_of("dense:capacity_factor=1.25,layout=gathered"), gmm = scheme_of("gmm");
    job.model.nope_dim = 96, job.model.rope_dim = 32, job.expert = 64;
    near(gib_of(&job, "gmm", 4, "relaid_expert_weights"), 58 * 21.0 / 64, 1e-9, "laid out anew");
    near(predict(&job, &dense, 4).temporary_bytes / GIB, 92.083, 0.05, "dense, no fsdp");
    near(predict(&job, &gmm, 4).temporary_bytes / GIB, 341.107, 0.05, "gmm, no fsdp");
}

/* As a footprint: covered, and of the parts' size. */
static void test_footprint(void) {
    spw_job job = job_of("deepseek-v3", 1, 8);
    const spw_scheme gmm = scheme_of("gmm");
    spw_stack stack;
    spw_footprint f;
    char outside[SPW_OUTSIDE_TEXT];
    CHECK_OK(spw_stack_read("maxtext-rocm-2026-05", NULL, &stack));
    CHECK(spw_compiled_footprint_covers(&job, &gmm));
    CHECK_OK(spw_compiled_footprint_compute(&stack, &job, &gmm, 4, &f, outside));
    CHECK(strstr(outside, "pipelines not in the fitted tables") != NULL);
    CHECK(f.low_bytes < f.peak_bytes && f.peak_bytes < f.high_bytes);
    job.micro_batches = 3;
    job.sequences_per_gpu[0] = 3;
    CHECK(!spw_compiled_footprint_covers(&job, &gmm));
}

int main(void) {
    test_turns();
    test_cut();
    test_lists();
    test_accumulation();
    test_programs();
    test_no_fsdp();
    test_footprint();
    return check_done();
}
