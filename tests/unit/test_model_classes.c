/* Configurations as transformers and a wheel of inference settings write them, against the number of elements of their classes on
 * torch's meta device: classes.jsonl, made by read_classes.py. argv[1]: tests/models. */
#include "sim/input/model.h"

#include "tests/unit/check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 16, LEAST = 95 };

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
    CHECK_OK(spw_model_parse(name, config, strlen(config), &m));
    const uint64_t got = spw_model_parameters(&m).total;
    CHECK(got == want);
    if (got != want)
        fprintf(stderr, "  %s: %llu, the class has %llu\n", name, (unsigned long long)got,
                (unsigned long long)want);
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
