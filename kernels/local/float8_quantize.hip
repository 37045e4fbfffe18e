/* Rows in bf16 to codes and scales. A work-group has 128 rows of one expert by 128 columns: a block of each of these rows and of each of these
 * columns, so that both forms come of one pass. Rows are coded as they come, columns out of shared memory. */
#include "kernels/local/activation_math.h"
#include "kernels/local/float8_launch.h"
#include "kernels/local/float8_math.h"

enum {
    THREADS = 256,
    PIECES = FLOAT8_BLOCK / 8, /* of a row, of eight numbers */
    SHARES = FLOAT8_BLOCK * PIECES / THREADS,
    HALF = FLOAT8_BLOCK / 2, /* of a column: a thread's share */
    ROW_WORDS = FLOAT8_BLOCK / 2
};

/* Whose rows a work-group has: first of the arrays, and how many; none where no expert has this block. */
struct float8_tile {
    int block, row, count, column;
};

GPU_DEVICE int first_block(const int *offset, int expert) { return offset[expert] / FLOAT8_BLOCK + expert; }

GPU_DEVICE float8_tile tile_of(const spw_float8_gpu &q) {
    const int across = (q.width + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK;
    float8_tile t = {gpu_block() / across, 0, 0, gpu_block() % across * FLOAT8_BLOCK};
    int low = 0, high = q.experts; /* first_block grows with the expert, that of `high` is behind the block */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (first_block(q.offset, middle) <= t.block)
            low = middle;
        else
            high = middle;
    }
    const int from = (t.block - first_block(q.offset, low)) * FLOAT8_BLOCK;
    t.row = q.offset[low] + from;
    t.count = q.offset[low + 1] - t.row;
    if (t.count > FLOAT8_BLOCK) t.count = FLOAT8_BLOCK;
    return t;
}

GPU_DEVICE gpu_bytes16 packed(const gpu_bf16x8 &x) {
    gpu_bytes16 words;
    words.x = x.v[0] | (unsigned)x.v[1] << 16, words.y = x.v[2] | (unsigned)x.v[3] << 16;
    words.z = x.v[4] | (unsigned)x.v[5] << 16, words.w = x.v[6] | (unsigned)x.v[7] << 16;
    return words;
}

/* Where rows come from: eight numbers of a row. A source with SUMS also has a share of a sum along the row. */
struct plain_rows {
    static constexpr bool SUMS = false;
    const spw_bf16 *x;
    int width;
    GPU_MEMBER gpu_bytes16 operator()(long row, int piece, float &) const {
        return ((const gpu_bytes16 *)x)[row * (width / 8) + piece];
    }
};
struct gathered_rows {
    static constexpr bool SUMS = false;
    const spw_bf16 *x;
    const int *assignment;
    int width, top_k;
    GPU_MEMBER gpu_bytes16 operator()(long row, int piece, float &) const {
        return ((const gpu_bytes16 *)x)[(long)(assignment[row] / top_k) * (width / 8) + piece];
    }
};
template <int FORM> struct activated_rows {
    static constexpr bool SUMS = false;
    const spw_swiglu_gpu &s;
    GPU_MEMBER gpu_bytes16 operator()(long row, int piece, float &) const {
        return packed(act_eight<FORM>(s, row, piece));
    }
};
/* The same times the row's factor, and the factor's gradient. */
template <int FORM> struct weighted_rows {
    static constexpr bool SUMS = true;
    const spw_float8_backward_gpu &b;
    GPU_MEMBER gpu_bytes16 operator()(long row, int piece, float &share) const {
        const eight<FORM> of(b.s, row, piece);
        const float factor = b.weight[b.assignment[row]];
        float d[8];
        load_eight(b.d_act, row * (b.s.ffn / 8) + piece, 1, d);
        gpu_bf16x8 out;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float act = act_one(b.s, of, j);
            share = __builtin_fmaf(d[j], act, share);
            out.v[j] = gpu_to_bf16(factor * act);
        }
        return packed(out);
    }
};
/* Gradients of gate and up. A piece of these lies where one of gate and up does: which of act's eight it belongs to follows. */
template <int FORM> struct slope_rows {
    static constexpr bool SUMS = false;
    const spw_float8_backward_gpu &b;
    GPU_MEMBER gpu_bytes16 operator()(long row, int piece, float &) const {
        typedef eight<FORM> form;
        const int across = b.s.ffn / 8, of_act = form::PAIRS ? piece / 2 : piece % across;
        float d[8];
        load_eight(b.d_act, row * across + of_act, b.weight[b.assignment[row]], d);
        const slopes_eight slopes = slopes_of(b.s, form(b.s, row, of_act), d);
        const bool second = form::PAIRS ? piece % 2 != 0 : piece >= across;
        return packed(second && !form::ONE ? slopes.second : slopes.first);
    }
};

