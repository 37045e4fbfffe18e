/* Speed of reading and counting, beside what the same machine does otherwise, all in one run: memory
 * bandwidth, numpy's bincount, a plain HDF5 read. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/command/job_options.h"
#include "sim/routing/counts.h"
#include "sim/statistics/quantiles.h"
#include "traces/generate.h"
#include "traces/trace.h"

#include <hdf5.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    RANKS = 64,
    EXPERTS = 256,
    TOP_K = 8,
    TOKENS = 4096,
    LAYERS = 8,
    NODE = 8,
    REPEATS = 5,
    READ_BYTES = 128 << 20,
    POOL = 65536 /* tokens */
};

typedef struct bench_options {
    const char *trace_path, *python;
} bench_options;

static const struct argp_option own_options[] = {
    {"python", 'p', "PROGRAM", 0, "the Python that has numpy (default: /usr/bin/python3)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case 'p': o->python = text; return 0;
    case ARGP_KEY_ARG: o->trace_path = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = own_options,
    .parser = parse,
    .args_doc = "[TRACE.h5]",
    .doc = "Routing counts per second, beside memory bandwidth, numpy's bincount and a plain HDF5 read of "
           "the same file.\v"
           "Without a trace one of 64 ranks x 4096 tokens, 8 layers, top-8 of 256, Zipf 0.8, is generated.",
};

/* Bytes per second of a plain sum over a buffer much larger than the caches. */
static spw_status memory_bandwidth(double *bytes_per_s) {
    uint64_t *data = NULL, sum = 0;
    const size_t count = READ_BYTES / sizeof *data;
    double seconds[REPEATS];
    spw_status status = SPW_ALLOC(count, &data);
    if (status != SPW_OK) return status;
    for (int i = 0; i < REPEATS; i++) {
        double start = spw_clock_s();
#pragma omp parallel for reduction(+ : sum) schedule(static)
        for (size_t j = 0; j < count; j++) sum += data[j];
        seconds[i] = spw_clock_s() - start;
    }
    *bytes_per_s = sum == 1 ? 0.0 : READ_BYTES / spw_quantile(seconds, REPEATS, 0.5);
    spw_free(data);
    return SPW_OK;
}

/* One layer of the trace in memory, laid out on the ranks. */
typedef struct sample {
    spw_trace_record record;
    void *ids;
    spw_layout *layout;
    size_t ranks;
} sample;

static spw_status take_sample(spw_trace *trace, sample *s) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_OK;
    s->ranks = info->ranks > 0 ? info->ranks : RANKS;
    SPW_TRY(spw_trace_read_record(trace, 0, 1, 0, false, &s->record));
    const size_t bytes = s->record.tokens * s->record.top_k * s->record.id_bytes,
                 each = s->record.tokens / s->ranks;
    SPW_TRY(spw_alloc(bytes, 1, &s->ids));
    memcpy(s->ids, s->record.expert_id, bytes);
    s->record.expert_id = s->ids;
    SPW_TRY(spw_layout_create(s->ranks, 1, &s->layout));
    for (size_t r = 0; r < s->ranks; r++)
        SPW_TRY(spw_layout_append(s->layout, r, (spw_segment){r * each, (uint32_t)each, 0}));

cleanup:
    return status;
}

/* Assignments per second of all counts together, with the data in memory. */
static spw_status count_in_memory(const sample *s, size_t group_ranks, int threads, double *per_s) {
    spw_counts *counts = NULL;
    double seconds[REPEATS];
    const spw_placement placement = {s->ranks, group_ranks, NODE, s->record.experts};
    spw_status status = spw_counts_create(placement, 1, &counts);
    const int before = omp_get_max_threads();
    const size_t rounds = 1 + (1 << 24) / (s->record.tokens * s->record.top_k + 1);
    omp_set_num_threads(threads);
    for (int i = 0; i < REPEATS && status == SPW_OK; i++) {
        double start = spw_clock_s();
        for (size_t j = 0; j < rounds && status == SPW_OK; j++)
            status = spw_counts_fill(counts, &s->record, s->layout);
        seconds[i] = (spw_clock_s() - start) / (double)rounds;
    }
    omp_set_num_threads(before);
    *per_s = (double)(s->record.tokens * s->record.top_k) /
             (status == SPW_OK ? spw_quantile(seconds, REPEATS, 0.5) : 1.0);
    spw_counts_destroy(counts);
    return status;
}

