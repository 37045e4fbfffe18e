/* libspillway: what the program spillway knows, as a library. Routing traces are read and written; a replay, a plan, an
 * explanation or a model is asked for and comes back as JSON; the reference's operations say what a kernel of a
 * Mixture-of-Experts layer should compute, and the judge says whether it did.
 *
 * Nothing here prints, ends the program, catches signals or keeps state, but for the message of a thread's latest failure:
 * a process may write again what it wrote or read, once the call has returned or the reader is closed.
 * Every function may be called from any thread; one reader, writer or answer belongs to one thread at a time. Calls that
 * read or write files wait for each other, because HDF5 does not allow more; each uses all cores (OMP_NUM_THREADS).
 *
 * A question (spw_ask) is answered in a child process, which takes a library that fails, for want of memory or by itself, with it; the
 * call then returns SPW_CODE_MEMORY. A reader's file is first looked at by such a child. Readers and writers themselves work in your
 * process: where an allocation fails inside of HDF5 or OpenMP, these may end it. A full disk never does.
 *
 * A forked child may use everything here, with one thread, because OpenMP's threads are not copied: also a reader of its parent,
 * but not a writer. fork() waits up to 10 s for a call of another thread; when that lasts longer, the child's calls
 * that meet files return SPW_CODE_IO and say so.
 *
 * Functions that can fail return a spw_code; spw_last_error() then says what was found, where, and what would be right. A NULL
 * that is not allowed below is SPW_CODE_ARGUMENT; an array without elements may be NULL.
 * Arguments are borrowed. Matrices are row-major. */
#ifndef SPILLWAY_SPILLWAY_H
#define SPILLWAY_SPILLWAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum spw_code {
    SPW_CODE_OK,
    SPW_CODE_MISMATCH, /* a check was made and failed; what it found is there */
    SPW_CODE_ARGUMENT, /* an argument cannot be */
    SPW_CODE_CONFIG,   /* a job, a model or a cluster cannot be used */
    SPW_CODE_IO,       /* a file could not be read or written */
    SPW_CODE_FORMAT,   /* a file has the wrong content */
    SPW_CODE_MEMORY,   /* out of memory */
    SPW_CODE_DEVICE    /* no GPU, or a call of one failed */
} spw_code;

/* As in "0.20.0". */
const char *spw_version(void);
/* What went wrong last on this thread; "" if nothing did. Valid until the thread's next failure. */
const char *spw_last_error(void);

/* --- Questions ---
 * `command` is replay, plan, flags, explain, job, model, report, score, verify, trace info, trace verify, trace generate, trace
 * import, trace merge or trace slice; the arguments are those of the command line (docs/commands.md), as in
 * {"trace.h5", "--job", "job.yaml"}. `flags` takes those of plan, with --flags NAME. The answer is the JSON that `--format json`
 * prints (docs/result_format.md), of `flags` the text of the flags, and "" of report and of what writes a trace.
 * *out is NULL where there is no answer; after SPW_CODE_MISMATCH (trace verify, verify, model --check) there is one. */
typedef struct spw_answer spw_answer;
spw_code spw_ask(const char *command, size_t arguments, const char *const *argument, spw_answer **out);
void spw_answer_destroy(spw_answer *answer); /* NULL is fine */
/* Both live as long as the answer, "" of NULL. The notes are what the program says on standard error, "" if nothing. */
const char *spw_answer_json(const spw_answer *answer);
const char *spw_answer_notes(const spw_answer *answer);
/* One number of the JSON: keys and positions, joined by dots, as in "rows.0.memory.peak_bytes". SPW_CODE_ARGUMENT: nothing is
 * there, or no number. */
spw_code spw_answer_real(const spw_answer *answer, const char *path, double *out);
/* Elements of an array or an object, "" for the whole. */
spw_code spw_answer_size(const spw_answer *answer, const char *path, size_t *out);

/* --- Traces, read: docs/trace_format.md --- */
typedef struct spw_reader spw_reader;
typedef struct spw_reader_shape {
    size_t steps, layers, experts, top_k, ranks; /* ranks 0: not known */
    uint64_t tokens;                             /* 0: the trace has counts alone */
    int has_weights;
} spw_reader_shape;
enum { SPW_NO_EXPERT = 65535 };

