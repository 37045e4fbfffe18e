/* Speed of reading and counting, beside what the same machine does otherwise, all in one run: memory
 * bandwidth, numpy's bincount, a plain HDF5 read. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/command/bench/memory_read.h"
#include "sim/command/job_options.h"
#include "sim/routing/counts.h"
#include "sim/statistics/quantiles.h"
#include "traces/disk/hdf5_read.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"

#include <hdf5.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    RANKS = 64,
    EXPERTS = 256,
    TOP_K = 8,
    TOKENS = 4096,
    LAYERS = 8,
    MANY_RANKS = 1024,
    MANY_LAYERS = 4,
    NODE = 8,
    REPEATS = 5,
    FILE_REPEATS = 3,
    NUMPY_TOKENS = 262144,
    POOL = 65536 /* tokens */
};

typedef struct bench_options {
    const char *trace_path, *python;
    bool many;
} bench_options;

static const struct argp_option own_options[] = {
    {"python", 'p', "PROGRAM", 0, "the Python that has numpy (default: /usr/bin/python3)", 0},
    {"many-ranks", 'm', NULL, 0, "also generate and replay the counts of 1,024 ranks: a minute of one core",
     0},
    {0},
};

static error_t bench_replay_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case 'p': o->python = text; return 0;
    case 'm': o->many = true; return 0;
    case ARGP_KEY_ARG: o->trace_path = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = own_options,
    .parser = bench_replay_parse,
    .args_doc = "[TRACE.h5]",
    .doc = "Routing counts per second, beside memory bandwidth, numpy's bincount and a plain HDF5 read of "
           "the same file.\v"
           "Without a trace one of 64 ranks x 4096 tokens, 8 layers, top-8 of 256, Zipf 0.8, is generated.",
};

/* One layer of the trace in memory, as often as the caches cannot hold it, laid out on the ranks: what is counted. */
typedef struct sample {
    spw_trace_record record; /* of all copies */
    void *ids;
    spw_layout *layout;
    size_t ranks, bytes;
} sample;

static spw_status take_sample(spw_trace *trace, sample *s) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_OK;
    s->ranks = info->ranks > 0 ? info->ranks : RANKS;
    SPW_TRY(spw_trace_read_record(trace, 0, 1, 0, false, &s->record));
    const size_t tokens = s->record.tokens, layer_bytes = tokens * s->record.top_k * s->record.id_bytes,
                 each = tokens / s->ranks, copies = spw_memory_beyond_caches() / (layer_bytes + 1) + 1;
    SPW_TRY(spw_alloc(copies, layer_bytes, &s->ids));
    SPW_TRY(spw_layout_create(s->ranks, 1, &s->layout));
    for (size_t i = 0; i < copies; i++)
        memcpy((char *)s->ids + i * layer_bytes, s->record.expert_id, layer_bytes);
    for (size_t r = 0; r < s->ranks; r++) {
        for (size_t i = 0; i < copies; i++)
            SPW_TRY(spw_layout_append(s->layout, r, (spw_segment){i * tokens + r * each, (uint32_t)each, 0}));
    }
    s->record.expert_id = s->ids;
    s->record.tokens = copies * tokens;
    s->bytes = copies * layer_bytes;

cleanup:
    return status;
}

/* Rates a second, and the median of the ratios of runs beside each other. */
typedef struct beside {
    double read, count, share;
} beside;

/* Of one thread its own time, so that other work on the machine counts little; of several the clock's. */
static double now_s(int threads) {
    double own = 0.0;
    return threads <= 1 && spw_clock_read(CLOCK_THREAD_CPUTIME_ID, &own) ? own : spw_clock_s();
}

