/* The figures that stacks share are those of their files, each with evidence and source, as the reader of YAML has them and the build
 * compiled them in; a stack with a key of its own has that, and nothing else changes. Argument: root of the source. */
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/machine/stack_settings.h"

#include "tests/unit/check.h"

#include <string.h>

enum { TEXT = 1 << 16, MOST = 64 };

#define FIELD(field, ...) spw_coefficient field;
#define FIELDS(field, low, high, help) \
    static const spw_setting field##_fields[] = SPW_COEFFICIENT_KEYS(low, high, high, help);
#define COMPILED_IN(field, ...) &spw_default_##field,
#define DEFAULTS(name, LIST) \
    typedef struct name##_figures { \
        LIST(FIELD) \
    } name##_figures; \
    LIST(FIELDS) \
    static const spw_coefficient *const name##_compiled_in[] = {LIST(COMPILED_IN) NULL}
DEFAULTS(megatron, SPW_MEGATRON_DEFAULT_LIST);
DEFAULTS(compiled, SPW_COMPILED_DEFAULT_LIST);
DEFAULTS(pytorch, SPW_PYTORCH_DEFAULT_LIST);
DEFAULTS(kernels, SPW_KERNEL_DEFAULT_LIST);
DEFAULTS(outside, SPW_OUTSIDE_DEFAULT_LIST);
DEFAULTS(transformers, SPW_TRANSFORMERS_DEFAULT_LIST);
#define MEGATRON_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(megatron_figures, #field, field, field##_fields, help),
#define COMPILED_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(compiled_figures, #field, field, field##_fields, help),
#define PYTORCH_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(pytorch_figures, #field, field, field##_fields, help),
#define KERNELS_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(kernels_figures, #field, field, field##_fields, help),
#define OUTSIDE_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(outside_figures, #field, field, field##_fields, help),
#define TRANSFORMERS_ROW(field, low, high, help) \
    SPW_STACK_COEFFICIENT(transformers_figures, #field, field, field##_fields, help),
static const spw_setting megatron_rows[] = {SPW_MEGATRON_DEFAULT_LIST(MEGATRON_ROW){.key = NULL}},
                         compiled_rows[] = {SPW_COMPILED_DEFAULT_LIST(COMPILED_ROW){.key = NULL}},
                         pytorch_rows[] = {SPW_PYTORCH_DEFAULT_LIST(PYTORCH_ROW){.key = NULL}},
                         kernels_rows[] = {SPW_KERNEL_DEFAULT_LIST(KERNELS_ROW){.key = NULL}},
                         outside_rows[] = {SPW_OUTSIDE_DEFAULT_LIST(OUTSIDE_ROW){.key = NULL}},
                         transformers_rows[] = {SPW_TRANSFORMERS_DEFAULT_LIST(TRANSFORMERS_ROW){.key = NULL}};

static size_t read_text(const char *root, const char *folder, const char *name, char text[TEXT]) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/sim/%s/%s.yaml", root, folder, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t length = file == NULL ? 0 : fread(text, 1, TEXT - 1, file);
    if (file != NULL) (void)fclose(file);
    text[length] = '\0';
    CHECK(length > 0 && length < TEXT - 1);
    return length;
}

/* The reader refuses a key that no list has, a key that is missing, and a value out of its range. */
static void test_file(const char *root, const char *name, const spw_setting *rows,
                      const spw_coefficient *const *compiled_in) {
    static char text[TEXT];
    static spw_coefficient figures[MOST];
    spw_settings *settings = NULL;
    const size_t length = read_text(root, "stack_defaults", name, text);
    memset(figures, 0, sizeof figures);
    CHECK_OK(spw_settings_open(name, text, length, &settings));
    CHECK_OK(spw_settings_read(settings, rows, figures));
    spw_settings_close(settings);
    for (size_t i = 0; compiled_in[i] != NULL; i++) {
        CHECK(spw_coefficient_is(&figures[i], compiled_in[i]));
        CHECK(figures[i].evidence == compiled_in[i]->evidence && strlen(figures[i].source) > 8);
    }
}

static const char OWN[] =
    "host_link_bytes_per_s:\n  value: 27.5e9\n  evidence: measured\n  source: \"PCIe 4\"\n";

