/* Every configuration in tests/models against the number of elements that Hugging Face transformers builds of it (counts.csv) and
 * against what its publisher says (published.csv). argv[1]: tests/models. */
#include "sim/model/model.h"

#include "tests/unit/check.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 512, LEAST_COUNTED = 57, LEAST_PUBLISHED = 68 };

/* NAME.json in the folder, or the preset NAME. */
static spw_status read_model(const char *folder, const char *name, spw_model *out) {
    char path[LINE];
    (void)snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return spw_model_read(name, NULL, out);
    (void)fclose(file);
    return spw_model_read(path, NULL, out);
}

/* Calls `check` with every line of a table that is neither a remark nor its head; returns how many there were. */
static size_t each_line(const char *folder, const char *table,
                        void (*check)(const char *folder, char *line)) {
    char path[LINE], line[LINE];
    size_t lines = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, table);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#' || strncmp(line, "name,", 5) == 0) continue;
        line[strcspn(line, "\n")] = '\0';
        check(folder, line);
        lines++;
    }
    (void)fclose(file);
    return lines;
}

/* name,elements: the same to the last parameter, but for what the table's notes say. */
static void count_is_exact(const char *folder, char *line) {
    char *number = strchr(line, ',');
    spw_model m;
    CHECK(number != NULL);
    if (number == NULL) return;
    *number++ = '\0';
    CHECK_OK(read_model(folder, line, &m));
    uint64_t want = strtoull(number, NULL, 10);
    /* transformers keeps rows of weights for LongCat's experts that compute nothing; its published weights have none */
    if (strcmp(m.name, "longcat-flash") == 0) want -= 28ull * 256 * 2 * 2048 * 6144;
    const uint64_t got = spw_model_parameters(&m).total;
    CHECK(got == want);
    if (got != want)
        fprintf(stderr, "  %s: %llu, transformers %llu, %+lld\n", line, (unsigned long long)got,
                (unsigned long long)want, (long long)(got - want));
}

/* Half of what the last digit of a figure is worth. */
static double half_digit(const char *figure) {
    const char *point = strchr(figure, '.');
    return 0.5 * pow(10.0, point == NULL ? 0.0 : -(double)strlen(point + 1));
}

/* name,total in B,active in B,vocabulary matrices that the publisher leaves out of the active ones,source: total within 1 %,
 * active within 5 % or what rounding leaves open. */
static void published_is_near(const char *folder, char *line) {
    char name[64], total[32], active[32];
    int left_out = 0;
    spw_model m;
    CHECK(sscanf(line, "%63[^,],%31[^,],%31[^,],%d", name, total, active, &left_out) == 4);
    CHECK_OK(read_model(folder, name, &m));
    const spw_parameters p = spw_model_parameters(&m);
    const double want = strtod(total, NULL) * 1e9, some = strtod(active, NULL);
    const double got = (double)p.total, vocabulary = (double)p.embedding * left_out;
    const double runs = ((double)p.active - vocabulary) / 1e9;
    const bool near = fabs(got / want - 1) <= 0.01,
               runs_near = fabs(runs - some) <= fmax(0.05 * some, half_digit(active));
    CHECK(near);
    CHECK(runs_near);
    if (!near || !runs_near)
        fprintf(stderr, "  %s: %.3f B of %s, active %.3f B of %s\n", name, got / 1e9, total, runs, active);
}

/* --- Hostile values --- */

/* Each value in the place of a key: the model is read, or refused; nothing overflows and no layer is outside. */
static void try_values(json_t *whole, json_t *inside, const char *key) {
    static const char *const values[] = {"null",
                                         "-1",
                                         "0",
                                         "1",
                                         "4611686018427387904",
                                         "1e300",
                                         "true",
                                         "\"x\"",
                                         "[]",
                                         "[4611686018427387904, -1]",
                                         "[[]]",
                                         "{\"a\": 1}",
                                         "[\"linear_attention\"]"};
    json_t *kept = json_incref(json_object_get(inside, key));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        spw_model m;
        json_object_set_new(inside, key, json_loads(values[i], JSON_DECODE_ANY, NULL));
        char *text = json_dumps(whole, 0);
        const spw_status status = spw_model_parse("config.json", text, strlen(text), &m);
        const bool read = status == SPW_OK && m.layers <= SPW_MODEL_MAX_LAYERS && m.moe_layers > 0 &&
                          m.moe_layers <= m.layers && m.other_layers <= m.layers && m.top_k <= m.experts &&
                          spw_model_parameters(&m).total <= (uint64_t)1 << 52;
        const bool good =
            read || (status == SPW_ECONFIG && strncmp(spw_last_error(), "config.json", 11) == 0);
        CHECK(good);
        if (!good) fprintf(stderr, "  %s: %s gives %d (%s)\n", key, values[i], (int)status, spw_last_error());
        free(text);
    }
    json_object_set_new(inside, key, kept);
}

static void try_keys(json_t *whole, json_t *inside) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(inside, next, key, value) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s", key);
        if (json_is_object(value)) try_keys(whole, value);
        try_values(whole, inside, name);
    }
}

static void survives(const char *folder, char *line) {
    char path[LINE];
    line[strcspn(line, ",")] = '\0';
    (void)snprintf(path, sizeof path, "%s/%s.json", folder, line);
    json_t *whole = json_load_file(path, 0, NULL);
    if (whole == NULL) { /* a preset */
        (void)snprintf(path, sizeof path, "%s/../../sim/models/%s.json", folder, line);
        whole = json_load_file(path, 0, NULL);
    }
    CHECK(whole != NULL);
    try_keys(whole, whole);
    json_decref(whole);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    CHECK(each_line(argv[1], "counts.csv", count_is_exact) >= LEAST_COUNTED);
    CHECK(each_line(argv[1], "published.csv", published_is_near) >= LEAST_PUBLISHED);
    CHECK(each_line(argv[1], "published.csv", survives) >= LEAST_PUBLISHED);
    return check_done();
}
