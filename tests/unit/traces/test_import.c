/* Importers without memory: every allocation fails once, and each time there is a clear refusal and nothing left over. */
#include "base/file.h"
#include "base/memory.h"
#include "tests/unit/check.h"
#include "traces/importers/importer.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ALLOCATIONS = 2000, LARGEST = 1 << 20 };

static char folder[1024], input[1100], output[1100];

/* The seed of the fuzzer without its two leading bytes. */
static void write_input(const char *corpus, const char *seed) {
    char path[1100], *text = NULL;
    size_t length = 0;
    (void)snprintf(path, sizeof path, "%s/%s", corpus, seed);
    CHECK_OK(spw_file_read(path, LARGEST, &text, &length));
    FILE *file = text != NULL ? fopen(input, "wb") : NULL;
    CHECK(file != NULL && length > 2 && fwrite(text + 2, 1, length - 2, file) == length - 2);
    if (file != NULL) CHECK(fclose(file) == 0);
    spw_free(text);
}

static size_t count_files(void) {
    size_t count = 0;
    DIR *open_folder = opendir(folder);
    for (struct dirent *entry = open_folder != NULL ? readdir(open_folder) : NULL; entry != NULL;
         entry = readdir(open_folder))
        count += entry->d_name[0] != '.';
    if (open_folder != NULL) (void)closedir(open_folder);
    return count;
}

static void test_allocations(const char *corpus, const char *seed, const char *format,
                             spw_import_settings settings) {
    const char *const inputs[] = {input};
    const spw_importer *importer = spw_importer_find(format);
    CHECK(importer != NULL);
    if (importer == NULL) return;
    settings.input = inputs;
    settings.inputs = 1;
    settings.output = output;
    settings.given = importer->needs;
    settings.experts = 8;
    settings.phase = -1;
    write_input(corpus, seed);
    int n = 0;
    for (; n < MOST_ALLOCATIONS; n++) {
        spw_alloc_fail_after(n);
        const spw_status status = spw_trace_import(importer, &settings);
        spw_alloc_fail_after(-1);
        if (status == SPW_OK) break;
        CHECK_STATUS(status, SPW_ENOMEM);
        CHECK(count_files() == 1);
    }
    CHECK(n > 5 && n < MOST_ALLOCATIONS);
    CHECK(count_files() == 2 && unlink(output) == 0 && unlink(input) == 0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    (void)snprintf(folder, sizeof folder, "%s/test_import.XXXXXX", argv[1]);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(input, sizeof input, "%s/rank0.jsonl", folder);
    (void)snprintf(output, sizeof output, "%s/out.h5", folder);
    const char *corpus = argv[2];
    test_allocations(corpus, "router", "megatron-router", (spw_import_settings){.top_k = 2, .ranks = 1});
    test_allocations(corpus, "router_recompute", "megatron-router",
                     (spw_import_settings){.top_k = 2, .ranks = 1, .recompute = true, .micro_batch_size = 2});
    test_allocations(corpus, "counts", "megatron-counts",
                     (spw_import_settings){.top_k = 2, .ranks = 1, .expert_parallel = 1, .micro_batches = 2});
    test_allocations(corpus, "mcore_packed", "mcore-load", (spw_import_settings){.top_k = 2, .ranks = 1});
    test_allocations(corpus, "array", "array", (spw_import_settings){.top_k = 2, .axes = "tokens,layers,k"});
    test_allocations(corpus, "array_npz", "array",
                     (spw_import_settings){.top_k = 2, .axes = "tokens,layers,k", .array = "ids"});
    test_allocations(corpus, "array_counts", "array",
                     (spw_import_settings){.top_k = 2, .axes = "steps,ranks,layers,experts"});
    test_allocations(corpus, "csv", "count-csv", (spw_import_settings){.top_k = 2});
    test_allocations(corpus, "layer_counts", "count-jsonl", (spw_import_settings){.top_k = 2});
    test_allocations(corpus, "balance_ranks", "moe-balance", (spw_import_settings){.top_k = 2, .ranks = 2});
    test_allocations(corpus, "balance_weights", "moe-balance", (spw_import_settings){.top_k = 2, .ranks = 2});
    test_allocations(corpus, "eplb", "vllm-eplb", (spw_import_settings){.top_k = 2});
    static const int32_t layers[] = {0, 2};
    test_allocations(corpus, "routed_vllm", "vllm-routed", (spw_import_settings){.top_k = 2});
    test_allocations(corpus, "routed_sglang", "sglang-routed",
                     (spw_import_settings){.top_k = 2, .layers = {layers, 2}});
    test_allocations(corpus, "routed_dynamo", "dynamo-routed", (spw_import_settings){.top_k = 2});
    test_allocations(corpus, "routed_nemo_rl", "nemo-rl-routed", (spw_import_settings){.top_k = 2});
    CHECK(rmdir(folder) == 0);
    return check_done();
}
