#include "base/memory.h"
#include "kernels/verify/kernel_case.h"
#include "sim/library/comparison.h"
#include "sim/library/gate.h"

#include <string.h>

static const char *const types[SPW_TYPES] = {
    [SPW_TYPE_BF16] = "bf16", [SPW_TYPE_FLOAT] = "float", [SPW_TYPE_FP16] = "fp16"};

struct spw_case {
    spw_kernel_case own;
};

/* *use is `record` with the file's content, or NULL where there is no file. */
static spw_status read_record(const char *path, spw_record *record, const spw_record **use) {
    *use = NULL;
    if (path == NULL) return SPW_OK;
    *use = record;
    const spw_status status = spw_gate_enter();
    return status == SPW_OK ? (spw_status)spw_gate_leave(spw_record_read(path, record)) : status;
}

static spw_status parse_type(const char *name, spw_type *out) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(name, types[i]) != 0) continue;
        *out = (spw_type)i;
        return SPW_OK;
    }
    return spw_fail(SPW_EARG, "'%s' is no type of a case; there are bf16, fp16 and float", name);
}

spw_code spw_case_count(const char *kernel, const char *record, size_t *out) {
    spw_record content = {.ranks = 0};
    const spw_record *use = NULL;
    spw_kernel parsed = SPW_KERNELS;
    spw_status status = SPW_OK;
    SPW_TRY(spw_check_given(__func__, (spw_given[]){{"kernel", kernel}, {"out", out}, {NULL, NULL}}));
    *out = 0;
    SPW_TRY(spw_kernel_parse(kernel, &parsed));
    SPW_TRY(read_record(record, &content, &use));
    *out = spw_kernel_cases(parsed, use);

cleanup:
    spw_record_destroy(&content);
    return (spw_code)status;
}

spw_code spw_case_create(const char *kernel, const char *type, const char *record, size_t number,
                         spw_case **out) {
    spw_record content = {.ranks = 0};
    const spw_record *use = NULL;
    spw_kernel parsed = SPW_KERNELS;
    spw_type parsed_type = SPW_TYPE_BF16;
    spw_case *made = NULL;
    spw_status status = SPW_OK;
    if (out != NULL) *out = NULL;
    SPW_TRY(spw_check_given(__func__,
                            (spw_given[]){{"kernel", kernel}, {"type", type}, {"out", out}, {NULL, NULL}}));
    spw_gate_watch_forks();
    SPW_TRY(spw_kernel_parse(kernel, &parsed));
    SPW_TRY(parse_type(type, &parsed_type));
    SPW_TRY(read_record(record, &content, &use));
    if (number >= spw_kernel_cases(parsed, use) && spw_kernel_cases(parsed, use) > 0) /* no sparse ones */
        SPW_TRY(spw_fail(SPW_EARG, "case %zu: %s has the cases 0 to %zu", number, kernel,
                         spw_kernel_cases(parsed, use) - 1));
    SPW_TRY(SPW_ALLOC(1, &made));
    SPW_TRY(spw_kernel_case_create(parsed, parsed_type, use, number, &made->own));
    if (out != NULL) *out = made, made = NULL;

cleanup:
    spw_record_destroy(&content);
    spw_free(made);
    return (spw_code)status;
}

void spw_case_destroy(spw_case *c) {
    if (c == NULL) return;
    spw_kernel_case_destroy(&c->own);
    spw_free(c);
}

void spw_case_get_facts(const spw_case *c, spw_case_facts *out) {
    if (out != NULL) *out = (spw_case_facts){.name = ""};
    if (spw_check_given(__func__, (spw_given[]){{"c", c}, {"out", out}, {NULL, NULL}}) != SPW_OK ||
        out == NULL)
        return;
    *out = (spw_case_facts){.name = c->own.name,
                            .call = &c->own.call,
                            .output_bytes = c->own.output_bytes,
                            .guard_bytes = SPW_KERNEL_CASE_GUARD};
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) out->input_bytes[i] = c->own.input_bytes[i];
}

spw_code spw_case_judge(const spw_case *c, spw_comparison *out) {
    spw_judged judged;
    const spw_status given = spw_check_given(__func__, (spw_given[]){{"c", c}, {"out", out}, {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    const spw_status status = spw_kernel_case_judge(&c->own, &judged);
    spw_comparison_of(&judged, out);
    return (spw_code)status;
}