static void test_own_key(const char *root, const char *scratch) {
    static char text[TEXT], written[TEXT];
    static spw_megatron_coefficients shared, own, back;
    char path[512];
    size_t length = read_text(root, "megatron_stacks", "megatron-h200-2026-11", text);
    CHECK_OK(spw_megatron_coefficients_parse("shared", text, length, &shared));
    CHECK(strstr(text, "host_link") == NULL && shared.host_link_bytes_per_s.value == 55.2e9);
#define IS_DEFAULT(field, ...) CHECK(spw_coefficient_is(&shared.field, &spw_default_##field));
    SPW_MEGATRON_DEFAULT_LIST(IS_DEFAULT)
    length += (size_t)snprintf(text + length, TEXT - length, "%s", OWN);
    CHECK_OK(spw_megatron_coefficients_parse("own", text, length, &own));
    CHECK(own.host_link_bytes_per_s.value == 27.5e9 &&
          own.host_link_bytes_per_s.evidence == SPW_EVIDENCE_MEASURED);
    (void)snprintf(path, sizeof path, "%s/own_key.yaml", scratch);
    CHECK_OK(spw_megatron_coefficients_write(&own, path));
    CHECK_OK(spw_megatron_coefficients_read(path, NULL, &back));
    CHECK(spw_coefficient_is(&back.host_link_bytes_per_s, &own.host_link_bytes_per_s));
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fread(written, 1, TEXT - 1, file) > 0);
    if (file != NULL) (void)fclose(file);
    CHECK(strstr(written, "host_link_bytes_per_s:") != NULL && strstr(written, "norm_bytes:") == NULL);
    CHECK(remove(path) == 0);
    own.host_link_bytes_per_s = shared.host_link_bytes_per_s;
    CHECK(memcmp((const char *)&own, (const char *)&shared, sizeof own) == 0);
    (void)snprintf(text + length, TEXT - length, "read_count_s:\n  value: 0.1\n"); /* without evidence */
    CHECK_STATUS(spw_megatron_coefficients_parse("bare", text, strlen(text), &own), SPW_ECONFIG);
    (void)snprintf(text + length, TEXT - length,
                   "cat_blocks:\n  value: 0\n  evidence: assumed\n  source: \"none\"\n");
    CHECK_STATUS(spw_megatron_coefficients_parse("none", text, strlen(text), &own), SPW_ECONFIG);
}

static void test_own_compiled_key(const char *root, const char *scratch) {
    static char text[TEXT];
    static spw_stack shared, own, back;
    char path[512];
    size_t length = read_text(root, "stacks", "xla-cuda-0.12.0", text);
    CHECK_OK(spw_stack_parse("shared", text, length, &shared));
    CHECK(shared.most_recovered.value == 0.42 && shared.logits_kept_bytes.value == 1073741824.0);
    CHECK(shared.state_chunk_tokens.value == 64.0 && shared.state_stacks.value == 1.0);
    length += (size_t)snprintf(text + length, TEXT - length,
                               "most_recovered:\n  value: 0.5\n  evidence: assumed\n  source: \"half\"\n");
    CHECK_OK(spw_stack_parse("own", text, length, &own));
    CHECK(own.most_recovered.value == 0.5 &&
          spw_coefficient_is(&own.logits_kept_bytes, &shared.logits_kept_bytes));
    (void)snprintf(path, sizeof path, "%s/own_compiled_key.yaml", scratch);
    CHECK_OK(spw_stack_write(&own, path));
    CHECK_OK(spw_stack_read(path, NULL, &back));
    CHECK(remove(path) == 0);
    CHECK(spw_coefficient_is(&back.most_recovered, &own.most_recovered));
    own.most_recovered = shared.most_recovered;
    CHECK(memcmp((const char *)&own, (const char *)&shared, sizeof own) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    if (argc != 3) return check_done();
    test_file(argv[1], "megatron", megatron_rows, megatron_compiled_in);
    test_file(argv[1], "compiled", compiled_rows, compiled_compiled_in);
    test_file(argv[1], "pytorch", pytorch_rows, pytorch_compiled_in);
    test_file(argv[1], "kernels", kernels_rows, kernels_compiled_in);
    test_file(argv[1], "outside", outside_rows, outside_compiled_in);
    test_file(argv[1], "transformers", transformers_rows, transformers_compiled_in);
    test_own_key(argv[1], argv[2]);
    test_own_compiled_key(argv[1], argv[2]);
    return check_done();
}
