/* An expert layer's products with what stands around them (grouped_gemm_fused.h), on AMD's matrix cores: the tiles of
 * grouped_gemm_mfma.h, whose rows may be gathered on their way to LDS, and what becomes of their sums. A lane holds four neighbours
 * of a row; with gate and up side by side in b a tile takes 16 columns of gate and the same 16 of up in turns. */
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_products_mfma.h"
#include "kernels/gemm/grouped_gemm_slopes.h"

static constexpr unsigned OUTSIDE = 0xf0000000; /* bytes: behind the end of any array */

GPU_DEVICE words4 load_piece(const void *base, unsigned bytes, unsigned offset) {
#if defined(__AMDGCN__)
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x27000);
    return __builtin_amdgcn_raw_buffer_load_b128(buffer, (int)offset, 0, 0);
#else
    (void)base, (void)bytes, (void)offset;
    return words4{};
#endif
}

/* Of an assignment its token, which is top_k assignments wide: one multiplication. Assignments are below 2^31 / top_k. */
GPU_DEVICE unsigned token_of(unsigned assignment, unsigned inverse) {
    return (unsigned)((unsigned long long)(2 * assignment) * inverse >> 32);
}
GPU_DEVICE unsigned token_inverse(int top_k) { return (0x7fffffffu / (unsigned)top_k) + 1; }

/* Rows of a that begin anywhere: the same piece of four rows, 64 apart. */
struct gathered_rows : share<true, 4> {
    unsigned from[4];

    GPU_MEMBER void start(const spw_gemm_fused_problem &f, const gemm_tile &t) {
        const int thread = gpu_thread();
        const unsigned row_bytes = (unsigned)f.p.a_row * 2;
        base = f.p.a, bytes = (unsigned)(f.top_k > 0 ? f.tokens : f.p.rows) * row_bytes;
        to = place(thread / 4, thread % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = t.m0 + thread / 4 + 64 * i;
            unsigned source = (unsigned)(t.first + row);
            if (f.top_k > 0 && row < t.height) source = (unsigned)(f.assignment[source] / f.top_k);
            from[i] = row < t.height ? source * row_bytes + thread % 4 * 16 : OUTSIDE;
        }
    }
    GPU_MEMBER void load(int left) {
        const bool inside = gpu_thread() % 4 * 8 < left;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = load_piece(base, bytes, inside ? from[i] : OUTSIDE);
            from[i] += ROW_BYTES;
        }
    }
};

/* An operand of the weights' gradient, gathered or in order. group: where the group's rows begin that lie in order. */
struct operand {
    const spw_bf16 *array, *group;
    int width, stride, column0;
};

/* Of 24 bits: multiplied in a quarter of the time. */
GPU_DEVICE unsigned small(unsigned number) { return number & 0xffffff; }

/* Terms of a sum over rows that begin anywhere: a block of LOADS rows by eight columns. Their assignments are loaded a step ahead. */
template <int LOADS> struct gathered_terms : share<false, LOADS> {
    typedef unsigned numbers __attribute__((ext_vector_type(LOADS)));
    const int *assignment;
    unsigned behind, next; /* bytes of assignments up to the group's end, and where the next ones are */
    static constexpr bool AIMED = true;
    numbers assigned, coming; /* of the next load, and of the one behind it */
    unsigned inverse, row_bytes, column, from[LOADS];

    GPU_MEMBER void start(const spw_gemm_fused_problem &f, operand o, const gemm_tile &t) {
        const int along = this->along(), across = this->across();
        assignment = f.assignment, inverse = token_inverse(f.top_k), row_bytes = (unsigned)o.stride * 2;
        behind = (unsigned)(t.first + t.rows) * 4, next = (unsigned)(t.first + along) * 4;
        this->base = o.array, this->bytes = (unsigned)(f.tokens - 1) * row_bytes + (unsigned)o.width * 2;
        this->to = this->first_place();
        column = (unsigned)(o.column0 + across) * 2;
        assigned = load_assigned(), coming = load_assigned();
    }
    GPU_MEMBER numbers load_assigned() {
#if defined(__AMDGCN__)
        const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)assignment, 0, (int)behind, 0x27000);
        const unsigned at = next;
        next += TILE_K * 4;
        if constexpr (LOADS == 4)
            return __builtin_amdgcn_raw_buffer_load_b128(buffer, (int)at, 0, 0);
        else
            return __builtin_amdgcn_raw_buffer_load_b64(buffer, (int)at, 0, 0);