/* All counts together beside a sum of the same bytes, in turn. */
static spw_status count_in_memory(const sample *s, size_t group_ranks, int threads, beside *out) {
    spw_counts *counts = NULL;
    double read[REPEATS], count[REPEATS], share[REPEATS];
    uint64_t sum = 0;
    const spw_placement placement = {s->ranks, group_ranks, NODE, s->record.experts};
    const int before = omp_get_max_threads();
    spw_status status = spw_counts_create(placement, 1, &counts);
    if (status != SPW_OK) return status;
    omp_set_num_threads(threads);
    for (int i = 0; i < REPEATS && status == SPW_OK; i++) {
        const double start = now_s(threads);
        sum += spw_memory_read(s->ids, s->bytes / sizeof(uint64_t));
        const double between = now_s(threads);
        status = spw_counts_fill(counts, &s->record, s->layout);
        read[i] = (double)s->bytes / (between - start);
        count[i] = (double)(s->record.tokens * s->record.top_k) / (now_s(threads) - between);
        share[i] = count[i] * (double)s->record.id_bytes / read[i];
    }
    omp_set_num_threads(before);
    spw_counts_destroy(counts);
    if (status != SPW_OK || sum == 1) return status;
    *out = (beside){spw_quantile(read, REPEATS, 0.5), spw_quantile(count, REPEATS, 0.5),
                    spw_quantile(share, REPEATS, 0.5)};
    return SPW_OK;
}

/* numpy counting n[s][x] of as many choices a token, in a process of its own; 0 when there is no numpy. */
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
                   python, (size_t)NUMPY_TOKENS, s->record.top_k, s->record.experts, s->ranks,
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
    file = spw_hdf5_open_unlocked(path);
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

static spw_status generate(char *path, bool many) {
    int descriptor = mkstemp(path);
    if (descriptor < 0) return spw_fail(SPW_EIO, "%s: cannot be created", path);
    (void)close(descriptor);
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = many ? MANY_LAYERS : LAYERS,
                                      .steps = many ? 1 : 2,
                                      .ranks = many ? MANY_RANKS : RANKS,
                                      .tokens_per_rank = TOKENS,
                                      .seed = 1,
                                      .counts_only = many,
                                      .distribution_text = "zipf:exponent=0.8",
                                      .generator = "spillway bench replay"};
    spw_status status = spw_distribution_parse("zipf:exponent=0.8", &settings.distribution);
    return status == SPW_OK ? spw_generate_trace(&settings, path) : status;
}