/* No output of this process replaces the file before the reader is closed: SPW_CODE_ARGUMENT. */
spw_code spw_reader_open(const char *path, spw_reader **out);
void spw_reader_close(spw_reader *reader); /* NULL is fine */
spw_code spw_reader_get_shape(const spw_reader *reader, spw_reader_shape *out);
/* step_id [steps], step_tokens [steps], layer_id [layers]; any may be NULL. */
spw_code spw_reader_get_ids(const spw_reader *reader, int64_t *step_id, uint64_t *step_tokens,
                            int32_t *layer_id);
/* counts [experts]: assignments of one step and layer, both by position. */
spw_code spw_reader_counts(spw_reader *reader, size_t step, size_t layer, uint32_t *counts);
/* Choices of one step and layer, by position: expert [tokens][top_k], SPW_NO_EXPERT where a slot is unused; weight
 * [tokens][top_k] IEEE half bits, or NULL. `capacity`: elements that fit. */
spw_code spw_reader_choices(spw_reader *reader, size_t step, size_t layer, size_t capacity, uint16_t *expert,
                            uint16_t *weight);
/* rank [tokens of the step]: where each token was; SPW_CODE_ARGUMENT where the trace does not know. */
spw_code spw_reader_source_ranks(spw_reader *reader, size_t step, size_t capacity, uint16_t *rank);

/* --- Traces, written ---
 * A step is begun, every layer of it put once, and ended; the file appears under its name when it is finished.
 *
 * What a reader would refuse is SPW_CODE_ARGUMENT, and the call has done nothing: layers that stand there twice, ids of steps that do
 * not rise, 2^32 tokens or more in a step, ranks x experts above 2^25, an expert that is not there or stands there twice in a token,
 * weights that are no finite numbers of at least 0, or that rise although by_falling_weight. After any other
 * failure of begin, put or end the step is half written: drop it, or abandon the writer. */
typedef struct spw_writer spw_writer;
typedef struct spw_writer_settings {
    size_t layers, experts, top_k;
    size_t ranks;                /* source ranks; 0: not known */
    const int32_t *layer_id;     /* [layers] index in the model; NULL: 0, 1, 2 ... */
    int with_weights;            /* weights are put too */
    int by_falling_weight;       /* a token's choices stand by falling weight */
    size_t hidden, model_layers; /* of the model, below 1e15; 0: not said */
    const char *model, *source, *license, *generator, *note; /* NULL: not said */
} spw_writer_settings;

spw_code spw_writer_create(const char *path, const spw_writer_settings *settings, spw_writer **out);
/* source_rank [tokens], NULL when the settings have no ranks; it must live until the step ends. */
spw_code spw_writer_begin_step(spw_writer *writer, int64_t id, uint64_t tokens, const uint16_t *source_rank);
/* expert [tokens][top_k], weight [tokens][top_k] half bits, NULL when the settings have none. */
spw_code spw_writer_put_layer(spw_writer *writer, size_t layer, const uint16_t *expert,
                              const uint16_t *weight);
spw_code spw_writer_end_step(spw_writer *writer);
/* The step under way never was; the steps before it stay, and its id may be used again. OK outside of a step, too. */
spw_code spw_writer_drop_step(spw_writer *writer);
spw_code spw_writer_finish(spw_writer *writer); /* frees the writer, also on failure */
void spw_writer_abandon(spw_writer *writer);    /* leaves no file; NULL is fine */

/* --- The reference's operations, in fp32 with sums in fp64, rounded once ---
 * A result comes with its yardstick, the sum of the magnitudes of its terms (`scale`; NULL: not wanted), from which the
 * judge derives what rounding may do. */
typedef enum spw_product {
    SPW_PRODUCT_FORWARD,
    SPW_PRODUCT_INPUT_GRADIENT,
    SPW_PRODUCT_WEIGHT_GRADIENT
} spw_product;
typedef struct spw_product_shape {
    size_t experts, rows, in, out;
    int transposed; /* weights are [experts][out][in], as PyTorch stores them, not [experts][in][out] */
} spw_product_shape;

/* With w[e][i][o] the weights of the expert e whose rows r are offset[e] <= r < offset[e + 1]:
 *   forward          y[r][o]     = sum over i of left[r][i] right[e][i][o]     left x  [rows][in],  right w
 *   input gradient   dx[r][i]    = sum over o of left[r][o] right[e][i][o]     left dy [rows][out], right w
 *   weight gradient  dw[e][i][o] = sum over r of left[r][i] right[r][o]        left x  [rows][in],  right dy [rows][out]
 * offset [experts + 1]; rows behind the last offset become 0. */