#else
        return numbers{};
#endif
    }
    template <int HALF> GPU_MEMBER void aim(int left) {
        const int along = this->along();
#pragma unroll
        for (int i = HALF * LOADS / 2; i < (HALF + 1) * LOADS / 2; i++) {
            const unsigned row = small(token_of(assigned[i], inverse)) * small(row_bytes);
            from[i] = along + i < left ? row + column : OUTSIDE;
        }
    }
    GPU_MEMBER void load(int) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) this->v[i] = load_piece(this->base, this->bytes, from[i]);
        assigned = coming, coming = load_assigned();
    }
};

/* Four numbers of a row of an array of `bytes` bytes, or two; nothing where it ends. */
template <spw_gemm_element ELEMENT>
GPU_DEVICE sums4 load_four(const spw_bf16 *array, unsigned bytes, unsigned offset) {
#if defined(__AMDGCN__)
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)array, 0, (int)bytes, 0x27000);
    using element = gemm_element<ELEMENT>;
    const words2 w = __builtin_amdgcn_raw_buffer_load_b64(buffer, (int)offset, 0, 0);
    return sums4{element::low(w[0]), element::high(w[0]), element::low(w[1]), element::high(w[1])};
#else
    (void)array, (void)bytes, (void)offset;
    return sums4{};
#endif
}
template <spw_gemm_element ELEMENT>
GPU_DEVICE void store_two(float low, float high, spw_bf16 *array, unsigned bytes, unsigned offset) {
#if defined(__AMDGCN__)
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)array, 0, (int)bytes, 0x27000);
    __builtin_amdgcn_raw_buffer_store_b32(gemm_element<ELEMENT>::pack(low, high), buffer, (int)offset, 0, 0);
#else
    (void)low, (void)high, (void)array, (void)bytes, (void)offset;
#endif
}

/* A group's rows of an array, and where a lane's numbers are in it. */
struct group_rows {
    spw_bf16 *array;
    unsigned bytes, row_bytes;

    GPU_MEMBER group_rows(spw_bf16 *array, const gemm_tile &t, int stride)
        : array(array + (long)t.first * stride), bytes((unsigned)t.height * (unsigned)stride * 2),
          row_bytes((unsigned)stride * 2) {}
    GPU_MEMBER unsigned at(int row, int column, bool inside) const {
        return inside ? (unsigned)row * row_bytes + (unsigned)column * 2 : ~0u;
    }
};

/* How columns of act lie in a tile of b: two matrices of 64 columns each, side by side or in turn, or one of 128. */
template <spw_gemm_between BETWEEN> struct columns_of {
    static constexpr bool PAIRS = BETWEEN == SPW_GEMM_PAIRS, ONE = BETWEEN == SPW_GEMM_RELU2;
    static constexpr int MATRICES = ONE ? 1 : 2, TILE = TILE_N / MATRICES;
};

/* A wave's sums of a tile, from row0 and column0 of act on, to h, where there is one, and act. */
template <spw_gemm_element ELEMENT, spw_gemm_between BETWEEN>
GPU_DEVICE void store_up(const spw_gemm_fused_problem &f, const gemm_tile &t, int row0, int column0,
                         sums4 (&sum)[DOWN][ACROSS]) {
    typedef columns_of<BETWEEN> how;
    int columns = f.p.columns;
    keep_here(columns);
    const int wide = how::MATRICES * columns, lane_row = gpu_lane() % 16, quarter = gpu_lane() / 16;
    const group_rows act(f.p.c, t, f.p.c_row), h(f.h, t, f.h_row);
    const spw_bf16 *bias = t.terms > 0 ? f.curve.bias : nullptr;
    constexpr int BLOCKS = how::ONE || how::PAIRS ? ACROSS : ACROSS / 2;
#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        const int column = how::PAIRS ? column0 + j * 8 + quarter * 2 : column0 + j * 16 + quarter * 4;
        const int beside = how::PAIRS ? 2 * column : column; /* in h */
        const bool inside = column < columns;
        sums4 more = {}, more_up = {};
        if (bias != nullptr) {
            const spw_bf16 *own = bias + (long)t.expert * wide;
            more = load_four<ELEMENT>(own, (unsigned)wide * 2, inside ? (unsigned)beside * 2 : ~0u);
            if (!how::ONE && !how::PAIRS)
                more_up = load_four<ELEMENT>(own, (unsigned)wide * 2,
                                             inside ? (unsigned)(columns + beside) * 2 : ~0u);
        }
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            const int row = row0 + i * 16 + lane_row;
            const sums4 gate = sum[i][how::ONE || how::PAIRS ? j : 2 * j] + more;
            const sums4 up = how::ONE || how::PAIRS ? gate : sum[i][2 * j + 1] + more_up;
            if (f.h != nullptr) {
                store_rounded<ELEMENT>(gate, h.array, h.bytes, h.at(row, beside, inside));
                if (!how::ONE && !how::PAIRS)
                    store_rounded<ELEMENT>(up, h.array, h.bytes, h.at(row, columns + beside, inside));
            }
            if constexpr (how::PAIRS) {
                store_two<ELEMENT>(curve_act(f.curve, gate[0], gate[1]), curve_act(f.curve, gate[2], gate[3]),
                                   act.array, act.bytes, act.at(row, column, inside));
            } else {
                sums4 out;
#pragma unroll
                for (int n = 0; n < 4; n++)
                    out[n] = how::ONE ? relu_squared(gate[n]) : curve_act(f.curve, gate[n], up[n]);
                store_rounded<ELEMENT>(out, act.array, act.bytes, act.at(row, column, inside));
            }
        }
    }
}

