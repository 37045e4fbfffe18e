/* How often tokens choose experts, and how many of them reach a rank or a node, without drawing tokens: the law of a token's choices as
 * a tree over the experts.
 *
 * A token chooses the set s of K experts with a probability proportional to the product of weight[x], x in s (conditional Bernoulli
 * sampling; Chen, Dempster, Liu 1994, Biometrika 81, 457). The weights are such that expert x is chosen with the probability that is asked
 * for. For equal probabilities, and for K = 1, it is the law by which generate.h draws tokens; else two experts meet in a token as often
 * as there to second order (Hajek 1964, Ann. Math. Stat. 35, 1491; Hartley and Rao 1962). Limited to groups of experts the probability is
 * proportional to the product of the group weights of the kept groups, too.
 *
 * An inner node of the tree splits a run of experts in two. Of the tokens that have j choices among the run, a share
 *   e[a](left) e[j - a](right) / e[j](run)
 * has a of them on the left, e[j] the elementary symmetric polynomial of the weights. All blocks of experts (of a group, of a node, of a
 * rank) are nodes of the tree. */
#ifndef SPW_TRACES_GENERATE_COUNT_TREE_H
#define SPW_TRACES_GENERATE_COUNT_TREE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is asked for. */
typedef struct spw_count_law {
    size_t experts, top_k;
    const double *inclusion;       /* [experts] of a token that keeps the expert's group */
    size_t groups, kept;           /* groups 0: no such limit */
    const double *group_inclusion; /* [groups] */
    size_t rank_experts,
        node_experts; /* consecutive experts of a rank and of a node; each divides `experts` */
} spw_count_law;

/* Of the tokens in a state of a node so many go on as `left` and `right`. */
typedef struct spw_count_option {
    double share, log_rest; /* of those that took no option before; log(1 - share) */
    uint32_t left, right;
} spw_count_option;

/* A state of a node is (groups kept among its experts) x (choices + 1) + choices among them. */
typedef struct spw_count_node {
    size_t low, high;       /* experts */
    size_t left, right;     /* nodes; left 0: a leaf; right 0: a group, whose experts are the node `left` */
    size_t groups, choices; /* at most */
    size_t state;           /* where its states begin in spw_count_tree.share */
    size_t rank, node;      /* whose experts they are; SIZE_MAX: nobody's */
} spw_count_node;

typedef struct spw_count_tree {
    size_t experts, top_k, nodes, states, options, deepest, widest; /* widest: states of a node */
    bool even;                                                      /* all experts are asked for as often */
    spw_count_node
        *node; /* [nodes], 0 the root; a run stands before its halves, all of the left one before the right */
    double *share;            /* [states] of the tokens */
    size_t *first;            /* [states + 1] into option */
    spw_count_option *option; /* [options] */
} spw_count_tree;

/* *out is NULL, and the status SPW_OK, where the blocks do not lie in each other, or where there are too many states. */
SPW_MUST_CHECK spw_status spw_count_tree_create(const spw_count_law *law, spw_count_tree **out);
void spw_count_tree_destroy(spw_count_tree *tree); /* NULL is fine */

static inline size_t spw_count_states(const spw_count_node *n) { return (n->groups + 1) * (n->choices + 1); }

/* Is all that is said of one half of an inner node said of the other, too? So it is for equal halves of experts that are asked for as
 * often: each step on the way to it does the same with both. Then what stands for the right half and all below it, state by state and
 * option by option, is what stands for the left one. */
static inline bool spw_count_halves_alike(const spw_count_tree *tree, const spw_count_node *n) {
    const spw_count_node *left = &tree->node[n->left];
    return tree->even && left->high - left->low == n->high - left->high;
}

/* The shares of all tokens that choose an expert [experts], and that reach a rank [ranks] and a node [nodes]. */
void spw_count_tree_reach(const spw_count_tree *tree, double *expert, double *rank, double *node);

#endif
