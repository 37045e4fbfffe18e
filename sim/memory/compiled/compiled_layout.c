#include "sim/memory/compiled/compiled_layout.h"

#include "sim/job/recipe/remat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static spw_status refuse(const spw_stack *stack, const spw_scheme *scheme, const spw_remat_tree *tree) {
    char others[256] = "";
    for (const char *const *name = spw_stack_presets(); *name != NULL; name++) {
        const spw_remat_tree *other = NULL;
        spw_stack preset;
        const size_t used = strlen(others);
        if (spw_stack_read(*name, NULL, &preset) != SPW_OK ||
            spw_remat_tree_find(preset.tree, &other) != SPW_OK || other->dense_layouts == NULL ||
            strcmp(other->dense_layouts, tree->dense_layouts) == 0)
            continue;
        (void)snprintf(others + used, sizeof others - used, "%s%s", used > 0 ? ", " : "", *name);
    }
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s': MaxText's tree of stack %s (%s) does not have this layout; leave it "
                    "out for layout=%.*s, or use a stack whose tree has it: %s",
                    scheme->text, stack->name, tree->name, (int)strcspn(tree->dense_layouts, " "),
                    tree->dense_layouts, others);
}

/* The position of `word` among the choices of the option; NAN where it has none. */
static double choice(const spw_scheme_option *option, const char *word, size_t length) {
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        if (strlen(option->choices[i]) == length && strncmp(option->choices[i], word, length) == 0)
            return (double)i;
    }
    return NAN;
}

/* What MaxText's own check of its configuration refuses. */
static spw_status check_buffer(const spw_stack *stack, const spw_scheme *scheme, const spw_remat_tree *tree) {
    const char *name = scheme->type->name;
    const bool ring = strcmp(name, "ring") == 0 || strcmp(name, "ragged-ring") == 0;
    if (!tree->sorted_buffer || !ring || !(spw_scheme_option_value(scheme, "buffer_factor") > 0.0) ||
        spw_scheme_option_is(scheme, "ragged_sort", "true"))
        return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s': MaxText's tree of stack %s (%s) refuses ragged_buffer_factor with "
                    "use_ring_of_experts unless use_ragged_sort is set; nearest: "
                    "ring:ragged_sort=true,buffer_factor=%g",
                    scheme->text, stack->name, tree->name, spw_scheme_option_value(scheme, "buffer_factor"));
}

spw_status spw_compiled_layout_settle(const spw_stack *stack, spw_scheme *scheme) {
    const spw_scheme_option *options = scheme->type->options;
    const spw_remat_tree *tree = NULL;
    size_t i = 0;
    spw_status found = spw_remat_tree_find(stack->tree, &tree);
    if (found == SPW_OK) found = check_buffer(stack, scheme, tree);
    if (found != SPW_OK) return found;
    while (options[i].name != NULL && strcmp(options[i].name, "layout") != 0) i++;
    if (options[i].name == NULL) return SPW_OK;
    if (tree->dense_layouts == NULL) return SPW_OK;
    const char *said = options[i].choices[(size_t)scheme->option[i]];
    if (!spw_scheme_option_is(scheme, "layout", "auto"))
        return spw_has_word(tree->dense_layouts, said) ? SPW_OK : refuse(stack, scheme, tree);
    const size_t first = strcspn(tree->dense_layouts, " "), used = strlen(scheme->text);
    scheme->option[i] = choice(&options[i], tree->dense_layouts, first);
    if (scheme->option[i] > 0.0)
        (void)snprintf(scheme->text + used, sizeof scheme->text - used, ",layout=%.*s", (int)first,
                       tree->dense_layouts);
    return SPW_OK;
}

spw_status spw_compiled_layouts_settle(const spw_stack *stack, spw_scheme *scheme, size_t schemes) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < schemes && status == SPW_OK; i++)
        status = spw_compiled_layout_settle(stack, &scheme[i]);
    return status;
}
