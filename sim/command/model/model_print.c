#include "sim/command/model/model_print.h"

#include "base/saturate.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/model/attention.h"
#include "sim/model/token_work.h"
#include "sim/print/json_values.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { PARTS = 10 + SPW_MODEL_MIXERS };

/* One row of the table: so many layers (0: once a model) of so many parameters, of which a token meets `active`. */
typedef struct part {
    const char *name;
    size_t layers;
    uint64_t each, active;
} part;

static const struct {
    const char *key;
    size_t bytes;
} formats[] = {{"fp32", 4}, {"bf16", 2}, {"fp8", 1}};
enum { FORMATS = sizeof formats / sizeof *formats };

static void put_part(part *out, size_t *parts, part one, bool always) {
    if (one.each > 0 && (one.layers > 0 || always)) out[(*parts)++] = one;
}

static size_t list_parts(const spw_model *m, const spw_parameters *p, part out[PARTS]) {
    const uint64_t chosen = p->expert * (m->top_k * m->experts) / (m->experts + m->zero_experts);
    size_t parts = 0;
    put_part(out, &parts, (part){"embedding", 0, p->embedding, p->embedding}, true);
    put_part(out, &parts, (part){"tables beside it", 0, p->tables, 0}, p->tables > 0);
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const size_t layers = k == 0 ? m->layers - m->other_layers : m->mixer[k].layers;
        const char *const name = k > 0 || spw_attention_is_listed(m) ? m->mixer[k].what : "attention";
        put_part(out, &parts, (part){name, layers, p->mixer_per_layer[k], p->mixer_per_layer[k]}, false);
    }
    const part rest[] = {
        {"routed experts", m->moe_layers, spw_model_routed(m) / m->moe_layers, chosen},
        {"shared experts", m->moe_layers, p->shared_per_layer, p->shared_per_layer},
        {m->latent > 0 ? "router, latent projections" : "router", m->moe_layers, p->router_per_layer,
         p->router_per_layer},
        {"dense FFN", spw_model_dense_layers(m), p->dense_ffn_per_layer, p->dense_ffn_per_layer},
        {"norms", m->layers, p->norms_per_layer, p->norms_per_layer},
        {"final norm", 0, p->final_norm, p->final_norm},
        {"head", 0, p->head, p->head},
    };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) put_part(out, &parts, rest[i], i >= 5);
    return parts;
}

/* --- For a person --- */

static void print_layers(const spw_model *m) {
    printf("layers      %zu of hidden size %zu: %zu with experts", m->layers, m->hidden, m->moe_layers);
    if (spw_model_dense_layers(m) > 0)
        printf(", %zu dense of width %zu", spw_model_dense_layers(m), m->dense_ffn);
    if (m->bare_layers > 0) printf(", %zu without an FFN", m->bare_layers);
    printf("\nexperts     %zu of width %zu, %zu a token", m->experts, m->expert_ffn, m->top_k);
    if (m->lacking_experts + m->lacking_choices > 0) printf(" at most, by layer");
    if (m->plain_experts) printf(", two matrices each");
    if (m->latent > 0) printf(", rows of %zu", m->latent);
    if (m->hash_layers > 0) printf(" (by the token's id in %zu layers)", m->hash_layers);
    if (m->zero_experts > 0) printf(" (%zu more choices compute nothing)", m->zero_experts);
    if (m->shared_ffn > 0) printf("; %zu wide beside them", m->shared_ffn);
    printf("\nattention   ");
    if (m->other_layers > 0)
        printf("%zu layer%s: ", m->layers - m->other_layers, m->layers - m->other_layers == 1 ? "" : "s");
    if (spw_attention_is_latent(m))
        printf("latent, %zu heads, rank %zu of keys and values, %zu of queries", m->heads,
               spw_attention_size_of(m, "@key_rank"), spw_attention_size_of(m, "@query_rank"));
    else
        printf("%zu heads of %zu, %zu of keys and values", m->heads, m->head_dim, m->kv_heads);
    if (m->indexer_heads > 0) printf(", with a sparse indexer");
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        if (m->mixer[k].layers == 0) continue;
        printf("; %zu layer%s: %s", m->mixer[k].layers, m->mixer[k].layers == 1 ? "" : "s", m->mixer[k].what);
        if (m->mixer[k].state > 0)
            printf(", %.3g M elements of state a sequence and layer", (double)m->mixer[k].state / 1e6);
    }
    printf("\n");
}

