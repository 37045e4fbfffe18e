#include "sim/memory/kept/megatron_kept.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/trainer.h"
#include "sim/machine/stack_defaults.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/model/attention.h"
#include "sim/weights/block.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

enum {
    FP32 = 4,
    INDEX = 8,
    LAYER_NORMS = 2, /* of the input, and before the FFN */
    WORKSPACES = 2,  /* of the thread of the forward pass, and of autograd's */
    ANGLES = 4,      /* cosine and sine, of queries and of keys, kept by each layer where PyTorch rotates */
    PREDICTION =
        4, /* of T H b, of a layer of multi-token prediction: its embedding, the two normed halves that are projected
                        (2), and the states of all predictions joined for the head; */
    PREDICTION_AGAIN = 2, /* where it runs again, without the halves */
    TE_STREAMS = 4,       /* TransformerEngine's grouped products: csrc/util get_num_cublas_streams */
};

bool spw_megatron_has_te(const spw_job *job, const spw_scheme *scheme) {
    const spw_gpu_generation g = job->cluster.gpu_generation;
    return job->attention == SPW_ATTENTION_FLASH && spw_scheme_trainer(scheme)->takes_splits &&
           (g == SPW_GPU_HOPPER || g == SPW_GPU_BLACKWELL);
}

double spw_megatron_norms_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const double tokens = (double)s->tokens, query = (double)(m->heads * m->head_dim);
    const spw_attention_widths w = spw_attention_widths_of(m);
    const bool te = spw_megatron_has_te(job, scheme);
    double bytes = LAYER_NORMS * FP32 * tokens;
    if (!spw_scheme_around(scheme, job)->keeps_modules) return 0.0;
    if (te && job->megatron.rope == SPW_FUSION_OFF) {
        const size_t positions = job->sequence_length / spw_grid_of(job).context;
        bytes += (double)(ANGLES * positions * w.rotary_dim * s->element_bytes);
    }
    if (w.latents > 0) return bytes + (double)w.latents * FP32 * tokens;
    /* Queries are copied out of the fused projection. PyTorch reads keys where they are; TransformerEngine's norm copies them. */
    const double keys = te ? (double)(m->kv_heads * m->head_dim) : 0.0;
    if (m->qk_norm)
        bytes += tokens * ((query + keys) * (double)s->element_bytes +
                           FP32 * (double)(m->qk_norm_per_head ? m->heads + m->kv_heads : 2));
    return bytes;
}

double spw_megatron_left_by_layer(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    if (!spw_scheme_trainer(scheme)->keeps_modules || spw_remat_keeps_experts(job->remat)) return 0.0;
    return 2.0 * (double)s->tokens * (double)job->model.hidden * (double)s->element_bytes;
}

/* Bytes of one workspace: what PyTorch takes unless CUBLAS_WORKSPACE_CONFIG or HIPBLAS_WORKSPACE_CONFIG says otherwise. */
static double workspace(spw_gpu_generation generation) {
    static const spw_coefficient *const of[SPW_GPU_NONE + 1] = {
        [SPW_GPU_HOPPER] = &spw_default_workspace_hopper_bytes,
        [SPW_GPU_BLACKWELL] = &spw_default_workspace_blackwell_bytes,
        [SPW_GPU_CDNA3] = &spw_default_workspace_cdna3_bytes,
        [SPW_GPU_CDNA4] = &spw_default_workspace_cdna4_bytes};
    return of[generation] != NULL ? of[generation]->value : 0.0;
}

static void put_workspaces(spw_footprint *f, const char *name, const char *source, int count, double each) {
    if (!(each > 0.0) || count == 0) return;
    spw_component *c =
        SPW_COMPONENT(f, name, source, "= count {each}", TERM("count", count), TERM("each", each));
    c->argument = true;
    LIVE(c, ALWAYS);
}

void spw_pytorch_workspaces_add(spw_footprint *f, const spw_job *job) {
    put_workspaces(f, "cublas_workspaces", "PyTorch's, one a thread (7.19)", WORKSPACES,
                   workspace(job->cluster.gpu_generation));
}

/* TransformerEngine multiplies all but the head, which is PyTorch's product. */
static void add_workspaces(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                           const spw_stage *stage) {
    const bool te = spw_megatron_has_te(job, scheme);
    const bool grouped = stage->moe_layers + stage->predictions > 0;
    if (te)
        put_workspaces(f, "te_workspaces",
                       "TransformerEngine's, one and one a stream of grouped products (7.19)",
                       grouped ? 1 + TE_STREAMS : 1, spw_default_te_workspace_bytes.value);
    if (!te || stage->head) spw_pytorch_workspaces_add(f, job);
}

/* The head is Megatron-Core's own layer: where its product adds to main_grad (Apex), it asks TransformerEngine for such a tensor too. */
static bool fuses_head(const spw_job *job, const spw_stage *stage) {
    return stage->head && job->megatron.weight_gradients != SPW_FUSION_LAYERS &&
           job->finetune.frozen != SPW_FROZEN_BASE;
}