/* numpy counting n[s][x] of the same data, in a process of its own; 0 when there is no numpy. */
static double numpy_per_s(const char *python, const sample *s) {
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "%s -c \"import numpy as n,time\n"
                   "T,K,E,R=%zu,%zu,%zu,%zu\n"
                   "x=n.random.default_rng(1).integers(0,E,(T,K)).astype(n.uint%d)\n"
                   "r=(n.arange(T)//(T//R)).astype(n.int64)\n"
                   "t=[]\n"
                   "for i in range(3):\n"
                   " a=time.perf_counter();c=n.bincount((r[:,None]*E+x).ravel(),minlength=R*E);"
                   "t.append(time.perf_counter()-a)\n"
                   "print(T*K/sorted(t)[1])\" 2>/dev/null",
                   python, s->record.tokens, s->record.top_k, s->record.experts, s->ranks,
                   s->record.id_bytes == 1 ? 8 : 16);
    double per_s = 0.0;
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) return 0.0;
    if (fscanf(pipe, "%lf", &per_s) != 1) per_s = 0.0;
    (void)pclose(pipe);
    return per_s;
}

/* Steps read together from `step` on: one training step, or short steps of an inference trace until they are POOL. */
static size_t steps_together(const spw_trace_info *info, size_t step, uint64_t *tokens) {
    size_t count = 0;
    for (*tokens = 0; step + count < info->steps && (count == 0 || (info->ranks == 0 && *tokens < POOL));
         count++)
        *tokens += info->step_tokens[step + count];
    return count;
}

/* Assignments per second of reading and counting a whole file. */
static spw_status count_file(const char *path, size_t group_ranks, double *open_s, double *per_s) {
    spw_trace *trace = NULL;
    sample s = {.ids = NULL};
    spw_counts *counts = NULL;
    uint64_t assignments = 0;
    spw_status status = SPW_OK;
    double start = spw_clock_s();
    SPW_TRY(spw_trace_open(path, &trace));
    *open_s = spw_clock_s() - start;
    start = spw_clock_s();
    const spw_trace_info *info = spw_trace_get_info(trace);
    s.ranks = info->ranks > 0 ? info->ranks : RANKS;
    SPW_TRY(spw_layout_create(s.ranks, 1, &s.layout));
    SPW_TRY(spw_counts_create((spw_placement){s.ranks, group_ranks, NODE, info->experts}, 1, &counts));
    for (size_t step = 0, count = 0; step < info->steps; step += count) {
        uint64_t tokens = 0;
        count = steps_together(info, step, &tokens);
        const size_t each = (size_t)tokens / s.ranks;
        spw_layout_clear(s.layout);
        for (size_t r = 0; r < s.ranks; r++)
            SPW_TRY(spw_layout_append(s.layout, r, (spw_segment){r * each, (uint32_t)each, 0}));
        for (size_t layer = 0; layer < info->layers; layer++) {
            spw_trace_record record;
            SPW_TRY(spw_trace_read_record(trace, step, count, layer, false, &record));
            SPW_TRY(spw_counts_fill(counts, &record, s.layout));
            assignments += record.tokens * record.top_k;
        }
    }
    *per_s = (double)assignments / (spw_clock_s() - start);

cleanup:
    spw_counts_destroy(counts);
    spw_layout_destroy(s.layout);
    spw_trace_close(trace);
    return status;
}

/* Assignments per second of H5Dread over the same file in the same portions, and nothing else. */
static spw_status plain_hdf5(const char *path, double *per_s) {
    spw_trace *trace = NULL;
    void *data = NULL;
    uint64_t assignments = 0, most = 0;
    hsize_t *rows = NULL; /* [reads] */
    size_t reads = 0;
    hid_t file = H5I_INVALID_HID, dataset = H5I_INVALID_HID, space = H5I_INVALID_HID;
    spw_status status = spw_trace_open(path, &trace); /* for the shape only */
    if (status != SPW_OK) return status;
    const spw_trace_info info = *spw_trace_get_info(trace);
    SPW_TRY(SPW_ALLOC(info.steps, &rows));
    for (size_t step = 0; step < info.steps; reads++) {
        uint64_t tokens = 0;
        step += steps_together(&info, step, &tokens);
        rows[reads] = tokens;
        most = tokens > most ? tokens : most;
    }
    spw_trace_close(trace);
    trace = NULL;
    SPW_TRY(spw_alloc(most * info.top_k, info.id_bytes, &data));
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    dataset = H5Dopen2(file, "/tokens/expert_id", H5P_DEFAULT);
    space = H5Dget_space(dataset);
    const double start = spw_clock_s();
    hsize_t first = 0;
    for (size_t read = 0; read < reads; first += rows[read++]) {
        for (size_t layer = 0; layer < info.layers; layer++) {
            const hsize_t begin[3] = {first, layer, 0}, count[3] = {rows[read], 1, info.top_k};
            hid_t memory = H5Screate_simple(3, count, NULL);
            bool good = H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL) >= 0 &&
                        H5Dread(dataset, info.id_bytes == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_UINT16, memory,
                                space, H5P_DEFAULT, data) >= 0;
            (void)H5Sclose(memory);
            if (!good) SPW_TRY(spw_fail(SPW_EIO, "%s: /tokens/expert_id cannot be read plainly", path));
            assignments += count[0] * count[2];
        }
    }
    *per_s = (double)assignments / (spw_clock_s() - start);