static void print_check(const spw_model_check *check, double total) {
    const double off = total / check->published - 1.0;
    if (check->published <= 0.0) return;
    printf("check       %.4g B of %.4g B: %.2f %% %s, %s 1 %%\n", total / 1e9, check->published / 1e9,
           100.0 * fabs(off), off < 0.0 ? "less" : "more", check->agrees ? "within" : "more than");
}

static void print_heading(const spw_model *m, const spw_parameters *p, size_t length,
                          const spw_model_check *check) {
    const spw_token_work work = spw_token_work_of(m, length);
    const double forward = work.weights + work.scores;
    printf("model       %s: %s\n", m->name, m->source);
    printf("parameters  %.4g B in all, %.4g B of them at work on a token\n", (double)p->total / 1e9,
           (double)p->active / 1e9);
    print_layers(m);
    printf("weights     ");
    for (size_t i = 0; i < FORMATS; i++)
        printf("%s%.1f GiB in %s", i > 0 ? ", " : "", (double)(p->total * formats[i].bytes) / GIB,
               formats[i].key);
    if (m->stored_bits > 0)
        printf("\nstored      routed experts in FP%zu with their scales, %.1f GiB", m->stored_bits,
               (double)spw_model_stored_experts(m) / GIB);
    printf("\nwork        %.4g GFLOP a token forward (%.4g of them scores of attention over %zu tokens), "
           "%.4g to train\n",
           forward / 1e9, work.scores / 1e9, length, work.training / 1e9);
    print_check(check, (double)p->total);
    spw_print_model_doubts(m, "not here    ", stdout);
    printf("\n");
}

static spw_status fill_table(const spw_model *m, const spw_parameters *p, spw_table *table) {
    part parts[PARTS];
    const size_t count = list_parts(m, p, parts);
    for (size_t i = 0; i < count; i++) {
        const uint64_t times = parts[i].layers > 0 ? parts[i].layers : 1;
        spw_table_text(spw_table_in(table, "part", "part"), parts[i].name);
        spw_table_count_of(spw_table_in(table, "layers", "layers"), parts[i].layers > 0, parts[i].layers, 1.0,
                           "%.0f");
        spw_table_scaled(spw_table_in(table, "parameters_each", "M a layer"), (double)parts[i].each, 1e6,
                         "%.3f");
        spw_table_scaled(spw_table_in(table, "parameters", "B in all"), (double)(times * parts[i].each), 1e9,
                         "%.3f");
        spw_table_scaled(spw_table_in(table, "active", "B at work"), (double)(times * parts[i].active), 1e9,
                         "%.3f");
    }
    return SPW_OK;
}

/* --- JSON --- */

static json_t *json_parts(spw_json *json, const spw_model *m, const spw_parameters *p) {
    part parts[PARTS];
    const size_t count = list_parts(m, p, parts);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        const uint64_t times = parts[i].layers > 0 ? parts[i].layers : 1;
        json_t *object = json_object();
        spw_json_put(json, object, "part", spw_json_text(parts[i].name));
        spw_json_put(json, object, "layers", spw_json_count(parts[i].layers));
        spw_json_put(json, object, "parameters_each", spw_json_count(parts[i].each));
        spw_json_put(json, object, "parameters", spw_json_count(times * parts[i].each));
        spw_json_put(json, object, "active", spw_json_count(times * parts[i].active));
        spw_json_add(json, array, object);
    }
    return array;
}

