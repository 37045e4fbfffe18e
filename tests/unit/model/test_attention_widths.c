/* What an attention says of its widths, its heads and the matrices around them must agree, in every configuration of tests/models and of its classes.jsonl:
 * queries and keys come out of the matrices that make them, what the heads give goes into the output, and of a head the rotated part
 * is as wide as its kind says. argv[1]: tests/models. */
#include "sim/model/attention.h"
#include "sim/model/model.h"

#include "tests/unit/check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 512, CLASS = 1 << 16, LEAST_MODELS = 150, LEAST_MIXERS = 20 };

static size_t mixers;

static spw_status read_model(const char *folder, const char *name, spw_model *out) {
    char path[2 * LINE + 8];
    (void)snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return spw_model_read(name, NULL, out);
    (void)fclose(file);
    return spw_model_read(path, NULL, out);
}

/* The model's attention: heads of queries read it all; of a latent one a single rotary key serves all heads. */
static void check_own(const spw_model *m) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    spw_matrices list;
    uint64_t queries = 0, result = 0, latent = 0;
    if (spw_attention_is_listed(m)) return;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (row->makes == SPW_MAKES_QUERIES) queries += row->out;
        if (!row->vector && row->reads == SPW_READS_RESULT) result += row->in;
        if (row->norm && row->reads == SPW_READS_LATENT) latent += row->out;
    }
    CHECK(queries == w.query && w.query == m->heads * w.key_dim);
    CHECK(result == w.context && w.context == m->heads * w.value_dim);
    if (!spw_attention_is_latent(m)) return;
    CHECK(latent == w.latent);
    CHECK(w.rotary_dim == m->rope_dim && w.apart == m->rope_dim);
    CHECK(w.rotated == m->heads * m->rope_dim + m->rope_dim);
}

static bool is_one_of(const char *name, const char *const *names) {
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Other layers that attend, where a list has one output and one matrix of queries. */
static void check_mixer(const spw_model *m, size_t k) {
    static const char *const outputs[] = {"output", "o", NULL}, *const inputs[] = {"queries", "queries, up",
                                                                                   "q", NULL};
    const spw_mixer *mixer = &m->mixer[k];
    spw_matrices list;
    const spw_matrix *output = NULL, *queries = NULL;
    if (mixer->layers == 0 || mixer->heads == 0) return;
    spw_matrices_of_mixer(m, k, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (is_one_of(row->name, outputs) && !row->vector) output = row;
        if (is_one_of(row->name, inputs)) queries = row;
    }
    if (output != NULL && output->count <= 1) CHECK(output->in == mixer->heads * mixer->value);
    if (queries != NULL && queries->count <= 1) CHECK(queries->out == mixer->heads * mixer->key);
    mixers += output != NULL && queries != NULL;
}

static void check_model(const spw_model *m) {
    check_own(m);
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) check_mixer(m, k);
}

static size_t check_classes(const char *folder) {
    char path[LINE];
    static char text[CLASS];
    static spw_model m;
    size_t models = 0;
    (void)snprintf(path, sizeof path, "%s/classes.jsonl", folder);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    while (file != NULL && fgets(text, sizeof text, file) != NULL) {
        const int before = check_failures;
        json_t *line = json_loads(text, 0, NULL);
        char *config = json_dumps(json_object_get(line, "config"), 0);
        CHECK(config != NULL);
        if (config != NULL) CHECK_OK(spw_model_parse("class", config, strlen(config), &m));
        if (config != NULL) check_model(&m);
        if (check_failures > before) fprintf(stderr, "  %.40s\n", text);
        free(config);
        json_decref(line);
        models++;
    }
    if (file != NULL) (void)fclose(file);
    return models;
}

static size_t check_table(const char *folder, const char *table) {
    char path[LINE], line[LINE];
    static spw_model m;
    size_t models = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, table);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const int before = check_failures;
        if (line[0] == '#' || strncmp(line, "name,", 5) == 0) continue;
        line[strcspn(line, ",\n")] = '\0';
        CHECK_OK(read_model(folder, line, &m));
        check_model(&m);
        if (check_failures > before) fprintf(stderr, "  %s\n", line);
        models++;
    }
    if (file != NULL) (void)fclose(file);
    return models;
}

int main(int count, char **argument) {
    if (count != 2) return 2;
    const size_t models = check_classes(argument[1]) + check_table(argument[1], "counts.csv") +
                          check_table(argument[1], "published.csv");
    CHECK(models >= LEAST_MODELS);
    CHECK(mixers >= LEAST_MIXERS);
    printf("%zu models, %zu mixers\n", models, mixers);
    return check_done();
}