/* One block of a row: 16 neighbouring lanes have a piece each. */
GPU_DEVICE void code_row(const spw_float8_gpu &q, gpu_bytes16 x, long row, int column) {
    unsigned largest = float8_largest(x.x, float8_largest(x.y, float8_largest(x.z, float8_largest(x.w, 0))));
#pragma unroll
    for (int step = 1; step < PIECES; step *= 2) {
        const unsigned other = gpu_shuffle(largest, gpu_lane() ^ step);
        largest = other > largest ? other : largest;
    }
    const float scale = float8_scale(largest);
    if (row < 0) return;
    const int across = (q.width + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK;
    if (column < q.width) {
        unsigned *to = (unsigned *)(q.code + row * q.width + column);
        to[0] = float8_codes(x.x, x.y, scale), to[1] = float8_codes(x.z, x.w, scale);
    }
    if (column % FLOAT8_BLOCK == 0) q.scale[row * across + column / FLOAT8_BLOCK] = scale;
}

/* Half of a column's block a thread; `held`: two rows in a word. */
GPU_DEVICE void code_column(const spw_float8_gpu &q, const float8_tile &t, const unsigned (&held)[HALF / 2],
                            float scale, int column, int half) {
    const long blocks = q.rows / FLOAT8_BLOCK + q.experts;
    gpu_bytes16 *to =
        (gpu_bytes16 *)(q.column_code + (column * blocks + t.block) * FLOAT8_BLOCK + half * HALF);
#pragma unroll
    for (int i = 0; i < HALF / 16; i++) {
        const unsigned *from = held + i * 8;
        gpu_bytes16 codes;
        codes.x = float8_codes(from[0], from[1], scale), codes.y = float8_codes(from[2], from[3], scale);
        codes.z = float8_codes(from[4], from[5], scale), codes.w = float8_codes(from[6], from[7], scale);
        to[i] = codes;
    }
    if (half == 0) q.column_scale[t.block * (long)q.width + column] = scale;
}

/* The sum of what the lanes of a row have, to part `column` / 128 of it. */
GPU_DEVICE void store_sum(const spw_float8_backward_gpu &b, float share, long row, int column) {
#pragma unroll
    for (int step = 1; step < PIECES; step *= 2) share += gpu_shuffle_float(share, gpu_lane() ^ step);
    if (row >= 0 && column % FLOAT8_BLOCK == 0)
        b.row_sum[(long)(column / FLOAT8_BLOCK) * b.s.rows + row] = share;
}

template <typename SOURCE> GPU_DEVICE void quantize(const spw_float8_gpu &q, const SOURCE &source) {
    alignas(16) __shared__ unsigned numbers[FLOAT8_BLOCK * ROW_WORDS];
    const float8_tile t = tile_of(q);
    if (t.count <= 0) return;
    const int piece = gpu_thread() % PIECES, column = t.column + piece * 8;
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int row = gpu_thread() / PIECES + i * (THREADS / PIECES);
        const bool there = row < t.count;
        float share = 0;
        const gpu_bytes16 x =
            there && column < q.width ? source(t.row + row, column / 8, share) : gpu_zeros16();
        if constexpr (SOURCE::SUMS) store_sum(source.b, share, there ? t.row + row : -1, column);
        if (q.code != nullptr) code_row(q, x, there ? t.row + row : -1, column);
        *(gpu_bytes16 *)(numbers + row * ROW_WORDS + piece * 4) = x;
    }
    if (q.column_code == nullptr) return;
    gpu_barrier();
    const int own = gpu_thread() % FLOAT8_BLOCK, half = gpu_thread() / FLOAT8_BLOCK;
    const unsigned short *from = (const unsigned short *)numbers + half * HALF * (2 * ROW_WORDS) + own;
    unsigned held[HALF / 2], most = 0;
#pragma unroll
    for (int i = 0; i < HALF / 2; i++) {
        held[i] = from[2 * i * (2 * ROW_WORDS)] | (unsigned)from[(2 * i + 1) * (2 * ROW_WORDS)] << 16;
        most = float8_largest(held[i], most);
    }
    gpu_barrier(); /* all have their numbers: the memory is free */
    numbers[gpu_thread()] = most;
    gpu_barrier();
    const unsigned other = numbers[(1 - half) * FLOAT8_BLOCK + own];
    if (t.column + own < q.width)
        code_column(q, t, held, float8_scale(other > most ? other : most), t.column + own, half);
}