static json_t *json_layers(spw_json *json, const spw_model *m) {
    json_t *object = json_object();
    spw_json_put(json, object, "all", spw_json_count(m->layers));
    spw_json_put(json, object, "with_experts", spw_json_count(m->moe_layers));
    spw_json_put(json, object, "dense", spw_json_count(spw_model_dense_layers(m)));
    spw_json_put(json, object, "without_ffn", spw_json_count(m->bare_layers));
    spw_json_put(json, object, "attention", spw_json_count(m->layers - m->other_layers));
    json_t *kinds = json_array();
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        json_t *kind = json_object();
        if (m->mixer[k].layers == 0) {
            json_decref(kind);
            continue;
        }
        spw_json_put(json, kind, "what", spw_json_text(m->mixer[k].what));
        spw_json_put(json, kind, "layers", spw_json_count(m->mixer[k].layers));
        spw_json_put(json, kind, "state", spw_json_count(m->mixer[k].state));
        spw_json_add(json, kinds, kind);
    }
    const spw_mixer *other = spw_model_other(m);
    spw_json_put(json, object, "other_mixer", spw_json_count(m->other_layers));
    spw_json_put(json, object, "other_mixer_is", spw_json_text(m->other_layers > 0 ? other->what : NULL));
    spw_json_put(json, object, "other_mixer_state", spw_json_count(other->state));
    spw_json_put(json, object, "other_kinds", kinds);
    return object;
}

static spw_status print_json(const spw_model *m, const spw_parameters *p, size_t length,
                             const spw_model_check *check) {
    spw_json json = {.failed = false};
    const spw_token_work work = spw_token_work_of(m, length);
    json_t *object = json_object(), *weights = json_object(), *flops = json_object(), *doubts = json_array();
    spw_json_put(&json, object, "model", spw_json_text(m->name));
    spw_json_put(&json, object, "source", spw_json_text(m->source));
    spw_json_put(&json, object, "parameters_total", spw_json_count(p->total));
    spw_json_put(&json, object, "parameters_active", spw_json_count(p->active));
    spw_json_put(&json, object, "parts", json_parts(&json, m, p));
    spw_json_put(&json, object, "layers", json_layers(&json, m));
    for (size_t i = 0; i < FORMATS; i++)
        spw_json_put(&json, weights, formats[i].key, spw_json_count(p->total * formats[i].bytes));
    spw_json_put(&json, object, "weight_bytes", weights);
    spw_json_put(&json, object, "stored_experts_bits", spw_json_count(m->stored_bits));
    spw_json_put(&json, object, "stored_experts_bytes", spw_json_count(spw_model_stored_experts(m)));
    spw_json_put(&json, flops, "sequence_length", spw_json_count(length));
    spw_json_put(&json, flops, "forward", spw_json_real(work.weights + work.scores));
    spw_json_put(&json, flops, "forward_scores", spw_json_real(work.scores));
    spw_json_put(&json, flops, "training", spw_json_real(work.training));
    spw_json_put(&json, object, "flops_per_token", flops);
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (m->doubt[i][0] != '\0') spw_json_add(&json, doubts, spw_json_text(m->doubt[i]));
    spw_json_put(&json, object, "not_modelled", doubts);
    if (check->published > 0.0) {
        spw_json_put(&json, object, "published", spw_json_real(check->published));
        spw_json_put(&json, object, "agrees", json_boolean(check->agrees));
    }
    return spw_json_print(&json, object, JSON_INDENT(2), "the model", spw_command_out());
}

spw_status spw_model_print(const spw_model *m, size_t length, const spw_model_check *check,
                           spw_format format) {
    const spw_parameters p = spw_model_parameters(m);
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    if (format == SPW_FORMAT_JSON) return print_json(m, &p, length, check);
    SPW_TRY(spw_table_create(NULL, &table));
    SPW_TRY(fill_table(m, &p, table));
    if (format == SPW_FORMAT_TABLE) print_heading(m, &p, length, check);
    SPW_TRY(spw_table_print(table, format, spw_command_out()));

cleanup:
    spw_table_destroy(table);
    return status;
}
