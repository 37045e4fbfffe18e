/* Expected counts of random jobs, for an oracle that draws tokens itself. Standard input has a line a job:
 *   seed experts top_k tokens capacity rank_experts node_experts level_experts distribution
 * Standard output has a line of JSON for each: what a token of the first layer chooses each expert with, then of every block size what one
 * token has in each block (mean and variance of its choices, chance of any) and how many blocks it reaches, at last what the tokens drop. */
#include "base/memory.h"
#include "traces/generate/expected_drops.h"
#include "traces/generate/generate.h"

#include <stdio.h>
#include <stdlib.h>

enum { SIZES = 4, TEXT = 96 };

typedef struct job {
    unsigned long long seed;
    size_t experts, top_k, tokens, capacity,
        block[SIZES]; /* block: an expert, then of a rank, a node, a level */
    char text[TEXT];
} job;

static void print_blocks(const spw_block_law *law, size_t blocks, const spw_moments *reach, double fullest) {
    (void)printf(",{\"reach\":[%.17g,%.17g],\"fullest\":%.17g,\"law\":[", reach->mean, reach->variance,
                 fullest);
    for (size_t b = 0; b < blocks; b++)
        (void)printf("%s[%.17g,%.17g,%.17g]", b > 0 ? "," : "", law[b].choices.mean, law[b].choices.variance,
                     law[b].reached);
    (void)printf("]}");
}

static spw_status print_laws(const job *j, const spw_count_tree *tree) {
    spw_block_law *law = NULL;
    spw_moments reach = {.mean = 0.0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(j->experts, &law));
    for (size_t i = 0; i < SIZES; i++) {
        const size_t blocks = j->experts / j->block[i];
        SPW_TRY(spw_expected_blocks(tree, j->block[i], law));
        SPW_TRY(spw_expected_reach(tree, j->block[i], &reach));
        print_blocks(law, blocks, &reach, spw_expected_fullest(law, blocks, (double)j->tokens));
    }

cleanup:
    spw_free(law);
    return status;
}

static spw_status answer(const job *j) {
    spw_generate_settings s = {.experts = j->experts,
                               .top_k = j->top_k,
                               .layers = 1,
                               .steps = 1,
                               .ranks = 1,
                               .tokens_per_rank = 1,
                               .seed = j->seed};
    spw_generator *generator = NULL;
    spw_count_tree *tree = NULL;
    spw_moments drops = {.mean = 0.0};
    double *inclusion = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(j->experts, &inclusion));
    SPW_TRY(spw_distribution_parse(j->text, &s.distribution));
    SPW_TRY(spw_generator_create(&s, &generator));
    spw_generator_inclusion(generator, 0, inclusion);
    SPW_TRY(spw_generator_count_tree(generator, 0, j->block[1], j->block[2], &tree));
    if (tree == NULL) SPW_TRY(spw_fail(SPW_EARG, "%s: no tree of such blocks", j->text));
    (void)printf("[[");
    for (size_t x = 0; x < j->experts; x++) (void)printf("%s%.17g", x > 0 ? "," : "", inclusion[x]);
    (void)printf("]");
    SPW_TRY(print_laws(j, tree));
    SPW_TRY(spw_expected_drops(tree, j->tokens, j->capacity, &drops));
    (void)printf(",[%.17g,%.17g]]\n", drops.mean, drops.variance);

cleanup:
    spw_count_tree_destroy(tree);
    spw_generator_destroy(generator);
    spw_free(inclusion);
    return status;
}

int main(void) {
    job j = {.block = {1}};
    spw_status status = SPW_OK;
    while (status == SPW_OK &&
           scanf("%llu %zu %zu %zu %zu %zu %zu %zu %95s", &j.seed, &j.experts, &j.top_k, &j.tokens,
                 &j.capacity, &j.block[1], &j.block[2], &j.block[3], j.text) == 9)
        status = answer(&j);
    if (status != SPW_OK) (void)fprintf(stderr, "%s: %s\n", spw_status_name(status), spw_last_error());
    return spw_status_exit(status);
}
