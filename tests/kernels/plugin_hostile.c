/* A plugin that does in SPW_HOSTILE's words what no plugin should: it ends its process, never comes back, writes to what it reads, or
 * counts rows and elements in too few bits. Tests of the judge: plugin_hostile.py. */
#include "kernels/verify/plugin.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *word) {
    const char *mode = getenv("SPW_HOSTILE");
    return mode != NULL && strcmp(mode, word) == 0;
}

static void right(const spw_kernel_call *c) {
    const float *gate = c->input[0], *up = c->input[1];
    float *out = c->output;
    for (size_t i = 0; i < c->rows * c->out; i++)
        out[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
}

static void crash(void) { (void)raise(SIGSEGV); }

static void close_all(void) {
    for (int file = 0; file < 256; file++) (void)close(file);
}

static void spin(void) {
    for (volatile int go = 1; go;) {
    }
}

static void sleep_on(void) {
    for (;;) (void)pause();
}

static void leave(void) { exit(0); }
static void leave_at_once(void) { _exit(0); }
static void end_thread(void) { pthread_exit(NULL); }
static void be_killed(void) { (void)kill(getpid(), SIGKILL); }
static void split(void) { (void)fork(); }

static int swiglu(const spw_kernel_call *c) {
    static const struct {
        const char *word;
        void (*act)(void);
    } acts[] = {{"exit", leave},     {"_exit", leave_at_once}, {"pthread_exit", end_thread}, {"abort", abort},
                {"crash", crash},    {"kill", be_killed},      {"close", close_all},         {"spin", spin},
                {"sleep", sleep_on}, {"fork", split}};
    right(c);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (is(acts[i].word)) acts[i].act();
    if (is("every eighth call")) {
        static int calls;
        if (calls++ == 7) crash();
    }
    if (is("input")) ((float *)c->input[1])[c->rows * c->out - 1] += 1;
    if (is("print")) printf("hello from the plugin\n");
    if (is("refuse")) return 1;
    return 0;
}

/* Where row r begins, as it is counted. */
static int64_t row_at(size_t r, size_t width) {
    if (is("16 bits of rows")) return (int64_t)((uint16_t)r * (uint64_t)width);
    if (is("16 bits of elements")) return (uint16_t)(r * width);
    if (is("float rows")) return (int64_t)((float)r * (float)width);
    if (is("32 bits")) return (int32_t)(uint32_t)(r * width);
    if (is("unsigned 32 bits")) return (uint32_t)(r * width);
    return (int64_t)(r * width);
}

static int grouped_gemm(const spw_kernel_call *c) {
    const float *x = c->input[0], *w = c->input[1];
    const size_t in_step = c->transposed ? 1 : c->out, out_step = c->transposed ? c->in : 1;
    float *y = c->output;
    for (size_t e = 0; e < c->experts; e++) {
        const float *own = w + row_at(e, c->in * c->out);
        for (size_t r = (size_t)c->offset[e]; r < (size_t)c->offset[e + 1]; r++) {
            const float *row = x + row_at(r, c->in);
            float *to = y + (is("input") ? (int64_t)(r * c->out) : row_at(r, c->out));
            for (size_t o = 0; o < c->out; o++) {
                float sum = 0;
                for (size_t i = 0; i < c->in; i++) sum += row[i] * own[i * in_step + o * out_step];
                to[o] = sum;
            }
        }
    }
    if (is("offset")) ((int32_t *)c->offset)[0] = 1;
    if (is("sparse input")) ((float *)c->input[0])[c->in * 9] = 1;
    return 0;
}

static spw_plugin_table table = {
    .version = SPW_PLUGIN_VERSION,
    .name = "hostile",
    .memory = SPW_MEMORY_HOST,
    .types = 1 << SPW_TYPE_FLOAT,
    .function = {[SPW_KERNEL_GROUPED_GEMM] = grouped_gemm, [SPW_KERNEL_SWIGLU] = swiglu}};

const spw_plugin_table *spw_plugin(void) {
    if (is("exit in spw_plugin")) exit(0);
    if (is("no table")) return (const spw_plugin_table *)8; /* no address of anything */
    return &table;
}

__attribute__((constructor)) static void begin(void) {
    if (is("exit in constructor")) exit(0);
}