spw_code spw_compute_product(spw_product product, const spw_product_shape *shape, const float *left,
                             const float *right, const size_t *offset, float *result, float *scale);
/* act = gate sigmoid(gate) up, and its gradient. */
spw_code spw_compute_swiglu(size_t count, const float *gate, const float *up, float *act, float *scale);
spw_code spw_compute_swiglu_gradient(size_t count, const float *gate, const float *up, const float *d_act,
                                     float *d_gate, float *d_up, float *gate_scale);
/* score, expert and weight of logits [tokens][experts]: softmax (or sigmoid) scores, the top_k best, ties to the lower id,
 * weights divided by their sum if `renormalize`. score [tokens][experts], expert and weight [tokens][top_k]. */
spw_code spw_compute_router(size_t tokens, size_t experts, size_t top_k, int sigmoid, int renormalize,
                            const float *logits, float *score, int32_t *expert, float *weight);
/* The stable order by expert of choices [tokens][top_k], below 0 where there is none: offset [experts + 1], row
 * [tokens][top_k] (-1: none), assignment [tokens * top_k], its inverse (rows behind offset[experts] are left). */
spw_code spw_compute_order(size_t tokens, size_t top_k, size_t experts, const int32_t *expert, size_t *offset,
                           int32_t *row, int32_t *assignment);
/* rows[r] = x[token of row r]; x [tokens][width]. */
spw_code spw_compute_permute(size_t tokens, size_t top_k, size_t experts, const int32_t *expert, size_t width,
                             const float *x, float *rows);
/* y[t] = sum over k of weight[t][k] rows[row[t][k]]; weight NULL: 1. */
spw_code spw_compute_unpermute(size_t tokens, size_t top_k, size_t experts, const int32_t *expert,
                               size_t width, const float *rows, const float *weight, float *y, float *scale);

/* --- The judge ---
 * A sum of `terms` products in fp32 may be off by d = (terms + 2) 2^-24 scale (Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd ed., eq. 3.5); stored as bf16 it lies between bf16(want - d) and bf16(want + d). */
typedef struct spw_comparison {
    size_t elements, failed;
    size_t worst_at; /* the element of the largest error in units of its bound */
    double worst;    /* that error; at most 1 passes; infinity for NaN and where nothing is allowed */
    double got, want, low, high; /* there: what came, what would be right, and what would have passed */
} spw_comparison;
spw_code spw_compare_bf16(size_t count, size_t terms, const uint16_t *got, const float *want,
                          const float *scale, spw_comparison *out);
spw_code spw_compare_float(size_t count, size_t terms, const float *got, const float *want,
                           const float *scale, spw_comparison *out);

/* --- Cases for a kernel of your own ---
 * Those of `spillway verify --plugin` (docs/check_your_kernel.md), for a caller who runs the kernel himself: <spillway/plugin.h>
 * says what each kernel gets and must do. `kernel` is a name from there, as in "grouped_gemm"; `type` is "bf16", "fp16" or "float".
 * `record` is NULL for made-up routings, or the path of a routing record, whose choices the cases then have. */
typedef struct spw_case spw_case;
typedef struct spw_case_facts {
    const char *name; /* size, routing, numbers and layout */
    const struct spw_kernel_call
        *call;             /* host memory; the kernel writes to call->output, which is full of NaN */
    size_t input_bytes[3]; /* 0: that input is not there */
    size_t output_bytes;
    size_t guard_bytes; /* readable and writable before and behind the output; they must stay as they are */
} spw_case_facts;

spw_code spw_case_count(const char *kernel, const char *record, size_t *out);
/* number < the count. */
spw_code spw_case_create(const char *kernel, const char *type, const char *record, size_t number,
                         spw_case **out);
void spw_case_destroy(spw_case *c); /* NULL is fine */
/* What it says lives as long as the case; nothing, and NULL for the call, of a case that is NULL. */
void spw_case_get_facts(const spw_case *c, spw_case_facts *out);
/* Of what stands in the output now. SPW_CODE_MISMATCH: an element lies outside of its bound or a guard was written to. */
spw_code spw_case_judge(const spw_case *c, spw_comparison *out);

#ifdef __cplusplus
}
#endif
#endif