/* The kernel's argument once more: what an epilogue needs of it is not kept in registers from tile to tile. */
GPU_DEVICE const spw_gemm_fused_problem &again(const spw_gemm_fused_problem &f) {
#if defined(__AMDGCN__)
    const auto argument = __builtin_amdgcn_kernarg_segment_ptr();
    int nothing = 0;
    keep_here(nothing);
    (void)f;
    return ((const spw_gemm_fused_problem *)argument)[gpu_first(nothing)];
#else
    return f;
#endif
}

template <bool B_INNER, spw_gemm_element ELEMENT, spw_gemm_between BETWEEN>
GPU_DEVICE void multiply_up(const spw_gemm_fused_problem &f) {
    typedef columns_of<BETWEEN> how;
    constexpr bool SIDE_BY_SIDE = !how::ONE && !how::PAIRS;
    alignas(16) __shared__ step_bytes lds[2];
    const int wave = gpu_thread() / 64;
    gemm_walk<SPW_GEMM_ROWS, TILE_M, how::TILE, BAND> walk;
    gemm_tile t;
    walk.start(f.p);
    for (int index = gpu_block(); walk.seek(f.p, index, t); index += f.p.blocks) {
        const spw_gemm_fused_problem &g = again(f);
        const int wide = how::MATRICES * g.p.columns;
        sums4 sum[DOWN][ACROSS] = {};
        if (t.terms > 0) {
            gathered_rows a;
            share<B_INNER, 2, SIDE_BY_SIDE> b;
            a.start(g, t);
            b.start(g.p.b + t.expert * g.p.expert, g.p.b_row, how::PAIRS ? 2 * t.n0 : t.n0, wide, t.terms);
            sum_up<ELEMENT>(a, b, t.terms, lds, wave, sum);
        }
        store_up<ELEMENT, BETWEEN>(again(f), t, t.m0 + wave % 2 * WAVE_M,
                                   t.n0 + wave / 2 * (WAVE_N / how::MATRICES), sum);
    }
}

