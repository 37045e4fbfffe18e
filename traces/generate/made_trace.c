#include "traces/generate/made_trace.h"

#include "base/memory.h"
#include "traces/generate/count_normal.h"
#include "traces/generate/count_tree.h"
#include "traces/trace_internal.h"

#include <stdio.h>
#include <string.h>

static const size_t MOST_KEPT = (size_t)64 << 20; /* bytes */
enum { MOST_EXPERTS_OF_BYTE = 256, NOTE_BYTES = 512, LINE = 64, PURPOSE_COUNTS = 12 /* temper.c has 11 */ };

/* The choices of one step and layer. */
typedef struct drawn {
    size_t step, layer;
    void *expert_id; /* NULL: not drawn yet */
} drawn;

/* A tree, and what it was made of. Layers whose tokens choose alike share it. */
typedef struct shared_tree {
    size_t owners;
    double *inclusion, *group_inclusion; /* copies */
    spw_count_law law;
    spw_count_tree *tree;     /* NULL: none can be made */
    spw_count_normal *normal; /* of it; NULL: no tree */
} shared_tree;

struct spw_piece_law {
    size_t step, layer;
    spw_expert_blocks blocks;
    uint64_t seed;
    shared_tree *of; /* NULL: none */
};

struct spw_made_trace {
    spw_generate_settings settings;
    spw_generator *generator;
    drawn *kept; /* [keeps] */
    size_t keeps;
    drawn last;         /* of those that find no room there */
    spw_piece_law *law; /* [settings.layers] the last of each layer */
    char note[NOTE_BYTES];
    uint16_t *source_rank; /* columns of one step; NULL until they are asked for */
    int32_t *sequence, *position;
};

static void drop_tree(shared_tree *t) {
    if (t == NULL || --t->owners > 0) return;
    spw_count_normal_destroy(t->normal);
    spw_count_tree_destroy(t->tree);
    spw_free(t->inclusion);
    spw_free(t->group_inclusion);
    spw_free(t);
}

static void destroy(spw_made_trace *made) {
    if (made == NULL) return;
    for (size_t i = 0; i < made->keeps && made->kept != NULL; i++) spw_free(made->kept[i].expert_id);
    spw_free(made->kept);
    spw_free(made->last.expert_id);
    for (size_t i = 0; i < made->settings.layers && made->law != NULL; i++) drop_tree(made->law[i].of);
    spw_free(made->law);
    spw_free(made->source_rank);
    spw_free(made->sequence);
    spw_free(made->position);
    spw_generator_destroy(made->generator);
    spw_free(made);
}

static size_t length_of(const spw_generate_settings *s) {
    return s->sequence_length > 0 ? s->sequence_length : s->tokens_per_rank;
}

/* --- Life --- */

static spw_status make_layers(const spw_generate_settings *s, spw_trace *trace) {
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->layers, &trace->layer_id));
    SPW_TRY(SPW_ALLOC(s->layers, &trace->layer_experts));
    SPW_TRY(SPW_ALLOC(s->layers, &trace->layer_top_k));
    for (size_t i = 0; i < s->layers; i++) {
        trace->layer_id[i] = s->first_layer + (int32_t)i;
        trace->layer_experts[i] = (uint32_t)s->experts;
        trace->layer_top_k[i] = (uint32_t)s->top_k;
    }

cleanup:
    return status;
}

static spw_status make_steps(const spw_generate_settings *s, spw_trace *trace) {
    const uint64_t tokens = (uint64_t)s->ranks * s->tokens_per_rank;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->steps, &trace->step_id));
    SPW_TRY(SPW_ALLOC(s->steps, &trace->step_tokens));
    SPW_TRY(SPW_ALLOC(s->steps, &trace->step_phase)); /* 0: training */
    SPW_TRY(SPW_ALLOC(s->steps + 1, &trace->step_offset));
    for (size_t i = 0; i < s->steps; i++) {
        trace->step_id[i] = (int64_t)i;
        trace->step_tokens[i] = tokens;
        trace->step_offset[i + 1] = (i + 1) * tokens;
    }

cleanup:
    return status;
}

