/* One component of a footprint: how it is added, and the moments at which it lives. Shared by the files that fill a footprint. */
#ifndef SPW_SIM_MEMORY_KEPT_FOOTPRINT_COMPONENT_H
#define SPW_SIM_MEMORY_KEPT_FOOTPRINT_COMPONENT_H

#include "sim/memory/kept/component.h"

#define AT_MOE_LAYER \
    { true, false, false }
#define AT_DENSE_LAYER \
    { false, true, false }
#define AT_LAYERS \
    { true, true, false }
#define AT_ATTENTION \
    { false, false, false, true }
#define AT_LOSS \
    { false, false, true }
#define ALWAYS \
    { true, true, true, true, true }

/* Bytes as they come out of a formula in real numbers; what does not fit in 63 bits stays at their end. */
uint64_t spw_component_bytes(double bytes);
/* Appends a component that lives nowhere yet; `source` is borrowed, `format` is the formula with numbers. There is room: the
 * footprint's parts have few components, and spw_footprint_of_stage() counts those of a scheme. */
__attribute__((format(printf, 5, 6))) spw_component *spw_component_add(spw_footprint *footprint,
                                                                       const char *name, double bytes,
                                                                       const char *source, const char *format,
                                                                       ...);
/* Appends a component that lives nowhere yet, whose bytes are the words' value; name, source and words are borrowed. What
 * follows the words are terms: TERM("T", tokens). */
#define SPW_COMPONENT(footprint, name, source, words, ...) \
    spw_component_of(footprint, name, source, words, SPW_TERMS_GIVEN(__VA_ARGS__))
spw_component *spw_component_of(spw_footprint *footprint, const char *name, const char *source,
                                const char *words, const spw_term *term, size_t terms);
/* Gives a component other words, and their bytes. */
#define SPW_COMPONENT_BECOMES(component, words, ...) \
    spw_component_set(component, words, SPW_TERMS_GIVEN(__VA_ARGS__))
void spw_component_set(spw_component *component, const char *words, const spw_term *term, size_t terms);
void spw_component_live(spw_component *component, const bool live[SPW_MOMENT_COUNT]);
#define LIVE(component, ...) spw_component_live(component, (const bool[SPW_MOMENT_COUNT])__VA_ARGS__)

/* The same of what every layer keeps a part of, from its forward pass on. */
void spw_component_live_by_layer(spw_component *component, const bool live[SPW_MOMENT_COUNT]);
#define LIVE_BY_LAYER(component, ...) \
    spw_component_live_by_layer(component, (const bool[SPW_MOMENT_COUNT])__VA_ARGS__)

#endif
