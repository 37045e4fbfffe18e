/* Which of dense's layouts MaxText has is a matter of its tree: that of April 2026 exchanges tokens by all-to-all, those from August on
 * gather the weights of all experts (or peel the expert axis, by a flag). */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_LAYOUT_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_LAYOUT_H

#include "sim/machine/stack.h"
#include "sim/schemes/scheme.h"

/* First what MaxText itself refuses: a ring, or ragged-ring, with a buffer_factor and without ragged_sort is SPW_ECONFIG under the trees
 * that check it. Then sets the layout that nobody said (auto) to that of the stack's tree, and adds it to the text where it is not the first one.
 * SPW_ECONFIG where a layout was said that the tree does not have, with the stacks that do. Other schemes are left as they are. */
SPW_MUST_CHECK spw_status spw_compiled_layout_settle(const spw_stack *stack, spw_scheme *scheme);
SPW_MUST_CHECK spw_status spw_compiled_layouts_settle(const spw_stack *stack, spw_scheme *scheme,
                                                      size_t schemes);

#endif