static void say(const spw_generate_settings *s, spw_trace *trace) {
    trace->info = (spw_trace_info){.steps = s->steps,
                                   .layers = s->layers,
                                   .experts = s->experts,
                                   .top_k = s->top_k,
                                   .ranks = s->ranks,
                                   .tokens = trace->step_offset[s->steps],
                                   .has_tokens = true,
                                   .has_sequences = true,
                                   .layer_id = trace->layer_id,
                                   .layer_experts = trace->layer_experts,
                                   .layer_top_k = trace->layer_top_k,
                                   .step_id = trace->step_id,
                                   .step_tokens = trace->step_tokens,
                                   .step_offset = trace->step_offset,
                                   .step_phase = trace->step_phase,
                                   .source = "spillway trace generate",
                                   .source_commit = "",
                                   .license = "CC0-1.0",
                                   .generator = "spillway",
                                   .created = "",
                                   .note = trace->made->note,
                                   .content = "tokens+counts", /* as a file of it says */
                                   .version = "1.0.0",
                                   .synthetic = true,
                                   .order = "unspecified",
                                   .weight_kind = "",
                                   .model_name = "synthetic",
                                   .router_score = "",
                                   .balance = "",
                                   .model_layers = (size_t)s->first_layer + s->layers,
                                   .model_hidden = s->hidden,
                                   .model_ffn = s->ffn,
                                   .groups = (size_t)s->distribution.groups,
                                   .groups_kept = (size_t)s->distribution.kept,
                                   .sequence_length = length_of(s),
                                   .gpus_per_node = 8,
                                   .id_bytes = s->experts <= MOST_EXPERTS_OF_BYTE ? 1 : 2,
                                   .missing = UINT16_MAX};
}

size_t spw_trace_made_tokens(const spw_trace *trace) {
    const spw_made_trace *made = trace->made;
    return made != NULL && length_of(&made->settings) == made->settings.tokens_per_rank
               ? made->settings.tokens_per_rank
               : 0;
}

/* --- Reading --- */

/* The columns of one step differ from those of another in the numbers of sequences alone. */
static spw_status read_columns(spw_trace *trace, size_t step, size_t steps, spw_trace_columns *out) {
    spw_made_trace *made = trace->made;
    const spw_generate_settings *s = &made->settings;
    const size_t tokens = s->ranks * s->tokens_per_rank, length = length_of(s),
                 per_rank = (s->tokens_per_rank + length - 1) / length;
    spw_status status = SPW_OK;
    if (steps != 1) return spw_fail(SPW_EARG, "%s: %zu steps at once; must be 1", trace->path, steps);
    if (made->source_rank == NULL) SPW_TRY(SPW_ALLOC(tokens, &made->source_rank));
    if (made->sequence == NULL) SPW_TRY(SPW_ALLOC(tokens, &made->sequence));
    if (made->position == NULL) SPW_TRY(SPW_ALLOC(tokens, &made->position));
    for (size_t i = 0; i < tokens; i++) {
        const size_t rank = i / s->tokens_per_rank, token = i % s->tokens_per_rank;
        made->source_rank[i] = (uint16_t)rank;
        made->sequence[i] = (int32_t)((step * s->ranks + rank) * per_rank + token / length);
        made->position[i] = (int32_t)(token % length);
    }
    *out = (spw_trace_columns){.first = trace->info.step_offset[step],
                               .tokens = tokens,
                               .source_rank = made->source_rank,
                               .sequence = made->sequence,
                               .position = made->position};

cleanup:
    return status;
}

/* Where the choices of a step and layer are, or are to go. */
static drawn *place_of(spw_made_trace *made, size_t step, size_t layer) {
    size_t i = 0;
    while (i < made->keeps && made->kept[i].expert_id != NULL &&
           (made->kept[i].step != step || made->kept[i].layer != layer))
        i++;
    return i < made->keeps ? &made->kept[i] : &made->last;
}

static spw_status draw(spw_trace *trace, size_t step, size_t layer, drawn *d) {
    spw_made_trace *made = trace->made;
    const size_t choices = made->settings.ranks * made->settings.tokens_per_rank * made->settings.top_k;
    spw_status status = SPW_OK;
    void *room = d->expert_id;
    if (room == NULL) SPW_TRY(spw_alloc(choices, trace->info.id_bytes, &room));
    *d = (drawn){step, layer, room};
    spw_generator_seek(made->generator, step);
    status = trace->info.id_bytes == 1 ? spw_generator_record_bytes(made->generator, layer, room)
                                       : spw_generator_record(made->generator, layer, room);
    if (status == SPW_OK) return status;
    spw_free(room);
    d->expert_id = NULL;

cleanup:
    return status;
}

