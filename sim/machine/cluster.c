#include "sim/machine/cluster.h"

#include "base/nearest.h"
#include "sim/machine/cluster_levels.h"
#include "sim/read/coefficient_settings.h"
#include "sim/read/preset.h"
#include "sim/read/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_NODES = 65536 };

/* The rows of one figure; `unsaid`, `assumed` and `nowhere` stand in a file's place: NULL, where it must say. */
#define ROWS(name, low, high, unsaid, assumed, nowhere, text, whence) \
    static const spw_setting name##_rows[] = {{.key = "value", \
                                               .kind = SPW_SETTING_REAL, \
                                               SPW_SETTING_OF(spw_figure, value, double), \
                                               .minimum = (low), \
                                               .maximum = (high), \
                                               .fallback = (unsaid), \
                                               .help = (text)}, \
                                              {.key = "evidence", \
                                               .kind = SPW_SETTING_CHOICE, \
                                               SPW_SETTING_CHOICE_OF(spw_figure, evidence, spw_evidence), \
                                               .choices = spw_evidence_choices, \
                                               .fallback = (assumed), \
                                               .help = "how we know the value"}, \
                                              {.key = "source", \
                                               .kind = SPW_SETTING_TEXT, \
                                               SPW_SETTING_TEXT_OF(spw_figure, source, SPW_FIGURE_SOURCE), \
                                               .fallback = (nowhere), \
                                               .help = (whence)}, \
                                              {.key = NULL}}
#define FIGURE_ROWS(name, low, high, text) \
    ROWS(name, low, high, NULL, NULL, NULL, text, "where the value was read or measured")
#define OPTIONAL_ROWS(name, high, text, whence) ROWS(name, 0, high, "0", "assumed", "", text, whence)

FIGURE_ROWS(hbm_gib, 1, 1e5, "GiB of device memory that a program sees, per GPU");
FIGURE_ROWS(bf16_flops, 1e9, 1e18, "dense bf16 peak per GPU, in FLOP/s");
FIGURE_ROWS(fp8_flops, 1e9, 1e18, "dense fp8 peak per GPU, in FLOP/s");
FIGURE_ROWS(hbm_bytes_per_s, 1e6, 1e15, "device memory bandwidth per GPU, in bytes/s");
FIGURE_ROWS(link_bytes_per_s, 1e6, 1e15, "one GPU to its node, one direction, in bytes/s");
FIGURE_ROWS(nic_bytes_per_s, 1e6, 1e15, "one GPU to other nodes, one direction, in bytes/s");
FIGURE_ROWS(launch_s, 0, 1, "seconds to launch one kernel");
OPTIONAL_ROWS(fp4_flops, 1e18, "dense fp4 peak per GPU, in FLOP/s; 0: its products take no fp4",
              "where it was read");
OPTIONAL_ROWS(gpu_watts, 1e5, "power limit of one GPU, in watts; 0: not said", "where it was read");
OPTIONAL_ROWS(price, 1e6, "price of one GPU for an hour, in any currency; 0: not said",
              "whose price it is, and of when");
/* A list of the points; `number` is its place in `lengths` of spw_gemm_points or spw_link_points. */
#define POINTS_ROW(type, name, number, most, high, text) \
    { \
        .key = #name, .kind = SPW_SETTING_COUNTS, SPW_SETTING_COUNTS_OF(type, name, most, lengths[number]), \
        .minimum = 1, .maximum = (high), .fallback = "", .help = (text) \
    }
#define GEMM_ROW(name, number, high, text) \
    POINTS_ROW(spw_gemm_points, name, number, SPW_GEMM_POINTS, high, text)
#define LINK_ROW(name, number, high, text) \
    POINTS_ROW(spw_link_points, name, number, SPW_LINK_POINTS, high, text)
#define POINTS_EVIDENCE(type) \
    {.key = "evidence", \
     .kind = SPW_SETTING_CHOICE, \
     SPW_SETTING_CHOICE_OF(type, evidence, spw_evidence), \
     .choices = spw_evidence_choices, \
     .fallback = "assumed", \
     .help = "how we know the points"}, \
    { \
        .key = "source", .kind = SPW_SETTING_TEXT, SPW_SETTING_TEXT_OF(type, source, SPW_FIGURE_SOURCE), \
        .fallback = "", .help = "where the points were measured" \
    }

