/* A routing record: the choices of one expert-parallel group in one layer of one step of a trace, and what the
 * simulator predicts for them. Plain text, so that a GPU machine needs no HDF5:
 *
 *     spillway-record 2
 *     origin where the routing is from
 *     ranks 4
 *     experts 64
 *     top_k 8
 *     sequences 2              of every rank
 *     sequence_length 512
 *     hidden 64                of the bytes below; bf16
 *     schemes 1
 *     rank 0                   then a line for each of its tokens: top_k distinct expert ids, -1 for no choice
 *     3 17 ...
 *     scheme dense:capacity_factor=1.25
 *     rule capacity            capacity, source, expert or token: see spw_record_rule
 *     factor_thousandths 1250
 *     buffer_rows 4096         of one rank
 *     buffer_bytes 524288      of its x
 *     row_bytes 128            of a row of a dispatch on the wire
 *     back_bytes 128           of a row of a combine
 *     rows 4096 ...            of every rank, held for its experts
 *     dropped 12 ...           of every source rank
 *     wire 512 ...             a line for every source rank: rows of a dispatch to each rank
 *     end
 *
 * One space between words, no comments; nothing follows `end`. */
#ifndef SPW_KERNELS_RECORD_RECORD_H
#define SPW_KERNELS_RECORD_RECORD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    SPW_RECORD_TEXT = 128,
    SPW_RECORD_SCHEMES = 8,
    SPW_RECORD_RANKS = 64,
    SPW_RECORD_EXPERTS = 512,
    SPW_RECORD_TOP_K = 16,
    SPW_RECORD_HIDDEN = 1024,
    SPW_RECORD_BYTES = 1 << 26 /* of a file */
};

/* Who keeps a place. Sections of docs/schemes.md. */
typedef enum spw_record_rule {
    SPW_RECORD_CAPACITY, /* 1.2: capacity slots of a sequence and expert; factor is the capacity factor */
    SPW_RECORD_SOURCE,   /* 2.4: buffer rows by source, expert, position; factor 0: room for the worst case */
    SPW_RECORD_EXPERT,   /* 2.6: buffer rows by expert, position; factor 0: room for all */
    SPW_RECORD_TOKEN, /* 3, 4: a token once a rank, nothing dropped; the buffer is that of received tokens */
    SPW_RECORD_RULES
} spw_record_rule;

typedef struct spw_record_scheme {
    char text[SPW_RECORD_TEXT];
    spw_record_rule rule;
    size_t factor_thousandths, buffer_rows, buffer_bytes, row_bytes, back_bytes;
    size_t rows[SPW_RECORD_RANKS], dropped[SPW_RECORD_RANKS];
    size_t wire[SPW_RECORD_RANKS][SPW_RECORD_RANKS]; /* [source][destination] */
} spw_record_scheme;

typedef struct spw_record {
    char origin[SPW_RECORD_TEXT];
    size_t ranks, experts, top_k, sequences, sequence_length, hidden, schemes;
    int32_t *expert; /* [ranks][sequences][sequence_length][top_k], or -1; owned */
    spw_record_scheme scheme[SPW_RECORD_SCHEMES];
} spw_record;

/* SPW_EARG when the record breaks a limit that spw_record_parse would refuse, SPW_EIO. */
SPW_MUST_CHECK spw_status spw_record_write(const spw_record *record, FILE *out);
/* SPW_EFORMAT names file and line; the text is not trusted: no size is believed that the text is too short for. On
 * failure *out is zeroed. */
SPW_MUST_CHECK spw_status spw_record_parse(const char *where, const char *text, size_t length,
                                           spw_record *out);
SPW_MUST_CHECK spw_status spw_record_read(const char *path, spw_record *out);
void spw_record_destroy(spw_record *record); /* a zeroed one is fine */

#endif