/* Gradients of a wave's sums s of a tile: d_h and act to memory; dot[i], of the lane's row 16 i: its sum of s act. */
template <spw_gemm_element ELEMENT, spw_gemm_between BETWEEN>
GPU_DEVICE void store_slopes(const spw_gemm_fused_problem &f, const gemm_tile &t, int row0, int column0,
                             const sums4 (&sum)[DOWN][ACROSS], float (&dot)[DOWN]) {
    typedef columns_of<BETWEEN> how;
    int columns = f.p.columns;
    const group_rows act(f.p.c, t, f.p.c_row), h(f.h, t, f.h_row), d_h(f.d_h, t, f.d_h_row);
    const unsigned there = t.terms > 0 ? h.bytes : 0; /* of h, which the tail does not have */
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
        const int row = row0 + i * 16 + gpu_lane() % 16;
        const long at = (long)t.first + row;
        float weight = 1;
        if (f.weight != nullptr && row < t.height && t.terms > 0)
            weight = f.weight[f.assignment != nullptr ? f.assignment[at] : at];
        dot[i] = 0;
        keep_here(columns); /* masks of columns would be kept in registers for all rows */
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
            const int column = column0 + j * 16 + gpu_lane() / 16 * 4;
            const bool inside = column < columns;
            const int first = how::PAIRS ? 2 * column : column, second = how::PAIRS ? first + 4
                                                                         : how::ONE ? first
                                                                                    : columns + first;
            const sums4 one = load_four<ELEMENT>(h.array, there, h.at(row, first, inside));
            const sums4 two = load_four<ELEMENT>(h.array, there, h.at(row, second, inside));
            sums4 by_one, by_two, out;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float gate = !how::PAIRS ? one[n] : n < 2 ? one[2 * n % 4] : two[2 * n % 4];
                const float up = !how::PAIRS ? two[n] : n < 2 ? one[2 * n % 4 + 1] : two[2 * n % 4 + 1];
                const float s = inside ? sum[i][j][n] : 0;
                const curve_slopes slopes = curve_slopes_at<BETWEEN>(f.curve, s, weight, gate, up);
                dot[i] += s * slopes.act;
                out[n] = slopes.act * weight;
                if (!how::PAIRS) {
                    by_one[n] = slopes.gate, by_two[n] = slopes.up;
                } else {
                    sums4 &to = n < 2 ? by_one : by_two;
                    to[2 * n % 4] = slopes.gate, to[2 * n % 4 + 1] = slopes.up;
                }
            }
            store_rounded<ELEMENT>(by_one, d_h.array, d_h.bytes, d_h.at(row, first, inside));
            if (!how::ONE) store_rounded<ELEMENT>(by_two, d_h.array, d_h.bytes, d_h.at(row, second, inside));
            store_rounded<ELEMENT>(out, act.array, act.bytes, act.at(row, column, inside));
        }
        dot[i] += gpu_shuffle_float(dot[i], gpu_lane() ^ 16);
        dot[i] += gpu_shuffle_float(dot[i], gpu_lane() ^ 32);
    }
}

/* Two waves have the columns of a row. */
GPU_DEVICE void store_row_sums(const spw_gemm_fused_problem &f, const gemm_tile &t, const float (&dot)[DOWN],
                               float *shared) {
    static_assert(SPW_GEMM_ROW_SUM_TILE == TILE_N, "a tile's columns make one part of a row's sum");
    const int wave = gpu_thread() / 64, row0 = wave % 2 * WAVE_M + gpu_lane();
    const bool writes = gpu_lane() < 16;
    gpu_barrier(); /* LDS has been read */
    if (wave / 2 == 1 && writes)
#pragma unroll
        for (int i = 0; i < DOWN; i++) shared[row0 + i * 16] = dot[i];
    gpu_barrier();
    if (wave / 2 == 0 && writes) {
        float *to = f.row_sum + (long)(t.n0 / SPW_GEMM_ROW_SUM_TILE) * f.p.rows + t.first + t.m0;
#pragma unroll
        for (int i = 0; i < DOWN; i++)
            if (t.m0 + row0 + i * 16 < t.height) to[row0 + i * 16] = dot[i] + shared[row0 + i * 16];
    }
    gpu_barrier(); /* before the next tile's */
}

template <bool B_INNER, spw_gemm_element ELEMENT, spw_gemm_between BETWEEN>
GPU_DEVICE void multiply_down(const spw_gemm_fused_problem &f) {
    alignas(16) __shared__ step_bytes lds[2];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(f.p);
    for (int index = gpu_block(); walk.seek(f.p, index, t); index += f.p.blocks) {
        const spw_gemm_fused_problem &g = again(f);
        const gemm_operands o = gemm_operands_of<SPW_GEMM_ROWS>(g.p, t);
        sums4 sum[DOWN][ACROSS] = {};
        float dot[DOWN];
        if (t.terms > 0) {
            gathered_rows a;
            share<B_INNER, 2> b;
            a.start(g, t);
            b.start(o.b, (int)(B_INNER ? o.b_n : o.b_k), t.n0, g.p.columns, t.terms);
            sum_up<ELEMENT>(a, b, t.terms, lds, wave, sum);
        }
        store_slopes<ELEMENT, BETWEEN>(again(f), t, t.m0 + wave_m, t.n0 + wave_n, sum, dot);
        store_row_sums(again(f), t, dot, (float *)lds[0]);
    }
}