static const spw_setting gemm_rows[] = {
    GEMM_ROW(rows_per_expert, 0, 1e9, "rows of every expert"),
    GEMM_ROW(in, 1, 1e6, "width of the rows that come in"),
    GEMM_ROW(out, 2, 1e6, "width of the rows that go out"),
    GEMM_ROW(forward_tflops, 3, 1e6, "10^12 FLOP/s of the forward pass"),
    GEMM_ROW(input_gradient_tflops, 4, 1e6, "10^12 FLOP/s of the input gradient"),
    GEMM_ROW(weight_gradient_tflops, 5, 1e6, "10^12 FLOP/s of the weight gradient"),
    POINTS_EVIDENCE(spw_gemm_points),
    {.key = NULL}};

static const spw_setting link_rows[] = {
    LINK_ROW(message_bytes, 0, 1e12, "bytes of one message; rising"),
    LINK_ROW(latency_ns, 1, 1e12, "nanoseconds of one message from a GPU to another"),
    LINK_ROW(out_mb_per_s, 2, 1e9, "10^6 bytes/s from one GPU to one other"),
    LINK_ROW(in_mb_per_s, 3, 1e9, "10^6 bytes/s that one GPU fetches from one other"),
    LINK_ROW(exchange_mb_per_s, 4, 1e9, "10^6 bytes/s out of a GPU while all send to all"),
    LINK_ROW(incast_mb_per_s, 5, 1e9, "10^6 bytes/s into one GPU while all others send to it"),
    {.key = "gpus",
     .kind = SPW_SETTING_COUNT,
     SPW_SETTING_OF(spw_link_points, gpus, size_t),
     .minimum = 0,
     .maximum = 1024,
     .fallback = "0",
     .help = "GPUs that took part"},
    POINTS_EVIDENCE(spw_link_points),
    {.key = NULL}};

#define EXCHANGE_ROW(name, number, high, text) \
    { \
        .key = #name, .kind = SPW_SETTING_COUNTS, \
        SPW_SETTING_COUNTS_OF(spw_exchange_points, name, SPW_EXCHANGE_POINTS, lengths[number]), \
        .minimum = 1, .maximum = (high), .fallback = "", .help = (text) \
    }

static const spw_setting exchange_rows[] = {
    EXCHANGE_ROW(bytes, 0, 1e12, "bytes that each GPU receives in one exchange"),
    EXCHANGE_ROW(dispatch_gb_per_s, 1, 1e6, "10^9 bytes/s of a dispatch"),
    EXCHANGE_ROW(combine_gb_per_s, 2, 1e6, "10^9 bytes/s of a combine"),
    {.key = "evidence",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_exchange_points, evidence, spw_evidence),
     .choices = spw_evidence_choices,
     .fallback = "assumed",
     .help = "how we know the points"},
    {.key = "source",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_exchange_points, source, SPW_FIGURE_SOURCE),
     .fallback = "",
     .help = "where the points were measured"},
    {.key = NULL}};

#define KERNEL_ROW(field, text) \
    {.key = #field, \
     .kind = SPW_SETTING_REAL, \
     SPW_SETTING_OF(spw_kernel_figures, field, double), \
     .minimum = 0, \
     .maximum = 1e9, \
     .fallback = "0", \
     .help = (text)},
static const spw_setting kernel_rows[] = {
    SPW_KERNEL_FIGURE_LIST(KERNEL_ROW) POINTS_EVIDENCE(spw_kernel_figures), {.key = NULL}};

#define FIGURE(name, text) \
    { \
        .key = #name, .kind = SPW_SETTING_GROUP, SPW_SETTING_GROUP_OF(spw_cluster, name), \
        .fields = name##_rows, .help = (text) \
    }

static const spw_choice generations[] = {{"other", SPW_GPU_OTHER},
                                         {"hopper", SPW_GPU_HOPPER},
                                         {"blackwell", SPW_GPU_BLACKWELL},
                                         {"cdna3", SPW_GPU_CDNA3},
                                         {"cdna4", SPW_GPU_CDNA4},
                                         {"none", SPW_GPU_NONE},
                                         {NULL, 0}};

static const spw_choice vendors[] = {
    {"other", SPW_VENDOR_OTHER}, {"nvidia", SPW_VENDOR_NVIDIA}, {"amd", SPW_VENDOR_AMD}, {NULL, 0}};

