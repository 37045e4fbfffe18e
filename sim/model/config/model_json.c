#include "sim/model/config/model_json.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

static const char *const words[] = {"-Infinity", "Infinity", "NaN"}; /* a word before those that end it */

/* Length of the word that begins at `at`, or 0. */
static size_t word_at(const char *at, size_t left) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t length = strlen(words[i]);
        if (length <= left && memcmp(at, words[i], length) == 0) return length;
    }
    return 0;
}

/* Copies the text with such words between quotes; to == NULL only counts. Returns the bytes of the copy. */
static size_t quote_words(const char *text, size_t length, char *to) {
    size_t used = 0;
    bool inside = false; /* of a string */
    for (size_t i = 0; i < length;) {
        const size_t word = inside ? 0 : word_at(text + i, length - i),
                     pair = inside && text[i] == '\\' && i + 1 < length ? 2 : 1,
                     bytes = word > 0 ? word : pair;
        if (word == 0 && text[i] == '"') inside = !inside;
        if (word > 0 && to != NULL) to[used] = to[used + 1 + bytes] = '"';
        if (to != NULL) memcpy(to + used + (word > 0), text + i, bytes);
        used += bytes + (word > 0 ? 2 : 0);
        i += bytes;
    }
    return used;
}

spw_status spw_model_json(const char *where, const char *text, size_t length, json_t **out) {
    json_error_t error;
    spw_status status = SPW_OK;
    char *quoted = NULL;
    *out = NULL;
    text = spw_text_skip_mark(text, &length);
    const size_t bytes = quote_words(text, length, NULL);
    if (bytes != length) {
        SPW_TRY(SPW_ALLOC(bytes, &quoted));
        (void)quote_words(text, length, quoted);
    }
    *out = json_loadb(quoted != NULL ? quoted : text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL)
        SPW_TRY(spw_fail(json_error_code(&error) == json_error_out_of_memory ? SPW_ENOMEM : SPW_ECONFIG,
                         "%s:%d: not JSON: %s", where, error.line, error.text));
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        status = spw_fail(SPW_ECONFIG, "%s: not a JSON object; give a Hugging Face config.json", where);
    }

cleanup:
    spw_free(quoted);
    return status;
}
