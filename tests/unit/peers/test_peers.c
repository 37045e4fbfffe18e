/* The planners' formulas beside what their own code returned for the same job: SimuMax 4dcaae51 (PerfLLM,
 * capacity 1, B200 system file), Primus fd1eeabb (LanguageModelProfiler with torch stubbed, use_flash_attn, GQA
 * and MLA as in its model files) and Megatron-LM d98e8a64 (theoretical_memory_usage.py), run with Python 3.11
 * on jobs of 64 GPUs or fewer, sequence length 4096. */
#include "sim/job/job.h"
#include "sim/peers/peer.h"

#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

typedef struct job_row {
    const char *model;
    size_t expert, fsdp, pipeline, chunks, sequences, micro_batches;
    spw_remat remat;
    size_t layers; /* other than the preset's; 0 = the preset's */
} job_row;

static spw_job job_of(const job_row *r) {
    static spw_job job;
    memset(&job, 0, sizeof job);
    CHECK_OK(spw_model_read(r->model, NULL, &job.model));
    if (r->layers > 0) {
        for (size_t i = job.model.layers; i < r->layers; i++) job.model.is_moe[i] = 1;
        job.model.moe_layers += r->layers - job.model.layers;
        job.model.layers = r->layers;
    }
    job.expert = r->expert;
    job.fsdp = r->fsdp;
    job.pipeline = r->pipeline;
    job.virtual_stages = r->chunks;
    job.micro_batches = r->micro_batches;
    job.sequence_length = 4096;
    job.remat = r->remat;
    job.tensor = 1;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    return job;
}

static bool near(double got, double want) {
    const bool same = fabs(got - want) <= 1e-9 * fabs(want);
    if (!same) fprintf(stderr, "  %.17g is not %.17g\n", got, want);
    return same;
}

#define NONE SPW_REMAT_NONE
#define FULL SPW_REMAT_FULL

static void test_megatron(void) {
    static const struct {
        job_row job;
        double state, activations, replicated;
    } rows[] = {
        {{"mixtral-8x7b", 8, 8, 1, 1, 1, 1, NONE, 0}, 52213457664, 19494425395.200001, 130370052096},
        {{"mixtral-8x7b", 8, 8, 1, 1, 2, 1, FULL, 0}, 52213457664, 38988850790.400002, 130370052096},
        {{"mixtral-8x7b", 8, 1, 8, 1, 16, 16, NONE, 0}, 14926139136, 19307495424, 18065728512},
        {{"mixtral-8x7b", 8, 2, 4, 1, 2, 2, FULL, 0}, 20063312640, 9618446745.6000004, 33772161024},
        {{"mixtral-8x7b", 8, 2, 4, 2, 8, 8, NONE, 0}, 20063312640, 26450728550.400002, 33772161024},
        {{"deepseek-v3", 8, 8, 1, 1, 1, 1, NONE, 0}, 718954830144, 65142084403.200005, 1779412137984},
        {{"deepseek-v3", 8, 1, 8, 1, 16, 16, FULL, 0}, 205172192832, 64184451072, 234936684288},
        {{"deepseek-v3", 64, 1, 1, 1, 2, 1, FULL, 0}, 289827199296, 130284168806.40001, 492029245440},
        {{"qwen3-30b-a3b", 8, 8, 1, 1, 4, 4, NONE, 0}, 36714529152, 15708069888, 92969275392},
        {{"qwen3-30b-a3b", 16, 4, 1, 1, 2, 1, FULL, 0}, 25842893184, 31416139776, 60354367488},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        spw_job job = job_of(&rows[i].job);
        spw_peer_memory m;
        CHECK_OK(spw_peer_megatron(&job, rows[i].job.sequences, &m));
        CHECK(near(spw_peer_sum(&m) - m.bytes[SPW_PEER_ACTIVATIONS], rows[i].state));
        CHECK(near(m.bytes[SPW_PEER_ACTIVATIONS], rows[i].activations));
        job.optimizer = SPW_OPTIMIZER_REPLICATED;
        CHECK_OK(spw_peer_megatron(&job, rows[i].job.sequences, &m));
        CHECK(near(spw_peer_sum(&m) - m.bytes[SPW_PEER_ACTIVATIONS], rows[i].replicated));
    }
}