static const spw_setting rows[] = {{.key = "name",
                                    .kind = SPW_SETTING_TEXT,
                                    SPW_SETTING_TEXT_OF(spw_cluster, name, SPW_CLUSTER_NAME),
                                    .help = "name of the cluster"},
                                   {.key = "nodes",
                                    .kind = SPW_SETTING_COUNT,
                                    SPW_SETTING_OF(spw_cluster, nodes, size_t),
                                    .minimum = 1,
                                    .maximum = 65536,
                                    .help = "machines"},
                                   {.key = "gpus_per_node",
                                    .kind = SPW_SETTING_COUNT,
                                    SPW_SETTING_OF(spw_cluster, gpus_per_node, size_t),
                                    .minimum = 1,
                                    .maximum = 1024,
                                    .help = "GPUs a machine"},
                                   {.key = "gpu_generation",
                                    .kind = SPW_SETTING_CHOICE,
                                    SPW_SETTING_CHOICE_OF(spw_cluster, gpu_generation, spw_gpu_generation),
                                    .choices = generations,
                                    .fallback = "other",
                                    .help = "how fp8 recipes hold their operands; none: TPUs, and no times"},
                                   {.key = "gpu_vendor",
                                    .kind = SPW_SETTING_CHOICE,
                                    SPW_SETTING_CHOICE_OF(spw_cluster, gpu_vendor, spw_gpu_vendor),
                                    .choices = vendors,
                                    .fallback = "other",
                                    .help =
                                        "amd: Megatron-Core's products outside experts reach the share of "
                                        "peak that was fitted on AMD's GPUs"},
                                   FIGURE(hbm_gib, "GiB of device memory that a program sees"),
                                   FIGURE(bf16_flops, "dense bf16 peak"),
                                   FIGURE(fp8_flops, "dense fp8 peak"),
                                   {.key = "fp4_flops",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, fp4_flops),
                                    .fields = fp4_flops_rows,
                                    .fallback = "{}",
                                    .help = "dense fp4 peak"},
                                   FIGURE(hbm_bytes_per_s, "device memory bandwidth"),
                                   FIGURE(link_bytes_per_s, "link inside a node"),
                                   FIGURE(nic_bytes_per_s, "link between nodes"),
                                   FIGURE(launch_s, "launch of a kernel"),
                                   {.key = "gpu_watts",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, gpu_watts),
                                    .fields = gpu_watts_rows,
                                    .fallback = "{}",
                                    .help = "power limit of a GPU: what its products sustain"},
                                   {.key = "price_per_gpu_hour",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, price_per_gpu_hour),
                                    .fields = price_rows,
                                    .fallback = "{}",
                                    .help = "price of one GPU for an hour"},
                                   {.key = "gemm",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, gemm),
                                    .fields = gemm_rows,
                                    .fallback = "{}",
                                    .help = "speed of a grouped GEMM at points"},
                                   {.key = "exchange",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, exchange),
                                    .fields = exchange_rows,
                                    .fallback = "{}",
                                    .help = "speed of an expert-parallel exchange at points"},
                                   {.key = "link",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, link),
                                    .fields = link_rows,
                                    .fallback = "{}",
                                    .help = "speed of the links inside a node at points"},
                                   {.key = "kernels",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, kernels),
                                    .fields = kernel_rows,
                                    .fallback = "{}",
                                    .help = "speed of our own kernels, each alone"},
                                   {.key = "levels",
                                    .kind = SPW_SETTING_GROUP,
                                    SPW_SETTING_GROUP_OF(spw_cluster, levels),
                                    .fields = spw_level_rows,
                                    .fallback = "{}",
                                    .help = "the network between the nodes as a hierarchy"},
                                   {.key = NULL}};

static const char *const suffixes[] = {".yaml", ".yml", NULL};

/* Lists of one length, with a source; the keys of rows[0] to rows[5] belong to `group`. */
static spw_status check_lists(const char *where, size_t line, const char *group, const spw_setting *list,
                              const size_t *lengths, size_t lists, const char *source) {
    for (size_t i = 1; i < lists; i++) {
        if (lengths[i] == lengths[0]) continue;
        return spw_fail(SPW_ECONFIG,
                        "%s:%zu: '%s.%s' has %zu elements, '%s.%s' %zu; the lists are one "
                        "length, an element a point",
                        where, line, group, list[i].key, lengths[i], group, list[0].key, lengths[0]);
    }
    if (lengths[0] > 0 && source[0] == '\0')
        return spw_fail(SPW_ECONFIG, "%s:%zu: '%s.source' is missing; say where the points were measured",
                        where, line, group);
    return SPW_OK;
}

