#include "sim/frameworks/variables.h"

#include "base/memory.h"
#include "sim/frameworks/file_entries.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

spw_status spw_variables_set(spw_variables *v, const char *name, const char *value, bool unknown) {
    spw_variable *at = NULL;
    const size_t size = strlen(value) + 1;
    char *copy = NULL;
    for (size_t i = 0; i < v->count && at == NULL; i++)
        if (strcmp(v->variable[i].name, name) == 0) at = &v->variable[i];
    if (at == NULL && (v->count == SPW_VARIABLES || strlen(name) >= SPW_VARIABLE_NAME)) return SPW_OK;
    const spw_status status = SPW_ALLOC(size, &copy);
    if (status != SPW_OK) return status;
    memcpy(copy, value, size);
    if (at == NULL) {
        at = &v->variable[v->count++];
        (void)snprintf(at->name, sizeof at->name, "%s", name);
    }
    spw_free(at->value);
    at->value = copy;
    at->unknown = unknown;
    return SPW_OK;
}

const spw_variable *spw_variables_find(const spw_variables *v, const char *name, size_t length) {
    for (size_t i = 0; v != NULL && i < v->count; i++)
        if (strlen(v->variable[i].name) == length && memcmp(v->variable[i].name, name, length) == 0)
            return &v->variable[i];
    return NULL;
}

void spw_variables_close(spw_variables *v) {
    for (size_t i = 0; i < v->count; i++) spw_free(v->variable[i].value);
    v->count = 0;
}

typedef struct expansion {
    const char *where;
    size_t line;
    const spw_variables *variables;
    char *out;
    size_t size, used, steps;
    bool *unknown;
} expansion;

static spw_status put(expansion *x, const char *text, size_t length) {
    if (x->used + length >= x->size)
        return spw_fail(SPW_ECONFIG, "%s:%zu: a value of more than %zu characters", x->where, x->line,
                        x->size - 1);
    memcpy(x->out + x->used, text, length);
    x->used += length;
    x->out[x->used] = '\0';
    return SPW_OK;
}

static size_t name_length(const char *at) {
    size_t length = 0;
    if (!isalpha((unsigned char)at[0]) && at[0] != '_') return 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
    return length;
}

/* The length up to the bracket that closes the one behind `at`; 0: none. */
static size_t closed_by(const char *at, char open, char close) {
    size_t depth = 0;
    for (size_t i = 0; at[i] != '\0'; i++) {
        depth += at[i] == open;
        if (at[i] == close && --depth == 0) return i + 1;
    }
    return 0;
}

static spw_status expand(expansion *x, const char *text, size_t length);

/* Whole numbers with * / + - between, from left to right; products before sums. */
static bool compute(const char *text, long long *out) {
    long long sum = 0, product = 0, sign = 1;
    char operation = 0;
    for (const char *at = text;;) {
        at += strspn(at, " \t\n");
        char *end = NULL;
        const long long value = strtoll(at, &end, 10);
        if (end == at || value > 1000000000LL || value < -1000000000LL || (operation == '/' && value == 0))
            return false;
        product = operation == '*' ? product * value : operation == '/' ? product / value : value;
        if (product > 1000000000000LL || product < -1000000000000LL) return false;
        at = end + strspn(end, " \t\n");
        if (*at == '*' || *at == '/') {
            operation = *at++;
            continue;
        }
        sum += sign * product;
        if (*at == '\0') break;
        if (*at != '+' && *at != '-') return false;
        sign = *at++ == '+' ? 1 : -1;
        operation = 0;
    }
    *out = sum;
    return true;
}

