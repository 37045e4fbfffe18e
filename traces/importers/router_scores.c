#include "traces/importers/router_scores.h"

#include "base/file.h"
#include "base/memory.h"
#include "traces/importers/half_bits.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { LOGIT_BYTES = 2, MOST_PATH = 4096 };

static const struct {
    const char *name, *kind;
} scores[] = {
#define SPW_ROUTER_SCORE_ROW(name, text, kind) {text, kind},
    SPW_ROUTER_SCORE_LIST(SPW_ROUTER_SCORE_ROW)
#undef SPW_ROUTER_SCORE_ROW
};

static spw_router_score find(const char *score) {
    int i = 0;
    while (i < SPW_ROUTER_SCORES - 1 && strcmp(scores[i].name, score) != 0) i++;
    return (spw_router_score)i;
}

const char *spw_router_score_kind(const char *score) { return scores[find(score)].kind; }

spw_status spw_router_logits_open(const char *path, int64_t rank, spw_router_logits *out) {
    spw_status status = SPW_OK;
    struct stat there;
    char beside[MOST_PATH];
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash + 1 - path) : 0;
    if ((size_t)snprintf(beside, sizeof beside, "%.*slogits_rank%" PRId64 ".bin", folder, path, rank) >=
        sizeof beside)
        SPW_TRY(spw_fail(SPW_EARG, "%s: its path is too long", path));
    SPW_TRY(spw_file_open(beside, &out->file));
    if (fstat(fileno(out->file), &there) != 0 || !S_ISREG(there.st_mode))
        SPW_TRY(spw_fail(SPW_EIO, "%s: is no regular file", beside));
    SPW_TRY(spw_file_reads(beside));
    out->length = (uint64_t)there.st_size;

cleanup:
    return status;
}

void spw_router_logits_close(spw_router_logits *logits) {
    if (logits->file != NULL) (void)fclose(logits->file);
    spw_free(logits->bytes);
    spw_free(logits->weight);
    *logits = (spw_router_logits){.file = NULL};
}

/* Reads the bytes of the record. */
static spw_status read_bytes(spw_router_logits *l, const spw_json_lines *lines, const json_t *record,
                             size_t tokens, size_t experts) {
    spw_status status = SPW_OK;
    spw_json_table shape = {.value = NULL};
    int64_t offset = 0, bytes = 0;
    if (json_object_get(record, "logit_offset") == NULL)
        SPW_TRY(spw_json_lines_fail(lines, "no logits are recorded; without --scores its ids are imported"));
    SPW_TRY(spw_json_whole(lines, record, "logit_offset", 0, INT64_MAX, &offset));
    SPW_TRY(spw_json_whole(lines, record, "logit_bytes", 0, INT64_MAX, &bytes));
    SPW_TRY(spw_json_read_list(lines, record, "logit_shape", INT32_MAX, &shape));
    SPW_TRY(spw_json_check_table(lines, "logit_shape", &shape, 1, 2));
    if (shape.value[0] != tokens || shape.value[1] != experts ||
        (uint64_t)bytes != tokens * experts * LOGIT_BYTES)
        SPW_TRY(spw_json_lines_fail(lines,
                                    "logits of %u tokens and %u experts in %" PRId64
                                    " bytes; %zu, %zu and 2 bytes each would be right",
                                    shape.value[0], shape.value[1], bytes, tokens, experts));
    if ((uint64_t)offset > l->length || (uint64_t)bytes > l->length - (uint64_t)offset)
        SPW_TRY(spw_json_lines_fail(
            lines, "its logits end at byte %" PRIu64 "; logits_rank{N}.bin has %" PRIu64 " (cut short?)",
            (uint64_t)offset + (uint64_t)bytes, l->length));
    if ((size_t)bytes > l->capacity) {
        spw_free(l->bytes);
        l->bytes = NULL;
        l->capacity = 0;
        SPW_TRY(SPW_ALLOC((size_t)bytes, &l->bytes));
        l->capacity = (size_t)bytes;
    }
    if (bytes > 0 && (fseeko(l->file, (off_t)offset, SEEK_SET) != 0 ||
                      fread(l->bytes, 1, (size_t)bytes, l->file) != (size_t)bytes))
        SPW_TRY(spw_json_lines_fail(lines, "its logits cannot be read"));

cleanup:
    spw_json_table_clear(&shape);
    return status;
}

static double logit_at(const unsigned char *row, size_t expert) {
    const uint32_t bits = (uint32_t)(row[LOGIT_BYTES * expert] | row[LOGIT_BYTES * expert + 1] << 8) << 16;
    float value = 0.0f;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The scores of a token's choices; false where a logit is no number. */
static bool score_token(const spw_import_settings *settings, const unsigned char *row, const uint16_t *id,
                        uint16_t *weight) {
    const spw_router_score kind = find(settings->scores);
    const size_t experts = settings->experts, top_k = settings->top_k,
                 terms = kind == SPW_ROUTER_PRE_SOFTMAX ? experts : top_k;
    double most = -INFINITY, sum = 0.0;
    for (size_t x = 0; x < experts; x++) {
        const double logit = logit_at(row, x);
        if (!isfinite(logit)) return false;
        most = logit > most ? logit : most;
    }
    for (size_t i = 0; i < terms; i++) {
        const double logit = logit_at(row, terms == experts ? i : id[i]);
        sum += kind == SPW_ROUTER_SIGMOID ? 1.0 / (1.0 + exp(-logit)) : exp(logit - most);
    }
    if (kind == SPW_ROUTER_SIGMOID && top_k == 1) sum = 1.0;
    for (size_t k = 0; k < top_k; k++) {
        const double logit = logit_at(row, id[k]),
                     part = kind == SPW_ROUTER_SIGMOID ? 1.0 / (1.0 + exp(-logit)) : exp(logit - most);
        if (!spw_half_bits(sum > 0.0 ? part / sum : 0.0, &weight[k])) return false;
    }
    return true;
}

spw_status spw_router_logits_weigh(spw_router_logits *logits, const spw_import_settings *settings,
                                   const spw_json_lines *lines, const json_t *record,
                                   const uint16_t *expert_id, size_t tokens) {
    spw_status status = SPW_OK;
    const size_t top_k = settings->top_k, experts = settings->experts;
    SPW_TRY(read_bytes(logits, lines, record, tokens, experts));
    if (tokens * top_k > logits->weights) {
        spw_free(logits->weight);
        logits->weight = NULL;
        logits->weights = 0;
        SPW_TRY(SPW_ALLOC(tokens * top_k, &logits->weight));
        logits->weights = tokens * top_k;
    }
    for (size_t t = 0; t < tokens; t++) {
        if (!score_token(settings, logits->bytes + t * experts * LOGIT_BYTES, expert_id + t * top_k,
                         logits->weight + t * top_k))
            SPW_TRY(spw_json_lines_fail(lines, "token %zu: a logit is no number", t));
    }

cleanup:
    return status;
}
