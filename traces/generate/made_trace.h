/* A generated trace that is no file: the calls of trace.h for it. Choices of a step and layer are drawn when they are read. */
#ifndef SPW_TRACES_GENERATE_MADE_TRACE_H
#define SPW_TRACES_GENERATE_MADE_TRACE_H

#include "traces/generate/count_sample.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"

typedef struct spw_made_trace spw_made_trace;
typedef struct spw_piece_law spw_piece_law;

/* What spw_generate_trace() would write by these settings, without its counts, and with ids of a byte for 256 experts, too. Nothing is
 * drawn yet. Up to 64 MiB of choices are kept; further ones are drawn at every reading. The texts of the settings are copied.
 * SPW_EARG as spw_generator_create(), and for more than 2^31 - 1 sequences. */
SPW_MUST_CHECK spw_status spw_trace_make(const spw_generate_settings *settings, spw_trace **out);

/* Consecutive tokens that every source rank has of every step, each a sequence; 0: the trace is a file, or tells it by columns. */
size_t spw_trace_made_tokens(const spw_trace *trace);

/* Consecutive experts of a rank and of a node. */
typedef struct spw_expert_blocks {
    size_t rank, node;
} spw_expert_blocks;
/* By what counts of tokens of a step and layer are drawn, without the tokens: *out has no choices then, but a law. They are not those of
 * the tokens that spw_trace_read_record() draws, but as likely (traces/generate/count_tree.h). *out has no law where the trace is a
 * file, and where counts cannot be drawn so. Valid until the next call of the layer. */
SPW_MUST_CHECK spw_status spw_trace_read_law(spw_trace *trace, size_t step, size_t layer,
                                             spw_expert_blocks blocks, spw_trace_record *out);
/* That law, by whatever blocks it was read last: what is expected of it does not depend on them. NULL as above; valid as above. */
SPW_MUST_CHECK spw_status spw_trace_read_tree(spw_trace *trace, size_t step, size_t layer,
                                              const spw_count_tree **out);
size_t spw_piece_law_bytes(const spw_piece_law *law); /* of scratch memory that a draw needs */
void spw_piece_law_begin(const spw_piece_law *law,
                         void *scratch); /* before the first draw of the law with it */
/* Of each of up to SPW_PIECES_AT_ONCE pieces of `tokens` tokens from first[] on; any thread may call it, with scratch memory of its own.
 * out[] is a function of the law, first[], tokens and the seed alone, whatever is drawn beside it. */
enum { SPW_PIECES_AT_ONCE = 8 };
void spw_piece_law_draw(const spw_piece_law *law, void *scratch, const uint64_t *first, size_t pieces,
                        size_t tokens, const spw_token_counts *out);

#endif
