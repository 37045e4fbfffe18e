/* The all-to-alls of Megatron-Core's dispatcher and the order of what they bring (docs/schemes.md, section 5.2): chunks of
 * rows, one a source and expert. Where t ranks share every expert, an all-to-all is among the ranks of one number of them,
 * r modulo t; gathers bring the rest (megatron_sharers.h). */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_CHUNKS_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_CHUNKS_H

#include "reference/schemes/megatron/megatron_ranks.h"

/* Every rank learns how many rows all ranks have for each of its experts: arrived, segments and offsets, rows received by
 * the all-to-all and rows of the experts. */
SPW_MUST_CHECK spw_status spw_megatron_exchange_counts(spw_execution *run, spw_megatron *g);

/* Rows of hidden activations, or their router weights; `back`: from the experts' ranks to the sources. */
SPW_MUST_CHECK spw_status spw_megatron_exchange_rows(spw_execution *run, spw_megatron *g, const char *name,
                                                     bool back, spw_megatron_tensor from,
                                                     spw_megatron_tensor to);
SPW_MUST_CHECK spw_status spw_megatron_exchange_probs(spw_execution *run, spw_megatron *g, const char *name,
                                                      bool back, spw_megatron_tensor from,
                                                      spw_megatron_tensor to);

/* From the order (number among the sharers, source, expert), in which rows arrive, to (expert, source), or `back`. */
void spw_megatron_sort_chunks(const spw_execution *run, const spw_megatron *g, spw_megatron_tensor arrived,
                              spw_megatron_tensor sorted, size_t width, bool back);

#endif