/* $((A*B)): names in it need no '$'. */
static spw_status put_arithmetic(expansion *x, const char *inner, size_t length, const char *whole,
                                 size_t whole_length) {
    char named[SPW_ENTRY_VALUE], computed[SPW_ENTRY_VALUE], number[32];
    size_t used = 0;
    bool unknown = false;
    long long value = 0;
    while (length > 1 && inner[0] == '(' && inner[length - 1] == ')') inner++, length -= 2; /* $(((A + B))) */
    for (size_t i = 0; i < length && used + SPW_VARIABLE_NAME + 2 < sizeof named;) {
        const size_t word = name_length(inner + i);
        const bool marked = i > 0 && (inner[i - 1] == '$' || inner[i - 1] == '{');
        if (word > 0 && word < SPW_VARIABLE_NAME && !marked) named[used++] = '$';
        const size_t step = word > 0 && word < SPW_VARIABLE_NAME ? word : 1;
        memcpy(named + used, inner + i, step);
        used += step;
        i += step;
    }
    named[used] = '\0';
    if (x->steps >= SPW_EXPANSIONS) return put(x, whole, whole_length);
    expansion inside = {x->where,        x->line, x->variables, computed,
                        sizeof computed, 0,       x->steps + 1, &unknown};
    computed[0] = '\0';
    const spw_status status = expand(&inside, named, used);
    if (status != SPW_OK) return status;
    if (unknown || !compute(computed, &value)) {
        *x->unknown = true;
        return put(x, whole, whole_length);
    }
    (void)snprintf(number, sizeof number, "%lld", value);
    return put(x, number, strlen(number));
}

/* A variable, or its default, which begins with - or = behind the colon, or at once. */
static spw_status put_variable(expansion *x, const char *name, size_t length, const char *fallback,
                               size_t fallback_length, const char *whole, size_t whole_length) {
    const spw_variable *found = spw_variables_find(x->variables, name, length);
    if (found != NULL && !found->unknown && (found->value[0] != '\0' || fallback == NULL))
        return put(x, found->value, strlen(found->value));
    if (fallback == NULL || x->steps >= SPW_EXPANSIONS) {
        *x->unknown = true;
        return put(x, whole, whole_length);
    }
    x->steps++;
    while (fallback_length > 1 && fallback[0] == '"' && fallback[fallback_length - 1] == '"')
        fallback++, fallback_length -= 2;
    return expand(x, fallback, fallback_length);
}

/* What begins with '$' at `at`; *length of it. */
static spw_status put_dollar(expansion *x, const char *at, size_t left, size_t *length) {
    const size_t plain = name_length(at + 1);
    *length = 1;
    if (strncmp(at, "$((", 3) == 0) {
        const size_t whole = closed_by(at + 1, '(', ')');
        if (whole < 4 || whole + 1 > left) return put(x, at, 1);
        *length = whole + 1;
        return put_arithmetic(x, at + 3, whole - 4, at, *length);
    }
    if (at[1] == '(' || at[1] == '@' || at[1] == '*' || isdigit((unsigned char)at[1])) {
        *x->unknown = true;
        const size_t whole = at[1] == '(' ? closed_by(at + 1, '(', ')') : 1;
        *length = whole > 0 && whole + 1 <= left ? whole + 1 : 1;
        return put(x, at, *length);
    }
    if (at[1] == '{') {
        const size_t whole = closed_by(at + 1, '{', '}'), name = name_length(at + 2);
        if (whole < 3 || whole + 1 > left) return put(x, at, 1);
        *length = whole + 1;
        const char *rest = at + 2 + name;
        size_t rest_length = whole - 2 - name;
        const bool has_default = name > 0 && rest_length > 0 && (rest[0] == ':' || rest[0] == '-');
        if (has_default && rest[0] == ':') rest++, rest_length--;
        if (has_default && rest_length > 0 && (rest[0] == '-' || rest[0] == '=')) rest++, rest_length--;
        if (rest_length > 0 && !has_default) *x->unknown = true;
        return put_variable(x, at + 2, name, has_default ? rest : NULL, rest_length, at, *length);
    }
    if (plain == 0) return put(x, at, 1);
    *length = plain + 1;
    return put_variable(x, at + 1, plain, NULL, 0, at, *length);
}

static spw_status expand(expansion *x, const char *text, size_t length) {
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < length;) {
        size_t step = 1;
        if (text[i] == '$')
            status = put_dollar(x, text + i, length - i, &step);
        else
            status = put(x, text + i, 1);
        i += step;
    }
    return status;
}

spw_status spw_variables_expand(const char *where, size_t line, const spw_variables *variables,
                                const char *text, char *out, size_t size, bool *unknown) {
    expansion x = {where, line, variables, out, size, 0, 0, unknown};
    out[0] = '\0';
    return expand(&x, text, strlen(text));
}