/* The same code on two grids: experts by R, t and EDP, the rest by TP, CP and DP; with sequence parallelism, which its
 * formula takes with selective recompute alone. */
static void test_megatron_grids(void) {
    static const struct {
        const char *model;
        size_t expert, expert_tensor, fsdp, tensor, context, pipeline, chunks, sequences, micro_batches;
        spw_remat remat;
        double state, activations;
    } rows[] = {
        {"mixtral-8x7b", 8, 1, 4, 2, 1, 1, 1, 2, 1, SPW_REMAT_SELECTIVE, 56157760512, 17788076032},
        {"mixtral-8x7b", 8, 2, 4, 2, 1, 1, 1, 2, 1, SPW_REMAT_NONE, 30489306624, 25184452608},
        {"deepseek-v3", 64, 1, 2, 2, 2, 1, 1, 4, 1, SPW_REMAT_NONE, 177512408832, 168079530393.60001},
        {"deepseek-v3", 32, 1, 1, 4, 2, 4, 1, 8, 8, SPW_REMAT_SELECTIVE, 102812321664, 12694093824},
        {"qwen3-30b-a3b", 16, 2, 1, 4, 1, 2, 2, 4, 4, SPW_REMAT_NONE, 9634930176, 8477822976},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const job_row plain = {rows[i].model,         rows[i].expert, rows[i].fsdp,
                               rows[i].pipeline,      rows[i].chunks, rows[i].sequences,
                               rows[i].micro_batches, rows[i].remat,  0};
        spw_job job = job_of(&plain);
        spw_peer_memory m;
        job.expert_tensor = rows[i].expert_tensor;
        job.tensor = rows[i].tensor;
        job.context = rows[i].context;
        CHECK_OK(spw_peer_megatron(&job, rows[i].sequences, &m));
        CHECK(near(spw_peer_sum(&m) - m.bytes[SPW_PEER_ACTIVATIONS], rows[i].state));
        CHECK(near(m.bytes[SPW_PEER_ACTIVATIONS], rows[i].activations));
    }
}

/* Parameters and bytes a parameter of the stage that needs most; with a pipeline that is the last, whose logits
 * count as often as there are stages. */
static void test_primus(void) {
    static const struct {
        job_row job;
        size_t stage;
        double parameters, each, activations;
    } rows[] = {
        {{"mixtral-8x7b", 8, 8, 1, 1, 1, 1, NONE, 0}, 0, 7243309056, 5.25, 34676408320},
        {{"mixtral-8x7b", 8, 8, 1, 1, 2, 1, FULL, 0}, 0, 7243309056, 5.25, 3854565376},
        {{"mixtral-8x7b", 8, 1, 8, 1, 16, 16, NONE, 0}, 7, 1003724800, 14, 40382758912},
        {{"mixtral-8x7b", 8, 2, 4, 1, 2, 2, FULL, 0}, 3, 1876369408, 9, 4353687552},
        {{"mixtral-8x7b", 8, 2, 4, 2, 8, 8, NONE, 0}, 3, 1876369408, 9, 51016368128},
        {{"deepseek-v3", 8, 8, 1, 1, 1, 1, NONE, 0}, 0, 98857986048, 5.25, 137009037312},
        {{"deepseek-v3", 8, 1, 8, 1, 16, 16, FULL, 0}, 7, 12422875136, 14, 29175578624},
        {{"deepseek-v3", 64, 1, 1, 1, 2, 1, FULL, 0}, 0, 27336714240, 14, 13753122816},
        {{"qwen3-30b-a3b", 8, 8, 1, 1, 4, 4, NONE, 0}, 0, 5165355008, 5.25, 21484273664},
        {{"qwen3-30b-a3b", 16, 4, 1, 1, 2, 1, FULL, 0}, 0, 3353415680, 6.5, 9145679872},
        {{"mixtral-8x7b", 8, 8, 1, 1, 1, 1, SPW_REMAT_SELECTIVE, 0}, 0, 7243309056, 5.25, 30918311936},
        {{"deepseek-v3", 8, 1, 8, 1, 16, 16, SPW_REMAT_SELECTIVE, 0}, 7, 12422875136, 14, 77561069568},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const spw_job job = job_of(&rows[i].job);
        spw_peer_memory m;
        CHECK_OK(spw_peer_primus(&job, rows[i].job.sequences, &m));
        CHECK(m.stage == rows[i].stage);
        CHECK(near(spw_peer_sum(&m) - m.bytes[SPW_PEER_ACTIVATIONS], rows[i].parameters * rows[i].each));
        CHECK(near(m.bytes[SPW_PEER_ACTIVATIONS], rows[i].activations));
    }
}

