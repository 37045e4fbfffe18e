/* Configurations as transformers and a wheel of inference settings write them, against the number of elements of their classes on
 * torch's meta device: classes.jsonl, made by read_classes.py. argv[1]: tests/models. */
#include "sim/model/model.h"
#include "sim/weights/optimizer_state.h"

#include "sim/weights/stage.h"
#include "tests/unit/check.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 16, LEAST = 95 };

/* What the stages of a pipeline hold is all of it: of one stage, and of two that share the layers out in any way. */
static void check_state(const char *name, const spw_model *m, uint64_t want) {
    spw_stage part[2] = {{.index = 0, .stages = 2, .embedding = true},
                         {.index = 1, .stages = 2, .head = true}},
              whole = {.stages = 1};
    size_t sparse = 0;
    whole.embedding = whole.head = true;
    for (size_t i = 0; i < m->layers; i++) {
        spw_stage *const of[] = {&whole, &part[i % 3 == 0]};
        for (size_t s = 0; s < 2; s++) {
            of[s]->layers++;
            of[s]->moe_layers += m->is_moe[i];
            of[s]->bare_layers += m->is_bare[i];
            if (m->mixer_of[i] > 0) of[s]->mixer_layers[m->mixer_of[i]]++;
            of[s]->hash_layers += m->is_moe[i] != 0 && sparse < m->hash_layers;
            of[s]->shared_indexers += m->mixer_of[i] == 0 && m->shares_indexer[i] != 0;
        }
        sparse += m->is_moe[i];
    }
    const spw_held_parameters all = spw_stage_parameters(m, &whole),
                              first = spw_stage_parameters(m, &part[0]),
                              second = spw_stage_parameters(m, &part[1]);
    const double tied =
        m->tied_embeddings ? (double)spw_model_parameters(m).embedding : 0.0; /* held on both ends */
    const double one = all.routed + all.rest,
                 two = first.routed + first.rest + second.routed + second.rest - tied;
    CHECK(fabs(one - (double)want) <= 1e-12 * (double)want &&
          fabs(two - (double)want) <= 1e-12 * (double)want);
    if (fabs(one - (double)want) > 1e-12 * (double)want)
        fprintf(stderr, "  %s: a stage holds %.0f, the class has %llu\n", name, one,
                (unsigned long long)want);
}

static void check_line(const char *text) {
    json_error_t error;
    json_t *line = json_loads(text, 0, &error);
    CHECK(line != NULL);
    if (line == NULL) return;
    const char *name = json_string_value(json_object_get(line, "name"));
    const uint64_t want = (uint64_t)json_integer_value(json_object_get(line, "elements"));
    char *config = json_dumps(json_object_get(line, "config"), 0);
    spw_model m;
    CHECK(name != NULL && want > 0 && config != NULL);
    if (name == NULL || config == NULL) {
        free(config);
        json_decref(line);
        return;
    }
    CHECK_OK(spw_model_parse(name, config, strlen(config), &m));
    const uint64_t got = spw_model_parameters(&m).total;
    CHECK(got == want);
    if (got != want)
        fprintf(stderr, "  %s: %llu, the class has %llu\n", name, (unsigned long long)got,
                (unsigned long long)want);
    check_state(name, &m, want);
    free(config);
    json_decref(line);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    static char line[LINE];
    char path[512];
    size_t lines = 0;
    (void)snprintf(path, sizeof path, "%s/classes.jsonl", argv[1]);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        CHECK(strchr(line, '\n') != NULL); /* longer than LINE: not read whole */
        check_line(line);
        lines++;
    }
    if (file != NULL) (void)fclose(file);
    CHECK(lines >= LEAST);
    return check_done();
}