cleanup:
    if (space >= 0) (void)H5Sclose(space);
    if (dataset >= 0) (void)H5Dclose(dataset);
    if (file >= 0) (void)H5Fclose(file);
    spw_free(rows);
    spw_free(data);
    spw_trace_close(trace);
    return status;
}

static spw_status generate(char *path) {
    int descriptor = mkstemp(path);
    if (descriptor < 0) return spw_fail(SPW_EIO, "%s: cannot be created", path);
    (void)close(descriptor);
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = LAYERS,
                                      .steps = 2,
                                      .ranks = RANKS,
                                      .tokens_per_rank = TOKENS,
                                      .seed = 1,
                                      .distribution_text = "zipf:exponent=0.8",
                                      .generator = "spillway bench replay"};
    spw_status status = spw_distribution_parse("zipf:exponent=0.8", &settings.distribution);
    return status == SPW_OK ? spw_generate_trace(&settings, path) : status;
}

static void print_rate(const char *what, double per_s, const char *unit, const char *note) {
    printf("%-58s %10.3f %s%s\n", what, per_s / 1e9, unit, note);
}

static spw_status bench(const char *path, const char *python) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    sample s = {.ids = NULL};
    double bandwidth = 0.0, one = 0.0, all = 0.0, wide = 0.0, file_warm = 0.0, plain = 0.0, open_s = 0.0;
    const int threads = omp_get_max_threads();
    char note[96];
    SPW_TRY(spw_trace_open(path, &trace));
    if (!spw_trace_get_info(trace)->has_tokens)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: a trace of counts has no tokens to count", path));
    SPW_TRY(take_sample(trace, &s));
    spw_trace_close(trace); /* HDF5 will not open it a second time with other settings */
    trace = NULL;
    const size_t id_bytes = s.record.id_bytes,
                 group = s.record.experts % NODE == 0 && s.ranks % NODE == 0 ? NODE : 1;
    const size_t widest = s.record.experts % s.ranks == 0 ? s.ranks : group;
    printf(
        "%zu tokens a layer, top-%zu of %zu, %zu ranks, %zu-byte ids, %d threads; G = 1e9, medians of %d\n\n",
        s.record.tokens, s.record.top_k, s.record.experts, s.ranks, id_bytes, threads, REPEATS);
    SPW_TRY(memory_bandwidth(&bandwidth));
    print_rate("memory read", bandwidth, "GB/s", "");
    SPW_TRY(count_in_memory(&s, group, 1, &one));
    (void)snprintf(note, sizeof note, "  (%.1f %% of the memory read)",
                   100.0 * one * (double)id_bytes / bandwidth);
    print_rate("n, U, Q and sequences from memory, groups of 8, 1 core", one, "G assignments/s", note);
    SPW_TRY(count_in_memory(&s, group, threads, &all));
    print_rate("the same, all cores", all, "G assignments/s", "");
    SPW_TRY(count_in_memory(&s, widest, 1, &wide));
    (void)snprintf(note, sizeof note, "n, U, Q and sequences from memory, groups of %zu, 1 core", widest);
    print_rate(note, wide, "G assignments/s", "");
    const double numpy = numpy_per_s(python, &s);
    if (numpy > 0.0) {
        (void)snprintf(note, sizeof note, "  (ours: %.1fx on 1 core, %.1fx on all)", one / numpy,
                       all / numpy);
        print_rate("numpy bincount, n alone, 1 core", numpy, "G assignments/s", note);
    } else {
        printf("numpy bincount: skipped, %s has no numpy\n", python);
    }
    SPW_TRY(plain_hdf5(path, &plain));
    SPW_TRY(count_file(path, group, &open_s, &file_warm));
    (void)snprintf(note, sizeof note, "  (%.2fx the plain read)", file_warm / plain);
    print_rate("plain HDF5 read of the file, nothing counted", plain, "G assignments/s", "");
    print_rate("read and counted from the file, all cores", file_warm, "G assignments/s", note);
    printf("%-58s %10.1f ms (a child process probes the file first)\n", "opening the file, not counted above",
           open_s * 1e3);
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    printf("%-58s %10.0f MB (%d MB of it the buffer of the memory read)\n", "resident memory at most",
           (double)usage.ru_maxrss * 1024.0 / 1e6, READ_BYTES / 1000000);

cleanup:
    spw_layout_destroy(s.layout);
    spw_free(s.ids);
    spw_trace_close(trace);
    return status;
}

spw_status spw_command_bench_replay(int argc, char **argv) {
    bench_options o = {.trace_path = NULL, .python = "/usr/bin/python3"};
    char path[] = "/tmp/spillway_bench_XXXXXX";
    spw_status status = spw_command_parse(&argp, argc, argv, &o);
    if (status != SPW_OK) return status;
    if (o.trace_path != NULL) return bench(o.trace_path, o.python);
    status = generate(path);
    if (status == SPW_OK) status = bench(path, o.python);
    (void)unlink(path);
    return status;
}