/* weights: dense and moe together; kept: of one micro-batch after its forward pass, of that stage. */
static void test_simumax(void) {
    static const struct {
        job_row job;
        size_t stage;
        double weights, optimizer, activations;
    } rows[] = {
        {{"mixtral-8x7b", 8, 8, 1, 1, 1, 1, NONE, 0},
         0,
         3211272192.0 + 11274289152,
         301056768.0 + 8455716864,
         34693185536},
        {{"mixtral-8x7b", 8, 8, 1, 1, 2, 1, FULL, 0},
         0,
         3211272192.0 + 11274289152,
         301056768.0 + 8455716864,
         5000658944},
        {{"mixtral-8x7b", 8, 1, 8, 1, 16, 16, NONE, 0},
         0,
         598016000.0 + 1409286144,
         448512000.0 + 8455716864,
         4632608768.0 + 7 * 4229955584.0},
        {{"mixtral-8x7b", 8, 2, 4, 1, 2, 2, FULL, 0},
         0,
         933888000.0 + 2818572288,
         350208000.0 + 8455716864,
         1695023104.0 + 3 * 268435456.0},
        {{"deepseek-v3", 8, 8, 1, 1, 1, 1, NONE, 0},
         0,
         34235267072.0 + 163477192704,
         3209556288.0 + 122607894528,
         146686345216},
        {{"deepseek-v3", 64, 1, 1, 1, 2, 1, FULL, 0},
         0,
         34235267072.0 + 20434649088,
         3209556288.0 + 122607894528,
         13753122816},
        {{"deepseek-v2-lite", 8, 1, 1, 1, 1, 1, NONE, 28}, 0, 6422790144, 24436998144, 20705181696},
        {{"kimi-k2", 64, 1, 1, 1, 1, 1, FULL, 0}, 0, 55153309696, 192451539264, 7725907968},
    };
    spw_job job;
    spw_peer_memory m;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        job = job_of(&rows[i].job);
        CHECK_OK(spw_peer_simumax(&job, rows[i].job.sequences, &m));
        CHECK(m.stage == rows[i].stage);
        CHECK(near(m.bytes[SPW_PEER_WEIGHTS], rows[i].weights));
        CHECK(near(m.bytes[SPW_PEER_GRADIENTS], 2.0 * rows[i].weights));
        CHECK(near(m.bytes[SPW_PEER_OPTIMIZER], rows[i].optimizer));
        CHECK(near(m.bytes[SPW_PEER_ACTIVATIONS], rows[i].activations));
        CHECK(near(m.reserved, 1.0 / 0.94));
    }
    static const job_row odd = {"deepseek-v3", 8, 1, 8, 1, 16, 16, FULL, 0};
    job = job_of(&odd); /* SimuMax itself: "num_layers should be divisible by pipeline_model_parallel_size" */
    CHECK_STATUS(spw_peer_simumax(&job, 16, &m), SPW_ECONFIG);
    job.remat = SPW_REMAT_MINIMAL;
    CHECK_STATUS(spw_peer_primus(&job, 16, &m), SPW_ECONFIG);
}

