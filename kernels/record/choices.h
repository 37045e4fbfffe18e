/* Made-up routings of whole ranks for the verifier and the bench of exchanges: which experts every token chooses. */
#ifndef SPW_KERNELS_RECORD_CHOICES_H
#define SPW_KERNELS_RECORD_CHOICES_H

#include <stddef.h>
#include <stdint.h>

typedef enum spw_choice_kind {
    SPW_CHOICES_UNIFORM, /* every expert with equal chance */
    SPW_CHOICES_SKEWED,  /* expert x with chance proportional to (x + 1)^-0.8 */
    SPW_CHOICES_ONE, /* every token the first top_k experts: all to the first rank, or as few ranks as hold them */
    SPW_CHOICES_EMPTY, /* uniform, but the last rank's experts are never chosen where the others suffice */
    SPW_CHOICES_FEW,   /* uniform, a fifth of the slots unused, every seventh token without any choice */
    SPW_CHOICES_KINDS
} spw_choice_kind;

extern const char *const spw_choice_names[SPW_CHOICES_KINDS];

/* expert [tokens][top_k] of one rank: distinct in a token, or -1. All are -1 unless top_k <= experts <=
 * SPW_CHOICES_EXPERTS and ranks > 0. */
enum { SPW_CHOICES_EXPERTS = 4096 };
void spw_choices_fill(spw_choice_kind kind, size_t tokens, size_t top_k, size_t experts, size_t ranks,
                      uint64_t seed, int32_t *expert);

#endif