/* Rows rise inside a shape. */
static spw_status check_gemm(const char *where, const spw_settings *settings, spw_gemm_points *g) {
    const size_t line = spw_settings_line(settings, "gemm");
    const spw_status status = check_lists(where, line, "gemm", gemm_rows, g->lengths,
                                          sizeof g->lengths / sizeof *g->lengths, g->source);
    if (status != SPW_OK) return status;
    g->points = g->lengths[0];
    for (size_t i = 1; i < g->points; i++) {
        if (g->in[i] == g->in[i - 1] && g->out[i] == g->out[i - 1] &&
            g->rows_per_expert[i] <= g->rows_per_expert[i - 1])
            return spw_fail(
                SPW_ECONFIG,
                "%s:%zu: 'gemm.rows_per_expert' goes from %zu to %zu at point %zu; inside a shape "
                "it must rise",
                where, line, g->rows_per_expert[i - 1], g->rows_per_expert[i], i + 1);
    }
    return SPW_OK;
}

static spw_status check_exchange(const char *where, const spw_settings *settings, spw_exchange_points *e) {
    const size_t line = spw_settings_line(settings, "exchange");
    const spw_status status = check_lists(where, line, "exchange", exchange_rows, e->lengths,
                                          sizeof e->lengths / sizeof *e->lengths, e->source);
    if (status != SPW_OK) return status;
    e->points = e->lengths[0];
    for (size_t i = 1; i < e->points; i++) {
        if (e->bytes[i] <= e->bytes[i - 1])
            return spw_fail(SPW_ECONFIG,
                            "%s:%zu: 'exchange.bytes' goes from %zu to %zu at point %zu; it must rise", where,
                            line, e->bytes[i - 1], e->bytes[i], i + 1);
    }
    return SPW_OK;
}

static spw_status check_link(const char *where, const spw_settings *settings, spw_link_points *l) {
    const size_t line = spw_settings_line(settings, "link");
    const spw_status status = check_lists(where, line, "link", link_rows, l->lengths,
                                          sizeof l->lengths / sizeof *l->lengths, l->source);
    if (status != SPW_OK) return status;
    l->points = l->lengths[0];
    if (l->points > 0 && l->gpus < 2)
        return spw_fail(SPW_ECONFIG, "%s:%zu: 'link.gpus' is %zu; points are measured between at least 2",
                        where, line, l->gpus);
    for (size_t i = 1; i < l->points; i++) {
        if (l->message_bytes[i] <= l->message_bytes[i - 1])
            return spw_fail(SPW_ECONFIG,
                            "%s:%zu: 'link.message_bytes' goes from %zu to %zu at point %zu; it must rise",
                            where, line, l->message_bytes[i - 1], l->message_bytes[i], i + 1);
    }
    return SPW_OK;
}

static spw_status check_kernels(const char *where, const spw_settings *settings,
                                const spw_kernel_figures *k) {
    if (!(k->copy_gb_per_s > 0.0) || k->source[0] != '\0') return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s:%zu: 'kernels.source' is missing; say where the figures were measured",
                    where, spw_settings_line(settings, "kernels"));
}

static spw_status check_price(const char *where, const spw_settings *settings, const spw_figure *price) {
    if (!(price->value > 0.0) || price->source[0] != '\0') return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s:%zu: 'price_per_gpu_hour.source' is missing; say whose price it is",
                    where, spw_settings_line(settings, "price_per_gpu_hour"));
}

spw_status spw_cluster_parse(const char *where, const char *text, size_t length, spw_cluster *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    if (status == SPW_OK) status = check_gemm(where, settings, &out->gemm);
    if (status == SPW_OK) status = check_exchange(where, settings, &out->exchange);
    if (status == SPW_OK) status = check_link(where, settings, &out->link);
    if (status == SPW_OK) status = check_kernels(where, settings, &out->kernels);
    if (status == SPW_OK)
        status = spw_levels_check(where, spw_settings_line(settings, "levels"), out, &out->levels);
    if (status == SPW_OK) status = check_price(where, settings, &out->price_per_gpu_hour);
    spw_settings_close(settings);
    return status;
}

