/* Routing that makes every expert's count a multiple of the tile. Source: SonicMoE (Guo et al. 2025),
 * Dao-AILab/sonic-moe benchmarks/moe-token-rounding.py; section 6.4 of docs/schemes.md. */
#ifndef SPW_REFERENCE_TOKEN_ROUNDING_H
#define SPW_REFERENCE_TOKEN_ROUNDING_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum spw_rounding { SPW_ROUND_NEAREST, SPW_ROUND_UP, SPW_ROUND_DOWN } spw_rounding;

/* With f the count of an expert: tile * floor(f / tile), tile * ceil(f / tile), or tile * (f / tile to the
 * nearest integer, half to even). */
size_t spw_ref_rounded_count(size_t count, size_t tile, spw_rounding rounding);

/* Expert x takes the g = min(rounded count, tokens) tokens that it prefers: those that chose it by falling
 * weight, then the others by falling score; ties to the lower token. The weights are not renormalised afterwards.
 *   score   [tokens][experts]   softmax over all experts; in [0, 1]
 *   expert  [tokens][top_k]     the choices, ids in [0, experts), or < 0: no choice
 *   weight  [tokens][top_k]     of the choices, renormalised
 *   taken   [tokens][experts]   overwritten: the weight with which t goes to x (the score for tokens that had not
 *                               chosen it), or 0 with member = 0
 *   member  [tokens][experts]   overwritten: 1 when t goes to x
 *   count   [experts]           overwritten: tokens taken
 * SPW_EARG: an id out of range, tile = 0. */
typedef struct spw_rounded_choices {
    size_t tokens, top_k, experts, tile;
    spw_rounding rounding;
    const float *score;
    const int32_t *expert;
    const float *weight;
} spw_rounded_choices;
SPW_MUST_CHECK spw_status spw_ref_token_rounding(const spw_rounded_choices *choices, float *taken,
                                                 uint8_t *member, size_t *count);

#ifdef __cplusplus
}
#endif
#endif