static spw_status read_record(spw_trace *trace, size_t step, size_t steps, size_t layer, bool weights,
                              spw_trace_record *out) {
    const spw_trace_info *info = &trace->info;
    drawn *d = place_of(trace->made, step, layer);
    spw_status status = SPW_OK;
    (void)weights; /* it has none */
    if (steps != 1) return spw_fail(SPW_EARG, "%s: %zu steps at once; must be 1", trace->path, steps);
    if (d->expert_id == NULL || d->step != step || d->layer != layer) SPW_TRY(draw(trace, step, layer, d));
    *out = (spw_trace_record){.tokens = (size_t)info->step_tokens[step],
                              .top_k = info->top_k,
                              .experts = info->experts,
                              .id_bytes = info->id_bytes,
                              .missing = info->missing,
                              .expert_id = d->expert_id};

cleanup:
    return status;
}

/* --- Counts without tokens --- */

static bool asks_the_same(const spw_count_law *a, const spw_count_law *b) {
    return a->rank_experts == b->rank_experts && a->node_experts == b->node_experts &&
           memcmp(a->inclusion, b->inclusion, a->experts * sizeof *a->inclusion) == 0 &&
           (a->groups == 0 ||
            memcmp(a->group_inclusion, b->group_inclusion, a->groups * sizeof *a->group_inclusion) == 0);
}

static spw_status make_tree(const spw_count_law *law, shared_tree **out) {
    shared_tree *t = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &t));
    *t = (shared_tree){.owners = 1, .law = *law};
    SPW_TRY(SPW_ALLOC(law->experts, &t->inclusion));
    memcpy(t->inclusion, law->inclusion, law->experts * sizeof *t->inclusion);
    t->law.inclusion = t->inclusion;
    if (law->groups > 0) {
        SPW_TRY(SPW_ALLOC(law->groups, &t->group_inclusion));
        memcpy(t->group_inclusion, law->group_inclusion, law->groups * sizeof *t->group_inclusion);
        t->law.group_inclusion = t->group_inclusion;
    }
    SPW_TRY(spw_count_tree_create(&t->law, &t->tree));
    if (t->tree != NULL) SPW_TRY(spw_count_normal_create(t->tree, &t->normal));
    *out = t;
    t = NULL;

cleanup:
    drop_tree(t);
    return status;
}

static spw_status make_law(spw_made_trace *made, size_t step, size_t layer, spw_expert_blocks blocks) {
    spw_piece_law *own = &made->law[layer];
    spw_count_law law;
    spw_generator *generator = made->generator;
    shared_tree *before = own->of, *there = NULL;
    spw_status status = SPW_OK;
    spw_generator_seek(generator, step);
    *own = (spw_piece_law){.step = step, .layer = layer, .blocks = blocks, .seed = made->settings.seed};
    if (spw_generator_count_law(generator, layer, blocks.rank, blocks.node, &law)) {
        if (before != NULL && asks_the_same(&before->law, &law)) there = before;
        for (size_t i = 0; i < made->settings.layers && there == NULL; i++) {
            shared_tree *other = made->law[i].of;
            if (other != NULL && asks_the_same(&other->law, &law)) there = other;
        }
        if (there != NULL)
            there->owners++;
        else
            status = make_tree(&law, &there);
    }
    drop_tree(before);
    own->of = there;
    return status;
}

static const spw_count_tree *tree_of(const spw_piece_law *law) {
    return law->of != NULL ? law->of->tree : NULL;
}

spw_status spw_trace_read_law(spw_trace *trace, size_t step, size_t layer, spw_expert_blocks blocks,
                              spw_trace_record *out) {
    spw_made_trace *made = trace->made;
    *out = (spw_trace_record){.tokens = 0};
    if (made == NULL) return SPW_OK;
    spw_piece_law *law = &made->law[layer];
    if (tree_of(law) == NULL || law->step != step || law->blocks.rank != blocks.rank ||
        law->blocks.node != blocks.node) {
        const spw_status status = make_law(made, step, layer, blocks);
        if (status != SPW_OK) return status;
    }
    *out = (spw_trace_record){.tokens = (size_t)trace->info.step_tokens[step],
                              .top_k = trace->info.top_k,
                              .experts = trace->info.experts,
                              .id_bytes = trace->info.id_bytes,
                              .missing = trace->info.missing,
                              .law = tree_of(law) != NULL ? law : NULL};
    return SPW_OK;
}