/* c grows by a wave's sums. Each element of it belongs to one lane. */
GPU_DEVICE void add_tile(const gemm_tile &t, int columns, result_rows<float> c, int m0, int n0,
                         const sums4 (&sum)[DOWN][ACROSS]) {
    keep_here(columns);
    const int row = m0 + gpu_lane() % 16, column = n0 + gpu_lane() / 16 * 4;
    const unsigned row_bytes = (unsigned)c.stride * 4, bytes = (unsigned)t.height * row_bytes;
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
            const unsigned offset = column + j * 16 < columns ? (unsigned)(row + i * 16) * row_bytes +
                                                                    (unsigned)(column + j * 16) * 4
                                                              : ~0u;
            const sums4 grown = __builtin_bit_cast(sums4, load_piece(c.array, bytes, offset)) + sum[i][j];
#if defined(__AMDGCN__)
            const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)c.array, 0, (int)bytes, 0x27000);
            __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(words4, grown), buffer, (int)offset, 0,
                                                   0);
#else
            (void)grown;
#endif
        }
}

template <spw_gemm_element ELEMENT>
GPU_DEVICE void store_weights(const spw_gemm_fused_problem &f, const gemm_tile &t, int m0, int n0,
                              const sums4 (&sum)[DOWN][ACROSS]) {
    const long corner = t.expert * f.p.expert;
    if (!f.add)
        store_tile<ACROSS, ELEMENT>(t, f.p.columns, {f.p.c + corner, f.p.c_row}, m0, n0, sum);
    else if (t.terms > 0)
        add_tile(t, f.p.columns, {f.main + corner, f.p.c_row}, m0, n0, sum);
}

template <int LOADS>
GPU_DEVICE void start(gathered_terms<LOADS> &to, const spw_gemm_fused_problem &f, operand o,
                      const gemm_tile &t) {
    to.start(f, o, t);
}
template <int LOADS>
GPU_DEVICE void start(share<false, LOADS> &to, const spw_gemm_fused_problem &, operand o,
                      const gemm_tile &t) {
    to.start(o.group, o.stride, o.column0, o.width, t.terms);
}

template <spw_gemm_element ELEMENT, typename A, typename B>
GPU_DEVICE void multiply_weights(const spw_gemm_fused_problem &f) {
    alignas(16) __shared__ step_bytes lds[2];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<SPW_GEMM_WEIGHTS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(f.p);
    for (int index = gpu_block(); walk.seek(f.p, index, t); index += f.p.blocks) {
        const spw_gemm_fused_problem &g = again(f);
        sums4 sum[DOWN][ACROSS] = {};
        if (t.terms > 0) {
            const gemm_operands o = gemm_operands_of<SPW_GEMM_WEIGHTS>(g.p, t);
            A a;
            B b;
            start(a, g, operand{g.p.a, o.a, g.p.inner, g.p.a_row, t.m0}, t);
            start(b, g, operand{g.p.b, o.b, g.p.columns, g.p.b_row, t.n0}, t);
            sum_up<ELEMENT>(a, b, t.terms, lds, wave, sum);
        }
        store_weights<ELEMENT>(again(f), t, t.m0 + wave_m, t.n0 + wave_n, sum);
    }
}

typedef share<false, 4> terms_a;
typedef share<false, 2> terms_b;

/* Kernels of both layouts of b. */
#define BY_LAYOUT(name, suffix, body, element, between) \
    MFMA_KERNEL(THREADS) gemm_mfma_##name##_inner##suffix(spw_gemm_fused_problem f) { \
        body<true, element, between>(f); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_##name##_outer##suffix(spw_gemm_fused_problem f) { \
        body<false, element, between>(f); \
    }
#define KERNELS(suffix, element) \
    BY_LAYOUT(up_gated, suffix, multiply_up, element, SPW_GEMM_GATED) \
    BY_LAYOUT(up_pairs, suffix, multiply_up, element, SPW_GEMM_PAIRS) \
    BY_LAYOUT(up_relu2, suffix, multiply_up, element, SPW_GEMM_RELU2) \
    BY_LAYOUT(down_gradient_gated, suffix, multiply_down, element, SPW_GEMM_GATED) \
    BY_LAYOUT(down_gradient_pairs, suffix, multiply_down, element, SPW_GEMM_PAIRS) \
    BY_LAYOUT(down_gradient_relu2, suffix, multiply_down, element, SPW_GEMM_RELU2) \
    MFMA_KERNEL(THREADS) gemm_mfma_weights_in_order##suffix(spw_gemm_fused_problem f) { \
        multiply_weights<element, terms_a, terms_b>(f); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_weights_gathered_a##suffix(spw_gemm_fused_problem f) { \
        multiply_weights<element, gathered_terms<4>, terms_b>(f); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_weights_gathered_b##suffix(spw_gemm_fused_problem f) { \
        multiply_weights<element, terms_a, gathered_terms<2>>(f); \
    }
