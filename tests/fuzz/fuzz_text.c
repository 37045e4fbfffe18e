/* libFuzzer target of the texts that a user writes or a stranger hands over: the first byte chooses stack, time stack,
 * coefficients of Megatron-Core, scheme, record, distribution or the allocator's settings, the rest is the text. A record that
 * is read can be written and read again; a distribution that is read deals out experts that exist, none of them twice. */
#include "kernels/record/record.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/machine/time_stack.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/schemes/scheme.h"
#include "tests/fuzz/fuzz_input.h"
#include "traces/generate/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 16, EXPERTS = 16, TOP_K = 2, TOKENS = 64 };

static void try_stack(const char *text, size_t size) {
    static spw_stack stack;
    spw_fuzz_refusal(spw_stack_parse("fuzz", text, size, &stack));
}

static void try_time_stack(const char *text, size_t size) {
    static spw_time_stack stack;
    spw_fuzz_refusal(spw_time_stack_parse("fuzz", text, size, &stack));
}

static void try_coefficients(const char *text, size_t size) {
    static spw_megatron_coefficients coefficients;
    spw_fuzz_refusal(spw_megatron_coefficients_parse("fuzz", text, size, &coefficients));
}

static void try_scheme(const char *text, size_t size) {
    static spw_scheme scheme;
    (void)size;
    spw_fuzz_refusal(spw_scheme_parse(text, &scheme));
}

static void try_record(const char *text, size_t size) {
    spw_record record, again;
    char *written = NULL;
    size_t length = 0;
    spw_status status = spw_record_parse("fuzz", text, size, &record);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return;
    FILE *out = open_memstream(&written, &length);
    if (out == NULL || spw_record_write(&record, out) != SPW_OK || fclose(out) != 0) abort();
    if (spw_record_parse("again", written, length, &again) != SPW_OK) abort();
    spw_record_destroy(&again);
    spw_record_destroy(&record);
    free(written);
}

static void deal(const spw_distribution *distribution, const char *text) {
    const spw_generate_settings settings = {.experts = EXPERTS,
                                            .top_k = TOP_K,
                                            .layers = 1,
                                            .steps = 2,
                                            .ranks = 2,
                                            .tokens_per_rank = TOKENS / 2,
                                            .distribution = *distribution,
                                            .seed = 1,
                                            .distribution_text = text,
                                            .generator = "fuzz"};
    spw_generator *generator = NULL;
    uint16_t id[TOKENS * TOP_K];
    spw_status status = spw_generator_create(&settings, &generator);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) status = spw_generator_record(generator, 0, id);
    spw_fuzz_refusal(status);
    for (size_t t = 0; status == SPW_OK && t < TOKENS; t++) {
        if (id[2 * t] >= EXPERTS || id[2 * t + 1] >= EXPERTS || id[2 * t] == id[2 * t + 1]) abort();
    }
    spw_generator_destroy(generator);
}

static void try_distribution(const char *text, size_t size) {
    spw_distribution distribution;
    (void)size;
    const spw_status status = spw_distribution_parse(text, &distribution);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) deal(&distribution, text);
}

static void try_allocator(const char *text, size_t size) {
    spw_job_allocator conf = {.expandable_segments = false};
    spw_allocator *allocator = NULL;
    (void)size;
    if (spw_allocator_conf_parse("--allocator", text, &conf) != SPW_OK) {
        spw_fuzz_refusal(SPW_EARG);
        return;
    }
    const spw_allocator_settings settings = spw_allocator_conf_settings(&conf, 1 << 30, 1 << 30);
    spw_fuzz_refusal(spw_allocator_create(&settings, &allocator));
    spw_allocator_destroy(allocator);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const kinds[])(const char *, size_t) = {
        try_stack, try_time_stack, try_coefficients, try_scheme, try_record, try_distribution, try_allocator};
    if (size < 1 || size > LARGEST) return 0;
    char *text = malloc(size);
    if (text == NULL) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    kinds[data[0] % (sizeof kinds / sizeof kinds[0])](text, size - 1);
    free(text);
    return 0;
}