/* What its own code returned for the same grids (enable_sequence_parallel, zero_state 1): all of one stage, or the worst. */
static void test_simumax_grids(void) {
    static const struct {
        const char *model;
        size_t expert, expert_tensor, fsdp, tensor, pipeline, sequences, micro_batches;
        spw_remat remat;
        double weights, optimizer, activations;
    } rows[] = {
        {"mixtral-8x7b", 8, 1, 4, 2, 1, 1, 1, NONE, 1606950912.0 + 11274289152, 602606592.0 + 16911433728,
         17346592768},
        {"mixtral-8x7b", 8, 2, 2, 2, 1, 2, 1, NONE, 1606950912.0 + 5637144576, 602606592.0 + 16911433728,
         38988152832},
        {"mixtral-8x7b", 4, 2, 4, 1, 1, 1, 1, NONE, 3211272192.0 + 11274289152, 602113536.0 + 16911433728,
         38988152832},
        {"mixtral-8x7b", 8, 1, 4, 2, 1, 1, 1, FULL, 1606950912.0 + 11274289152, 602606592.0 + 16911433728,
         1250164736},
        {"mixtral-8x7b", 8, 1, 1, 4, 4, 8, 8, NONE, 234487808.0 + 2818572288, 703463424.0 + 16911433728,
         2215641088.0 + 3 * 2114977792.0},
        {"dots.llm1", 16, 1, 4, 4, 1, 1, 1, NONE, 3890847744.0 + 16886267904, 1459067904.0 + 25329401856,
         16120807424},
        {"dots.llm1", 8, 4, 1, 4, 2, 4, 4, FULL, 1920983040.0 + 4290772992, 1440737280.0 + 25744637952,
         1211105280},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const job_row plain = {rows[i].model,
                               rows[i].expert,
                               rows[i].fsdp,
                               rows[i].pipeline,
                               1,
                               rows[i].sequences,
                               rows[i].micro_batches,
                               rows[i].remat,
                               0};
        spw_job job = job_of(&plain);
        spw_peer_memory m;
        job.expert_tensor = rows[i].expert_tensor;
        job.tensor = rows[i].tensor;
        CHECK_OK(spw_peer_simumax(&job, rows[i].sequences, &m));
        CHECK(near(m.bytes[SPW_PEER_WEIGHTS], rows[i].weights));
        CHECK(near(m.bytes[SPW_PEER_GRADIENTS], 2.0 * rows[i].weights));
        CHECK(near(m.bytes[SPW_PEER_OPTIMIZER], rows[i].optimizer));
        CHECK(near(m.bytes[SPW_PEER_ACTIVATIONS], rows[i].activations));
        job.context = 2;
        CHECK_STATUS(spw_peer_simumax(&job, rows[i].sequences, &m), SPW_ECONFIG);
    }
    static const job_row latent = {"deepseek-v3", 8, 8, 1, 1, 1, 1, NONE, 0};
    spw_job job = job_of(&latent);
    spw_peer_memory m;
    job.tensor = 2; /* SimuMax itself: "MLA do not support Tensor Parallel" */
    CHECK_STATUS(spw_peer_simumax(&job, 1, &m), SPW_ECONFIG);
}

static void test_names(void) {
    const spw_peer *peer = NULL;
    for (const spw_peer *p = spw_peers; p->name != NULL; p++) {
        CHECK_OK(spw_peer_find(p->name, &peer));
        CHECK(peer == p && peer->predict != NULL);
        for (int i = 0; i < SPW_PEER_PARTS; i++) CHECK(peer->why[i] != NULL);
    }
    CHECK_STATUS(spw_peer_find("deepspeed", &peer), SPW_EARG);
    CHECK(strstr(spw_last_error(), "simumax, primus, megatron") != NULL);
}

int main(void) {
    test_megatron();
    test_megatron_grids();
    test_primus();
    test_simumax();
    test_simumax_grids();
    test_names();
    return check_done();
}
