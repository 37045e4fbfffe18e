/* Configurations as they are published: what is read past, and what of it is still refused. argv[1]: scratch directory. */
#include "sim/input/model.h"
#include "sim/input/model_json.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static spw_status parse(const char *text, spw_model *model) {
    return spw_model_parse("config.json", text, strlen(text), model);
}

static void refuse(const char *text, const char *part) {
    spw_model model;
    CHECK_STATUS(parse(text, &model), SPW_ECONFIG);
    const bool same = strstr(spw_last_error(), part) != NULL;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), part);
}

#define MIXTRAL(width, rest) \
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": " width \
    ", \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"num_experts_per_tok\": 1, " \
    "\"num_local_experts\": 2" rest "}"

/* Words of Python's json module: no numbers of JSON. */
static void test_words(void) {
    spw_model plain, m;
    CHECK_OK(parse(MIXTRAL("4", ""), &plain));
    CHECK_OK(parse(
        MIXTRAL("4",
                ", \"time_step_limit\": Infinity, \"rope_scaling\": [NaN,-Infinity], \"rope_theta\": NaN"),
        &m));
    CHECK(spw_model_parameters(&m).total == spw_model_parameters(&plain).total);
    /* within a string they are text, and an escaped quote ends none */
    CHECK_OK(parse(MIXTRAL("4", ", \"hidden_act\": \"\\\"NaN \\\\\", \"model_kind\": \"Infinity\""), &m));
    refuse(MIXTRAL("Infinity", ""),
           "'hidden_size' is 'Infinity'; it must be a whole number in [1, 16777216]");
    refuse(MIXTRAL("NaN", ""), "'hidden_size' is 'NaN'; it must be a whole number");
    refuse("{\"a\": NaN,\n\"b\": Nan}", "config.json:2: not JSON: invalid token near 'Nan'");
    refuse("{\"a\": Infinity2}", "config.json:1: not JSON");
    refuse("{\"a\": \"NaN\\", "config.json:1: not JSON");
    int n = 0;
    for (spw_status status = SPW_ENOMEM; status != SPW_OK && n < 100; n++) {
        spw_alloc_fail_after(n);
        status = parse(MIXTRAL("4", ", \"a\": NaN"), &m);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
    CHECK(n > 1 && n < 100);
}

/* A file of a quantisation that lists the layers it leaves alone; `entries` of 32 bytes. */
static bool write_long(const char *path, size_t entries) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) return false;
    bool good =
        fputs(
            "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, "
            "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"num_experts_per_tok\": 1, "
            "\"num_local_experts\": 2, \"quantization_config\": {\"ignore\": [\"a\"",
            file) >= 0;
    for (size_t i = 0; i < entries; i++)
        good = fprintf(file, ",\"model.layers.%011zu.gate\"", i) == 32 && good;
    good = fputs("]}}", file) >= 0 && good;
    return fclose(file) == 0 && good;
}

static void test_length(const char *scratch) {
    char path[512];
    spw_model m;
    (void)snprintf(path, sizeof path, "%s/test_model_long.json", scratch);
    CHECK(write_long(path, 100000)); /* 3 MiB */
    CHECK_OK(spw_model_read(path, NULL, &m));
    CHECK(m.experts == 2);
    CHECK(write_long(path, SPW_MODEL_FILE_BYTES / 32));
    CHECK_STATUS(spw_model_read(path, NULL, &m), SPW_EIO);
    CHECK(strstr(spw_last_error(), "larger than the 16777216 bytes allowed") != NULL);
    CHECK(remove(path) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    test_words();
    test_length(argv[1]);
    return check_done();
}