/* A preset in another size. */
typedef struct sized_name {
    const char *preset;          /* NULL: the name is no such name */
    size_t nodes, gpus_per_node; /* 0: the preset's */
} sized_name;

/* "8x32" to 8 and 32; false for anything else. */
static bool read_pair(const char *text, size_t *first, size_t *second) {
    char *end = NULL;
    if (text[0] < '1' || text[0] > '9') return false;
    const unsigned long one = strtoul(text, &end, 10);
    if (*end != 'x' || end[1] < '1' || end[1] > '9') return false;
    const unsigned long two = strtoul(end + 1, &end, 10);
    if (*end != '\0' || one > MOST_NODES || two > MOST_NODES) return false;
    *first = (size_t)one;
    *second = (size_t)two;
    return true;
}

/* Of "h200-32x8" it is "h200-8x8" with 32 nodes, and so of "h200:8x32", GPUs a node first; of "h200" "h200-8x8" as it is. */
static sized_name size_of(const char *name) {
    sized_name out = {.preset = NULL};
    const size_t colon = strcspn(name, ":");
    const char *dash = strrchr(name, '-');
    size_t stem = strlen(name);
    if (name[colon] == ':') {
        if (!read_pair(name + colon + 1, &out.gpus_per_node, &out.nodes)) return out;
        stem = colon;
    } else if (dash != NULL && read_pair(dash + 1, &out.nodes, &out.gpus_per_node)) {
        stem = (size_t)(dash - name);
    }
    for (const char *const *preset = spw_cluster_names; *preset != NULL; preset++) {
        const char *cut = strrchr(*preset, '-');
        if (cut == NULL || (size_t)(cut - *preset) != stem || strncasecmp(*preset, name, stem) != 0) continue;
        out.preset = *preset;
        break;
    }
    return out;
}

/* The name of a preset ends in its size. */
static void name_size(spw_cluster *c) {
    size_t nodes = 0, gpus = 0;
    char *dash = strrchr(c->name, '-');
    if (dash == NULL || !read_pair(dash + 1, &nodes, &gpus)) return;
    (void)snprintf(dash, sizeof c->name - (size_t)(dash - c->name), "-%zux%zu", c->nodes, c->gpus_per_node);
}

/* Characters of the name in front of its size, as 7 of "tpu-v5p-16x4". */
static int name_stem(const spw_cluster *c) {
    size_t nodes = 0, gpus = 0;
    const char *dash = strrchr(c->name, '-');
    return (int)(dash != NULL && read_pair(dash + 1, &nodes, &gpus) ? (size_t)(dash - c->name)
                                                                    : strlen(c->name));
}

static const char *size_words(size_t nodes, size_t gpus, char out[SPW_CLUSTER_WORDS]) {
    (void)snprintf(out, SPW_CLUSTER_WORDS, "%zu node%s of %zu GPU%s", nodes, nodes == 1 ? "" : "s", gpus,
                   gpus == 1 ? "" : "s");
    return out;
}

const char *spw_cluster_words(const spw_cluster *c, char out[SPW_CLUSTER_WORDS]) {
    return size_words(c->nodes, c->gpus_per_node, out);
}

const char *spw_cluster_name_words(const char *name, char out[SPW_CLUSTER_WORDS]) {
    size_t nodes = 0, gpus = 0;
    const char *dash = strrchr(name, '-');
    out[0] = '\0';
    return dash != NULL && read_pair(dash + 1, &nodes, &gpus) ? size_words(nodes, gpus, out) : out;
}