KERNELS(, SPW_GEMM_BF16)
KERNELS(_fp16, SPW_GEMM_FP16)

#if GPU_HOST
/* Offsets into a group, and into a gathered array, are 32 bits; token_of and small have limits of their own. matrices: of b, as wide as c
 * each. The fp32 array has four bytes an element. */
static bool too_large(const spw_gemm_fused_problem &f, spw_gemm_form form, unsigned matrices) {
    const spw_gemm_problem &p = f.p;
    const bool weights = form == SPW_GEMM_WEIGHTS;
    const unsigned long long most = 0xf0000000 / 2, rows = (unsigned)p.rows, top_k = (unsigned)f.top_k,
                             tokens = f.top_k > 0 ? (unsigned)f.tokens : 0,
                             gathered = (unsigned)(weights && p.b_row > p.a_row ? p.b_row : p.a_row);
    if (gemm_mfma_too_large(p, form, (unsigned long long)matrices * (unsigned)p.columns)) return true;
    return rows * (unsigned)f.h_row >= most || rows * (unsigned)f.d_h_row >= most ||
           tokens * gathered >= most ||
           (weights && (unsigned)p.inner * (unsigned long long)(unsigned)p.c_row >= most / 2) ||
           tokens >= 1u << 24 || tokens * top_k * top_k >= 1u << 31;
}

typedef void kernel(spw_gemm_fused_problem);

/* of: by element, those with b's sum outside and inside in turn. */
static int launch(kernel *const (&of)[2][2], spw_gemm_element element, const spw_gemm_fused_problem &f,
                  spw_gemm_form form, unsigned matrices, gpu_stream stream) {
    if (too_large(f, form, matrices)) return cudaErrorInvalidValue;
    of[element][f.p.inner_contiguous ? 1 : 0]<<<f.p.blocks, THREADS, 0, stream>>>(f);
    return (int)cudaGetLastError();
}

#define BOTH(name) \
    { \
        {gemm_mfma_##name##_outer, gemm_mfma_##name##_inner}, { \
            gemm_mfma_##name##_outer_fp16, gemm_mfma_##name##_inner_fp16 \
        } \
    }
#define EITHER(name) \
    { \
        {gemm_mfma_##name, gemm_mfma_##name}, { gemm_mfma_##name##_fp16, gemm_mfma_##name##_fp16 } \
    }

int spw_launch_gemm_up_mfma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream) {
    static kernel *const gated[2][2] = BOTH(up_gated), *const pairs[2][2] = BOTH(up_pairs),
                         *const relu2[2][2] = BOTH(up_relu2);
    if (f.curve.between == SPW_GEMM_RELU2) return launch(relu2, element, f, SPW_GEMM_ROWS, 1, stream);
    return launch(f.curve.between == SPW_GEMM_PAIRS ? pairs : gated, element, f, SPW_GEMM_ROWS, 2, stream);
}

int spw_launch_gemm_down_gradient_mfma(spw_gemm_element element, spw_gemm_fused_problem f,
                                       gpu_stream stream) {
    static kernel *const gated[2][2] = BOTH(down_gradient_gated),
                         *const pairs[2][2] = BOTH(down_gradient_pairs),
                         *const relu2[2][2] = BOTH(down_gradient_relu2);
    if (f.curve.between == SPW_GEMM_RELU2) return launch(relu2, element, f, SPW_GEMM_ROWS, 1, stream);
    return launch(f.curve.between == SPW_GEMM_PAIRS ? pairs : gated, element, f, SPW_GEMM_ROWS, 1, stream);
}

int spw_launch_gemm_weights_mfma(spw_gemm_gather gather, spw_gemm_element element, spw_gemm_fused_problem f,
                                 gpu_stream stream) {
    static kernel *const in_order[2][2] = EITHER(weights_in_order),
                         *const a[2][2] = EITHER(weights_gathered_a),
                         *const b[2][2] = EITHER(weights_gathered_b);
    return launch(gather == SPW_GEMM_GATHER_A   ? a
                  : gather == SPW_GEMM_GATHER_B ? b
                                                : in_order,
                  element, f, SPW_GEMM_WEIGHTS, 1, stream);
}
#endif
