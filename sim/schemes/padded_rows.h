/* The option `pad` of schemes that round the rows of every expert up for its GEMM (docs/schemes.md, section 5.5). */
#ifndef SPW_SIM_SCHEMES_PADDED_ROWS_H
#define SPW_SIM_SCHEMES_PADDED_ROWS_H

#include "sim/schemes/scheme.h"

#define SPW_PAD_OPTION_ROW \
    { "pad", 1.0, 4096.0, 1.0, false, "rows of an expert are rounded up to a multiple of this", NULL }

size_t spw_pad_of(const spw_scheme *scheme);
uint64_t spw_pad_up(uint64_t rows, uint64_t multiple);

/* rows[d] = sum over the experts x of d of P_pad(sum over s of n[s][x]). */
void spw_pad_rows(const spw_routed_group *routed, uint64_t *rows);

/* Within a budget experts are served by id, padding included, and of an expert tokens by source rank and position: what is
 * beyond it is dropped. Places and padding follow from all tokens of an expert, dropped ones too (flow.chosen). Sets rows, and
 * lowers limit and raises dropped. */
void spw_pad_within(const spw_routed_group *routed, uint64_t multiple, uint64_t budget, spw_flow *out);

/* Of balanced routing: every expert of a rank has the same number of rows, rounded up. */
void spw_pad_balance(const spw_scheme *scheme, const spw_layer_shape *shape, spw_rank_rows *rows);

/* SPW_ECONFIG: pad is no whole number. */
spw_status spw_pad_check(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