spw_status spw_cluster_resize(spw_cluster *c, size_t gpus) {
    const size_t node = c->whole_node > 0 ? c->whole_node : c->gpus_per_node;
    if (gpus > node && gpus % node != 0) {
        size_t part = node; /* as 64 of the 72 GPUs of a rack */
        char way[192] = "";
        while (gpus % part != 0) part--;
        if (node > 8 && part > node / 2)
            (void)snprintf(way, sizeof way, ", or use %zu of each node: --cluster %.*s:%zux%zu", part,
                           (int)(strcspn(c->name, "-")), c->name, part, gpus / part);
        return spw_fail(SPW_ECONFIG,
                        "%zu GPUs are no whole nodes of %zu, as cluster '%s' has; take %zu or %zu%s", gpus,
                        node, c->name, gpus / node * node, (gpus / node + 1) * node, way);
    }
    if (gpus / node > MOST_NODES)
        return spw_fail(SPW_ECONFIG, "%zu GPUs are more than %d nodes of %zu", gpus, MOST_NODES, node);
    c->whole_node = node, c->nodes = gpus > node ? gpus / node : 1;
    c->gpus_per_node = gpus > node ? node : gpus;
    name_size(c);
    return spw_levels_fit(c);
}

static spw_status set_size(const sized_name *sized, const char *name, spw_cluster *c) {
    if (sized->nodes == 0) return SPW_OK;
    if (sized->gpus_per_node > c->gpus_per_node)
        return spw_fail(
            SPW_ECONFIG,
            "cluster '%.60s' has %zu GPUs a node, and a node of '%s' has %zu; write %zu or fewer, as "
            "in %.*s:%zux%zu (GPUs of a node x nodes)",
            name, sized->gpus_per_node, c->name, c->gpus_per_node, c->gpus_per_node, name_stem(c), c->name,
            c->gpus_per_node, sized->gpus_per_node);
    c->preset_node = c->gpus_per_node;
    c->nodes = sized->nodes;
    c->gpus_per_node = sized->gpus_per_node;
    name_size(c);
    return spw_levels_fit(c);
}

/* Presets by the names that go before a colon. */
static spw_status refuse_sized(const char *name) {
    char known[512] = "", word[64], stem[64], best[64] = "";
    size_t used = 0;
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(name, ":"), name);
    spw_nearest nearest = {.text = word};
    for (const char *const *preset = spw_cluster_names; *preset != NULL && used < sizeof known; preset++) {
        const char *cut = strrchr(*preset, '-');
        const int length = cut != NULL ? (int)(cut - *preset) : (int)strlen(*preset);
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%.*s", used == 0 ? "" : ", ", length,
                                 *preset);
        (void)snprintf(stem, sizeof stem, "%.*s", length, *preset);
        spw_nearest_offer_name(&nearest, stem);
        if (nearest.best == stem) (void)snprintf(best, sizeof best, "%s", stem), nearest.best = best;
    }
    char guess[160] = "";
    if (nearest.best != NULL && nearest.distance > 0)
        (void)snprintf(guess, sizeof guess, "did you mean '%s%.60s'? ", best, name + strcspn(name, ":"));
    const char *const size = name + strcspn(name, ":") + 1;
    if (nearest.best != NULL && nearest.distance == 0 && size[0] != '\0' &&
        size[strspn(size, "0123456789")] == '\0')
        (void)snprintf(guess, sizeof guess,
                       "did you mean '%s:%.20sx1', one node of %.20s, or --cluster %s --gpus %.20s? ", best,
                       size, size, best, size);
    return spw_fail(SPW_ECONFIG,
                    "cluster '%.60s': %sbefore ':' stands a preset's name (%s), behind it GPUs of a node and "
                    "nodes, each 1 to %d, as in h200:8x16",
                    name, guess, known, MOST_NODES);
}

static spw_status parse_any(const char *where, const char *text, size_t length, void *out) {
    return spw_cluster_parse(where, text, length, out);
}

spw_status spw_cluster_read(const char *name, const char *folder, spw_cluster *out) {
    const spw_preset_kind kind = {"cluster", "a cluster's YAML file", spw_cluster_files, suffixes, 0};
    const sized_name sized = size_of(name);
    const char *const colon = strchr(name, ':');
    spw_preset_text text;
    if (colon != NULL && sized.preset == NULL && colon[1 + strspn(colon + 1, "0123456789x")] == '\0')
        return refuse_sized(name);
    spw_status status = spw_preset_open(&kind, sized.preset != NULL ? sized.preset : name, folder, &text);
    if (status == SPW_OK) status = spw_preset_parse(&text, parse_any, sizeof *out, out);
    if (status == SPW_OK && sized.preset != NULL) status = set_size(&sized, name, out);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_cluster_presets(void) { return spw_cluster_names; }
const spw_setting *spw_cluster_settings(void) { return rows; }
