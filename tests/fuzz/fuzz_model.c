/* libFuzzer target of a model's configuration, as a stranger publishes it: JSON of Hugging Face's, or keys of ours. What is read has
 * layers and parameters that fit together, and is read again alike. */
#include "sim/model/model.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static spw_model model, again;
    if (size > 1 << 16) return 0;
    const spw_status status = spw_model_parse("config.json", (const char *)data, size, &model);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return 0;
    const spw_parameters p = spw_model_parameters(&model);
    if (model.moe_layers == 0 || model.moe_layers > model.layers || model.top_k > model.experts) abort();
    if (model.top_k == 0 || model.hidden == 0 || p.active > p.total || p.total == 0) abort();
    if (spw_model_parse("config.json", (const char *)data, size, &again) != SPW_OK) abort();
    const spw_parameters q = spw_model_parameters(&again);
    if (q.active != p.active || q.total != p.total) abort();
    return 0;
}
