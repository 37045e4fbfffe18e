/* How the published file stores routed experts. Keys: transformers 5.24 utils/quantization_config.py, compressed-tensors'
 * config_groups, modelopt's hf_quant_config, and expert_dtype of DeepSeek-V4. */
#include "sim/model/config/model_reading.h"

#include "base/saturate.h"

#include <stdio.h>
#include <string.h>

enum { FP4_GROUP = 32, FP4_SCALE = 1, FP8_SCALE = 4 };

/* Whether a text is there and has the word, in either case. */
static bool says(const json_t *root, const char *name, const char *small, const char *large) {
    const char *text = json_string_value(json_object_get(root, name));
    return text != NULL && (strstr(text, small) != NULL || strstr(text, large) != NULL);
}

/* Bits by the words of a mapping; 0: it says nothing of FP4 or FP8. */
static size_t bits_of(const json_t *quantized) {
    static const char *const names[] = {"expert_dtype", "format", "quant_algo", "quant_method"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (says(quantized, names[i], "fp4", "FP4")) return 4;
        if (says(quantized, names[i], "fp8", "FP8")) return 8;
    }
    return 0;
}

/* Elements of a scale: a group of a row, or a block; 0: it is not said. */
static size_t group_of(const json_t *quantized) {
    const json_t *weights =
        json_object_get(json_object_get(json_object_get(quantized, "config_groups"), "group_0"), "weights");
    const json_t *block = json_object_get(quantized, "weight_block_size");
    json_int_t group = json_integer_value(json_object_get(quantized, "group_size"));
    if (group <= 0) group = json_integer_value(json_object_get(weights, "group_size"));
    if (group > 0 && group <= 65536) return (size_t)group;
    const json_int_t rows = json_integer_value(json_array_get(block, 0)),
                     columns = json_integer_value(json_array_get(block, 1));
    const bool known = rows > 0 && rows <= 65536 && columns > 0 && columns <= 65536;
    return known ? (size_t)rows * (size_t)columns : 0;
}

void spw_reading_storage(const spw_reading *in, spw_model *m) {
    const json_t *quantized = json_object_get(in->root, "quantization_config");
    if (quantized == NULL) quantized = json_object_get(in->whole, "quantization_config");
    const size_t said = bits_of(in->root), bits = said > 0 ? said : bits_of(quantized);
    if (bits == 0) return;
    const bool exponent = says(quantized, "scale_fmt", "ue8m0", "UE8M0");
    const size_t group = said == 4 ? 0 : group_of(quantized); /* the blocks are those of the rest */
    m->stored_bits = bits;
    m->stored_group = group > 0 || bits == 8 ? group : FP4_GROUP;
    m->stored_scale = bits == 4 || exponent ? FP4_SCALE : FP8_SCALE;
}

uint64_t spw_model_stored_experts(const spw_model *m) {
    const uint64_t elements = spw_model_routed(m);
    const uint64_t scales = m->stored_group > 0 ? elements / m->stored_group : 0;
    return elements / 8 * m->stored_bits + scales * m->stored_scale;
}