/* Products that add to main_grad themselves hand autograd a tensor of the weight's shape that nobody fills: one a shape, kept. */
static void add_unfilled_gradients(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                                   const spw_stage *stage, size_t element_bytes) {
    const spw_pipeline p = spw_pipeline_of(job);
    const size_t router = job->model.experts - job->model.replicas + job->model.zero_experts;
    uint64_t seen[2 * SPW_MUON_KINDS][2], elements = 0;
    size_t shapes = 0;
    if (!spw_megatron_has_te(job, scheme) || job->megatron.weight_gradients == SPW_FUSION_OFF) return;
    for (size_t c = 0; c < p.chunks; c++) {
        const spw_block block = spw_pipeline_block(&p, &job->model, stage->index, c);
        spw_muon_list list[2];
        spw_muon_block_matrices(job, &block, list);
        for (size_t k = 0; k < list[0].kinds + list[1].kinds; k++) {
            const spw_muon_matrices *m =
                k < list[0].kinds ? &list[0].kind[k] : &list[1].kind[k - list[0].kinds];
            bool known = m->columns == job->model.hidden && (m->rows == router || m->rows == 1);
            for (size_t i = 0; i < shapes; i++)
                known = known || (seen[i][0] == m->rows && seen[i][1] == m->columns);
            if (known || shapes == sizeof seen / sizeof *seen) continue;
            seen[shapes][0] = m->rows, seen[shapes++][1] = m->columns;
            elements += m->rows * m->columns;
        }
    }
    if (fuses_head(job, stage)) {
        elements += job->model.vocab / spw_grid_of(job).tensor * job->model.hidden;
        shapes++;
    }
    if (elements == 0 || element_bytes == 0) return;
    spw_component *c = SPW_COMPONENT(f, "unfilled_gradients",
                                     "TransformerEngine's get_dummy_wgrad, one a shape of weights (7.19)",
                                     "{shapes} shapes: = elements b", TERM("shapes", shapes),
                                     TERM("elements", elements), TERM("b", element_bytes));
    c->argument = true;
    LIVE(c, ALWAYS);
}

/* What the schedule holds of a stage's neighbours, beside the micro-batches in flight: the gradient that came and the output that
 * goes; of the micro-batch that ran backward before, the gradient that went, and until the next forward pass has ended the input.
 * Interleaved, what the next two passes need is received while one runs (overlap_p2p_comm). */
static void add_exchanged(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                          const spw_stage *stage, const spw_layer_shape *s) {
    const char *source = "between stages: megatron/core/pipeline_parallel/schedules.py (7.19)";
    const spw_pipeline p = spw_pipeline_of(job);
    const spw_term bytes =
        TERM(job->model.streams > 1 ? "T n H b" : "T H b",
             (double)s->tokens * (double)spw_model_carried(&job->model) * (double)s->element_bytes);
    const bool several = p.chunks > 1;
    if (stage->stages == 1 || !spw_scheme_trainer(scheme)->keeps_modules) return;
    if (several) LIVE(SPW_COMPONENT(f, "stage_received_ahead", source, "2 $1", bytes), ALWAYS);
    if (!stage->head || several) {
        LIVE(SPW_COMPONENT(f, "stage_output_gradient", source, "$1", bytes), ALWAYS);
        LIVE(SPW_COMPONENT(f, "stage_output", source, "$1", bytes), AT_LOSS);
    }
    if ((stage->index > 0 || several) && p.micro_batches > 1) {
        LIVE(SPW_COMPONENT(f, "stage_input_gradient", source, "$1", bytes), ALWAYS);
        LIVE(SPW_COMPONENT(f, "stage_input_before", source, "$1", bytes), AT_LOSS);
    }
}
/* Dispatchers hold probs, routing_map and permutation by name; where layers keep their rows these are the same tensors. */
static void add_dispatchers(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                            const spw_stage *stage, const spw_layer_shape *s) {
    const size_t layers = stage->moe_layers + stage->predictions;
    const spw_term T = TERM("T", s->tokens), E = TERM("E", s->experts), K = TERM("K", s->top_k);
    if (layers == 0 || !spw_scheme_trainer(scheme)->keeps_modules || spw_remat_keeps_experts(job->remat))
        return;
    LIVE(SPW_COMPONENT(f, "dispatchers", "what dispatchers keep until their next pass (7.19)",
                       "'(L - 1)' T (5 E + 8 K)", TERM("(L - 1)", layers - 1), T, E, K),
         ALWAYS);
    LIVE(SPW_COMPONENT(f, "last_dispatcher", "the same of the layer that is not at work (7.19)",
                       "T (5 E + 8 K)", T, E, K),
         {[SPW_MOMENT_DENSE_LAYER] = true, [SPW_MOMENT_LOSS] = true, [SPW_MOMENT_ATTENTION] = true});
}

void spw_megatron_kept_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                           const spw_stage *stage, const spw_layer_shape *s) {
    const spw_term T = TERM("T", s->tokens), H = TERM("H", job->model.hidden),
                   b = TERM("b", s->element_bytes);
    if (!spw_scheme_around(scheme, job)->keeps_modules) return;
    add_workspaces(f, job, scheme, stage);
    add_unfilled_gradients(f, job, scheme, stage, s->element_bytes);
    add_exchanged(f, job, scheme, stage, s);
    add_dispatchers(f, job, scheme, stage, s);
    if (!stage->head) return;
    const size_t norms = 1 + stage->predictions;
    /* the state's half is normed and projected stream by stream; what contracts the streams in front of the last norm reads them */
    const size_t n = job->model.streams > 1 ? job->model.streams : 0;
    const size_t each =
        spw_remat_keeps_layers(job->remat) ? PREDICTION + (n > 0 ? n - 1 : 0) : PREDICTION_AGAIN;
    if (stage->predictions > 0)
        LIVE(SPW_COMPONENT(
                 f, "predictions",
                 "embedding, input of the projection, states joined: multi_token_prediction.py (7.19)",
                 "{predictions} {each} T H b", TERM("predictions", stage->predictions), TERM("each", each), T,
                 H, b),
             AT_LOSS);
    LIVE(SPW_COMPONENT(f, "final_norm", "what the last norm reads and gives, for it and for the head (7.19)",
                       "{norms} T ({states} H b + 4)", TERM("norms", norms), TERM("states", 2 + n), T, H, b),
         AT_LOSS);
}