spw_status spw_trace_read_tree(spw_trace *trace, size_t step, size_t layer, const spw_count_tree **out) {
    spw_made_trace *made = trace->made;
    spw_status status = SPW_OK;
    *out = NULL;
    if (made == NULL) return SPW_OK;
    const size_t experts = made->settings.experts;
    if (tree_of(&made->law[layer]) == NULL || made->law[layer].step != step)
        status = make_law(made, step, layer, (spw_expert_blocks){experts, experts});
    *out = tree_of(&made->law[layer]);
    return status;
}

static size_t exact_bytes(const spw_piece_law *law) {
    return (spw_count_sample_bytes(law->of->tree) + LINE - 1) / LINE * LINE;
}

size_t spw_piece_law_bytes(const spw_piece_law *law) {
    return exact_bytes(law) + spw_count_normal_bytes(law->of->normal);
}

void spw_piece_law_begin(const spw_piece_law *law, void *scratch) {
    spw_count_normal_begin((char *)scratch + exact_bytes(law));
}

void spw_piece_law_draw(const spw_piece_law *law, void *scratch, const uint64_t *first, size_t pieces,
                        size_t tokens, const spw_token_counts *out) {
    spw_random_stream stream[SPW_PIECES_AT_ONCE];
    for (size_t i = 0; i < pieces; i++)
        spw_random_stream_init(&stream[i], law->seed, PURPOSE_COUNTS, law->step, law->layer, first[i]);
    if (spw_count_normal_serves(law->of->normal, tokens)) {
        spw_count_normal_sample(law->of->normal, stream, pieces, (char *)scratch + exact_bytes(law), tokens,
                                out);
        return;
    }
    for (size_t i = 0; i < pieces; i++) spw_count_sample(law->of->tree, &stream[i], scratch, tokens, &out[i]);
}

/* --- As a trace --- */

static void close_made(spw_trace *trace) {
    spw_trace_source rest = {.close = NULL};
    destroy(trace->made);
    trace->source = &rest;
    spw_trace_close(trace);
}

static const spw_trace_source generated = {
    .close = close_made, .read_columns = read_columns, .read_record = read_record};

spw_status spw_trace_make(const spw_generate_settings *settings, spw_trace **out) {
    const size_t per_rank = (settings->tokens_per_rank + length_of(settings) - 1) / length_of(settings);
    spw_trace *trace = NULL;
    size_t bytes = 0;
    spw_status status = SPW_OK;
    *out = NULL;
    if ((double)settings->steps * (double)settings->ranks * (double)per_rank > (double)INT32_MAX)
        return spw_fail(SPW_EARG, "more than %d sequences", INT32_MAX);
    if (!spw_mul_size(settings->ranks, settings->tokens_per_rank, &bytes) ||
        !spw_mul_size(bytes, settings->top_k, &bytes) || !spw_mul_size(bytes, 2, &bytes))
        return spw_fail(SPW_EARG, "%zu ranks x %zu tokens overflow", settings->ranks,
                        settings->tokens_per_rank);
    SPW_TRY(spw_trace_create_blank("generated routing", &trace));
    SPW_TRY(SPW_ALLOC(1, &trace->made));
    trace->source = &generated;
    spw_made_trace *made = trace->made;
    made->settings = *settings;
    made->settings.distribution_text = made->settings.generator = NULL;
    SPW_TRY(SPW_ALLOC(settings->layers, &made->law));
    SPW_TRY(spw_generator_create(&made->settings, &made->generator));
    (void)snprintf(made->note, sizeof made->note, "synthetic: distribution %s, seed %llu",
                   settings->distribution_text != NULL ? settings->distribution_text : "?",
                   (unsigned long long)settings->seed);
    SPW_TRY(make_layers(settings, trace));
    SPW_TRY(make_steps(settings, trace));
    say(settings, trace);
    if (trace->info.id_bytes == 1) bytes /= 2;
    made->keeps = bytes > 0 ? MOST_KEPT / bytes : 0;
    if (made->keeps > settings->steps * settings->layers) made->keeps = settings->steps * settings->layers;
    if (made->keeps > 0) SPW_TRY(SPW_ALLOC(made->keeps, &made->kept));
    *out = trace;
    trace = NULL;

cleanup:
    spw_trace_close(trace);
    return status;
}
