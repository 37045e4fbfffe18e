/* Which layers have experts, in the words of Megatron-Core's moe_layer_freq. */
#ifndef SPW_SIM_FRAMEWORKS_MODEL_LAYER_LIST_H
#define SPW_SIM_FRAMEWORKS_MODEL_LAYER_LIST_H

#include "sim/model/model.h"

enum { SPW_LAYER_LIST_TEXT = 2048 };

typedef struct spw_layer_list {
    size_t layers;                     /* of the list; 0: nobody says one */
    uint8_t has[SPW_MODEL_MAX_LAYERS]; /* [layers] 1: experts, 0: a dense FFN */
} spw_layer_list;

/* "2": every second of `layers` layers, from the first on. "([0]*3+[1]*58)", "[0,1]*24": Python's lists of 0 and 1, one after the
 * other, repeated; or one without brackets, "0,1,1". False: it is neither, or of more layers than a model has. */
bool spw_layer_list_read(const char *text, size_t layers, spw_layer_list *out);

/* As Python's lists, of which one that is repeated stands once: SPW_ECONFIG where they do not fit. */
SPW_MUST_CHECK spw_status spw_layer_list_write(const spw_model *model, char *out, size_t size);

/* The same as keys of a generic model, behind what `out` has: `, "first_k_dense_replace": 3`; nothing where all layers have experts. */
SPW_MUST_CHECK spw_status spw_layer_list_keys(const spw_layer_list *list, char *out, size_t size);

#endif