/* Processor seconds of this process, or of those that it waited for. */
static double used_s(int whose) {
    struct rusage use;
    (void)getrusage(whose, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Counts of 1,024 ranks, made and then replayed by a process of its own. */
static spw_status bench_many(void) {
    char path[] = "/tmp/spillway_bench_XXXXXX", program[1024] = {0}, command[2048];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return spw_fail(SPW_EIO, "/proc/self/exe cannot be read");
    const double begun = used_s(RUSAGE_SELF), waited = used_s(RUSAGE_CHILDREN), start = spw_clock_s();
    spw_status status = generate(path, true);
    const double made = spw_clock_s(), made_used = used_s(RUSAGE_SELF);
    (void)snprintf(command, sizeof command,
                   "'%s' replay '%s' --model deepseek-v3 --cluster h200:8x128 --expert-parallel 64 "
                   "--sequences-per-gpu 1 --sequence-length 4096 --scheme gmm --scheme gmm-deepep >/dev/null",
                   program, path);
    if (status == SPW_OK && system(command) != 0) /* NOLINT(bugprone-command-processor,cert-env33-c) */
        status = spw_fail(SPW_EIO, "the replay of 1,024 ranks failed");
    (void)unlink(path);
    if (status != SPW_OK) return status;
    printf("%-58s %10.1f s  (%.1f s of processor time)\n",
           "counts of 1,024 ranks generated, 4 layers, 134 M choices", made - start, made_used - begun);
    printf("%-58s %10.1f s  (%.1f s of processor time)\n", "replayed on 1,024 GPUs, gmm and gmm-deepep",
           spw_clock_s() - made, used_s(RUSAGE_CHILDREN) - waited);
    return SPW_OK;
}

static void print_rate(const char *what, double per_s, const char *unit, const char *note) {
    printf("%-58s %10.3f %s%s\n", what, per_s / 1e9, unit, note);
}

/* The file read plainly and read and counted, in turn. */
static spw_status bench_file(const char *path, size_t group) {
    double plain[FILE_REPEATS], ours[FILE_REPEATS], ratio[FILE_REPEATS], work[FILE_REPEATS], open_s = 0.0;
    char note[128];
    for (int i = 0; i < FILE_REPEATS; i++) {
        const double start = used_s(RUSAGE_SELF);
        spw_status status = plain_hdf5(path, &plain[i]);
        const double between = used_s(RUSAGE_SELF);
        if (status == SPW_OK) status = count_file(path, group, &open_s, &ours[i]);
        if (status != SPW_OK) return status;
        ratio[i] = ours[i] / plain[i];
        work[i] = (between - start) / (used_s(RUSAGE_SELF) - between);
    }
    const double least = spw_quantile(ratio, FILE_REPEATS, 0.0),
                 most = spw_quantile(ratio, FILE_REPEATS, 1.0);
    print_rate("plain HDF5 read of the file, nothing counted", spw_quantile(plain, FILE_REPEATS, 0.5),
               "G assignments/s", "");
    (void)snprintf(note, sizeof note, "  (%.2fx the plain read, %.2f to %.2f)",
                   spw_quantile(ratio, FILE_REPEATS, 0.5), least, most);
    print_rate("read and counted from the file, all cores", spw_quantile(ours, FILE_REPEATS, 0.5),
               "G assignments/s", note);
    printf("%-58s %10.2f\n", "processor seconds of the plain read over ours",
           spw_quantile(work, FILE_REPEATS, 0.5));
    printf("%-58s %10.1f ms (a child process probes the file first)\n", "opening the file, not counted above",
           open_s * 1e3);
    return SPW_OK;
}

/* Groups of `group` ranks; *one = on one core. */
static spw_status bench_memory(const sample *s, size_t group, int threads, double *one) {
    beside rates = {0.0, 0.0, 0.0};
    char what[96], note[96];
    spw_status status = SPW_OK;
    for (int i = 0; i < 2; i++) {
        const int used = i == 0 ? 1 : threads;
        SPW_TRY(count_in_memory(s, group, used, &rates));
        (void)snprintf(what, sizeof what, "memory read, %d core%s", used, used == 1 ? "" : "s");
        print_rate(what, rates.read, "GB/s", "");
        (void)snprintf(what, sizeof what, "n, U, Q and sequences from memory, groups of %zu, %d core%s",
                       group, used, used == 1 ? "" : "s");
        (void)snprintf(note, sizeof note, "  (%.1f %% of the memory read)", 100.0 * rates.share);
        print_rate(what, rates.count, "G assignments/s", note);
        if (i == 0) *one = rates.count;
        if (threads == 1) break;
    }

cleanup:
    return status;
}

static spw_status bench(const char *path, const char *python) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    sample s = {.ids = NULL};
    double one = 0.0, wide = 0.0, load[1] = {0.0};
    const int threads = omp_get_max_threads();
    char note[96];
    SPW_TRY(spw_trace_open(path, &trace));
    if (!spw_trace_get_info(trace)->has_tokens)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: a trace of counts has no tokens to count", path));
    SPW_TRY(take_sample(trace, &s));
    spw_trace_close(trace); /* HDF5 will not open it a second time with other settings */
    trace = NULL;
    const size_t group = s.record.experts % NODE == 0 && s.ranks % NODE == 0 ? NODE : 1;
    const size_t widest = s.record.experts % s.ranks == 0 ? s.ranks : group;
    (void)getloadavg(load, 1);
    printf("%zu MB of choices, top-%zu of %zu, %zu ranks, %zu-byte ids, %d threads, load %.1f; G = 1e9, "
           "medians\n\n",
           s.bytes / 1000000, s.record.top_k, s.record.experts, s.ranks, s.record.id_bytes, threads, load[0]);
    SPW_TRY(bench_memory(&s, group, threads, &one));
    if (widest != group) SPW_TRY(bench_memory(&s, widest, threads, &wide));
    const double numpy = numpy_per_s(python, &s);
    if (numpy > 0.0) {
        (void)snprintf(note, sizeof note, "  (ours: %.1fx on 1 core)", one / numpy);
        print_rate("numpy bincount, n alone, 1 core", numpy, "G assignments/s", note);
    } else {
        printf("numpy bincount: skipped, %s has no numpy\n", python);
    }
    SPW_TRY(bench_file(path, group));
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    printf("%-58s %10.0f MB (%zu MB of it the choices in memory)\n", "resident memory at most",
           (double)usage.ru_maxrss * 1024.0 / 1e6, s.bytes / 1000000);

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
    if (o.trace_path != NULL) {
        status = bench(o.trace_path, o.python);
    } else {
        status = generate(path, false);
        if (status == SPW_OK) status = bench(path, o.python);
        (void)unlink(path);
    }
    return status == SPW_OK && o.many ? bench_many() : status;
}