GPU_KERNEL(THREADS) float8_rows(spw_float8_gpu q, const spw_bf16 *x) { quantize(q, plain_rows{x, q.width}); }
GPU_KERNEL(THREADS)
float8_gathered(spw_float8_gpu q, const spw_bf16 *x, const int *assignment, int top_k) {
    quantize(q, gathered_rows{x, assignment, q.width, top_k});
}
#define OF_ACTIVATION(form, name) \
    GPU_KERNEL(THREADS) float8_##name(spw_float8_gpu q, spw_swiglu_gpu s) { \
        quantize(q, activated_rows<form>{s}); \
    } \
    GPU_KERNEL(THREADS) float8_weighted_##name(spw_float8_gpu q, spw_float8_backward_gpu b) { \
        quantize(q, weighted_rows<form>{b}); \
    } \
    GPU_KERNEL(THREADS) float8_slopes_##name(spw_float8_gpu q, spw_float8_backward_gpu b) { \
        quantize(q, slope_rows<form>{b}); \
    }
OF_ACTIVATION(SPW_FORM_SWIGLU, swiglu)
OF_ACTIVATION(SPW_FORM_SWIGLU_PAIRS, swiglu_pairs)
OF_ACTIVATION(SPW_FORM_GEGLU, geglu)
OF_ACTIVATION(SPW_FORM_GEGLU_PAIRS, geglu_pairs)
OF_ACTIVATION(SPW_FORM_RELU2, relu2)
#undef OF_ACTIVATION

#if GPU_HOST
static unsigned tiles_of(spw_float8_gpu q) {
    const int across = (q.width + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK;
    return q.rows == 0 ? 0 : (unsigned)((q.rows / FLOAT8_BLOCK + q.experts) * across);
}

int spw_launch_float8_rows(spw_float8_gpu q, const spw_bf16 *x, gpu_stream stream) {
    if (tiles_of(q) > 0) float8_rows<<<tiles_of(q), THREADS, 0, stream>>>(q, x);
    return (int)cudaGetLastError();
}

int spw_launch_float8_gathered(spw_float8_gpu q, const spw_bf16 *x, const int *assignment, int top_k,
                               gpu_stream stream) {
    if (tiles_of(q) > 0) float8_gathered<<<tiles_of(q), THREADS, 0, stream>>>(q, x, assignment, top_k);
    return (int)cudaGetLastError();
}

/* Kernels by spw_activation_form. */
#define BY_FORM(name) \
    { name##swiglu, name##swiglu_pairs, name##geglu, name##geglu_pairs, name##relu2 }

int spw_launch_float8_activation(spw_float8_gpu q, spw_swiglu_gpu s, gpu_stream stream) {
    void (*const kernels[])(spw_float8_gpu, spw_swiglu_gpu) = BY_FORM(float8_);
    if (tiles_of(q) > 0) kernels[s.form]<<<tiles_of(q), THREADS, 0, stream>>>(q, s);
    return (int)cudaGetLastError();
}

int spw_launch_float8_weighted(spw_float8_gpu q, spw_float8_backward_gpu b, gpu_stream stream) {
    void (*const kernels[])(spw_float8_gpu, spw_float8_backward_gpu) = BY_FORM(float8_weighted_);
    if (tiles_of(q) > 0) kernels[b.s.form]<<<tiles_of(q), THREADS, 0, stream>>>(q, b);
    return (int)cudaGetLastError();
}

int spw_launch_float8_slopes(spw_float8_gpu q, spw_float8_backward_gpu b, gpu_stream stream) {
    void (*const kernels[])(spw_float8_gpu, spw_float8_backward_gpu) = BY_FORM(float8_slopes_);
    if (tiles_of(q) > 0) kernels[b.s.form]<<<tiles_of(q), THREADS, 0, stream>>>(q, b);
    return (int)cudaGetLastError();
}
#endif
