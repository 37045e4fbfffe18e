#include "sim/frameworks/model/layer_list.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Python's lists --- */

static const char *skip(const char *at) { return at + strspn(at, " "); }

/* "*24" behind a list or brackets: what stands in `out` from `from` on, so many times. NULL: too many. */
static const char *repeat(const char *at, size_t from, spw_layer_list *out) {
    at = skip(at);
    if (*at != '*') return at;
    at = skip(at + 1);
    char *end = NULL;
    const size_t length = out->layers - from;
    const unsigned long times = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
    if (times == 0 || times > SPW_MODEL_MAX_LAYERS || from + length * times > SPW_MODEL_MAX_LAYERS)
        return NULL;
    for (size_t i = 1; i < times; i++) memcpy(out->has + from + i * length, out->has + from, length);
    out->layers = from + length * times;
    return end;
}

/* "0,1" and where they end. */
static const char *read_numbers(const char *at, spw_layer_list *out) {
    for (at = skip(at); *at == '0' || *at == '1';) {
        if (out->layers == SPW_MODEL_MAX_LAYERS) return NULL;
        out->has[out->layers++] = *at == '1';
        at = skip(at + 1);
        if (*at != ',') break;
        at = skip(at + 1);
    }
    return at;
}

/* Lists between '+'. `open`: begins of brackets that are not closed yet, of which few are enough. */
static bool read_sum(const char *at, spw_layer_list *out) {
    size_t open[8], depth = 0;
    for (bool list = true; at != NULL;) { /* list: one is due */
        at = skip(at);
        if (list && *at == '(' && depth < sizeof open / sizeof *open) {
            open[depth++] = out->layers;
            at++;
        } else if (list && *at == '[') {
            const size_t from = out->layers;
            at = read_numbers(at + 1, out);
            at = at != NULL && *at == ']' ? repeat(at + 1, from, out) : NULL;
            list = false;
        } else if (!list && *at == ')' && depth > 0) {
            at = repeat(at + 1, open[--depth], out);
        } else if (!list && *at == '+') {
            list = true;
            at++;
        } else {
            return !list && *at == '\0' && depth == 0;
        }
    }
    return false;
}

bool spw_layer_list_read(const char *text, size_t layers, spw_layer_list *out) {
    char inner[SPW_LAYER_LIST_TEXT];
    const size_t length = strlen(text);
    *out = (spw_layer_list){.layers = 0};
    if (length > 1 && length < sizeof inner && strchr("'\"", text[0]) != NULL &&
        text[length - 1] == text[0]) {
        (void)snprintf(inner, sizeof inner, "%.*s", (int)(length - 2),
                       text + 1); /* quoted for a second shell */
        text = inner;
    }
    if (strchr(text, ',') != NULL && strchr(text, '[') == NULL) { /* a list of YAML */
        const char *end = read_numbers(text, out);
        return end != NULL && *end == '\0';
    }
    if (text[strspn(text, "0123456789")] != '\0') return read_sum(text, out) && out->layers > 0;
    const unsigned long every = strtoul(text, NULL, 10);
    if (every == 0 || layers == 0 || layers > SPW_MODEL_MAX_LAYERS) return false;
    out->layers = layers;
    for (size_t i = 0; i < layers; i++) out->has[i] = i % every == 0;
    return true;
}

/* --- And back --- */

/* Appends; SPW_ECONFIG where it does not fit. */
__attribute__((format(printf, 3, 4))) static spw_status append(char *out, size_t size, const char *format,
                                                               ...) {
    const size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(out + used, size - used, format, arguments);
    va_end(arguments);
    return more >= 0 && (size_t)more < size - used
               ? SPW_OK
               : spw_fail(SPW_ECONFIG, "layers with experts are said in more than %zu letters", size - 1);
}

/* The least number of layers of which all are a repetition. */
static size_t period_of(const uint8_t *has, size_t layers) {
    for (size_t period = 1; period < layers; period++)
        if (layers % period == 0 && memcmp(has, has + period, layers - period) == 0) return period;
    return layers;
}

spw_status spw_layer_list_write(const spw_model *m, char *out, size_t size) {
    const size_t period = period_of(m->is_moe, m->layers);
    const bool repeats = period > 1 && period < m->layers;
    spw_status status = SPW_OK;
    out[0] = '\0';
    SPW_TRY(append(out, size, "("));
    for (size_t i = 0; repeats && i < period; i++)
        SPW_TRY(append(out, size, "%s%d", i > 0 ? "," : "[", m->is_moe[i]));
    if (repeats) SPW_TRY(append(out, size, "]*%zu", m->layers / period));
    for (size_t i = 0, next = 0; !repeats && i < m->layers; i = next) {
        while (next < m->layers && m->is_moe[next] == m->is_moe[i]) next++;
        SPW_TRY(append(out, size, "%s[%d]*%zu", i > 0 ? "+" : "", m->is_moe[i], next - i));
    }
    SPW_TRY(append(out, size, ")"));

cleanup:
    return status;
}

spw_status spw_layer_list_keys(const spw_layer_list *list, char *out, size_t size) {
    size_t first = 0, step = 1;
    bool dense_first = true, stepped = true;
    spw_status status = SPW_OK;
    while (first < list->layers && list->has[first] == 0) first++;
    step = first + 1;
    for (size_t i = 0; i < list->layers; i++) {
        dense_first = dense_first && list->has[i] == (i >= first);
        stepped = stepped && list->has[i] == ((i + 1) % step == 0);
    }
    if (dense_first && first == 0) return SPW_OK;
    if (dense_first) return append(out, size, ", \"first_k_dense_replace\": %zu", first);
    if (stepped) return append(out, size, ", \"decoder_sparse_step\": %zu", step);
    SPW_TRY(append(out, size, ", \"mlp_only_layers\": "));
    for (size_t i = 0, dense = 0; i < list->layers; i++)
        if (list->has[i] == 0) SPW_TRY(append(out, size, "%s%zu", dense++ > 0 ? ", " : "[", i));
    SPW_TRY(append(out, size, "]"));

cleanup:
    return status;
}
