/* Grouped GEMM on Hopper's tensor cores: which tiles a product takes, and those of 128 x 256. */
#include "kernels/gemm/grouped_gemm_consume.h"
#include "kernels/gemm/grouped_gemm_launch.h"

template <spw_gemm_element ELEMENT, spw_gemm_form FORM, bool B_OUTER, gemm_epilogue EPILOGUE = GEMM_STORE>
static int launch_kind(const spw_gemm_fused_problem &f, gpu_stream stream) {
    return gemm_launch<gemm_kind<ELEMENT, FORM, B_OUTER, 256, SPW_GEMM_GATHER_NONE, EPILOGUE>>(f, stream);
}

/* Of a group on average: with so few, a weight gradient is bound by its stores, and goes faster past the cache. */
enum { STREAMED_ROWS = 128 };

template <spw_gemm_element ELEMENT>
static int launch_wide(spw_gemm_form form, const spw_gemm_fused_problem &f, gpu_stream stream) {
    const bool few = f.p.rows <= (long)STREAMED_ROWS * f.p.experts;
    if (form == SPW_GEMM_ROWS)
        return f.p.inner_contiguous ? launch_kind<ELEMENT, SPW_GEMM_ROWS, false>(f, stream)
                                    : launch_kind<ELEMENT, SPW_GEMM_ROWS, true>(f, stream);
    if (few) return launch_kind<ELEMENT, SPW_GEMM_WEIGHTS, true, GEMM_STREAM>(f, stream);
    return launch_kind<ELEMENT, SPW_GEMM_WEIGHTS, true>(f, stream);
}

int spw_launch_gemm_wide(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                         gpu_stream stream) {
    spw_gemm_fused_problem f = {};
    f.p = p;
    if (element == SPW_GEMM_FP16) return launch_wide<SPW_GEMM_FP16>(form, f, stream);
    return launch_wide<SPW_GEMM_BF16>(form, f, stream);
}

/* Columns that tiles of `tile` columns multiply. */
static long padded(int columns, int tile) { return (columns + tile - 1L) / tile * tile; }

/* Tiles of 128 x 192 in turns hide their stores and read more bytes a product. So they are taken where they multiply fewer columns;
 * else, by rows, where sums are short or have rows enough, unless they multiply 1/25 more columns, zeros; in a weight gradient with
 * 1/20 more. docs/validation_gpu.md, "What a hand-over costs". */
enum { LONGEST_SUM = 4096, SHORT_SUM = 2048, TERMS_A_ROW = 8 };

int spw_gemm_takes_turns(spw_gemm_form form, const spw_gemm_problem *p) {
    const long narrow = padded(p->columns, 192), wide = padded(p->columns, 256), rows = p->rows;
    const long terms = p->inner > SHORT_SUM ? p->inner : SHORT_SUM;
    if (narrow < wide) return true;
    if (form == SPW_GEMM_WEIGHTS) return rows > (long)STREAMED_ROWS * p->experts && 20 * narrow <= 21 * wide;
    return p->inner <= LONGEST_SUM && TERMS_A_ROW * rows >= terms * p->experts && 25 * narrow <= 26 * wide;
}

/* Two blocks that share columns of b: where a weight gradient's rows are an even number of tiles, of no fewer than these. */
enum { PAIRED_TILES = 12 };

static bool takes_pairs(spw_gemm_form form, const spw_gemm_problem &p) {
    const int tiles = (p.inner + TILE_M - 1) / TILE_M;
    return form == SPW_GEMM_WEIGHTS && tiles % 2 == 0 && tiles >= PAIRED_TILES && p.blocks > 1;
}

int spw_launch_gemm_wgmma(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    if (!spw_gemm_takes_turns(form, &p)) return spw_launch_gemm_wide(form, element, p, stream);
    if (takes_pairs(form, p)) return spw_launch_gemm_pairs(form, element, p, stream);
    return spw_launch_gemm_pingpong(form, element, p, stream);
}
