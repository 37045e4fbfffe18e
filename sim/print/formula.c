#include "sim/print/formula.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One walk over the words, which counts and, where there is a text, writes. */
typedef struct walk {
    const spw_formula *of;
    const char *at;
    char *out; /* NULL: counts alone */
    size_t size, used;
    bool numbers; /* in the place of names */
} walk;

__attribute__((format(printf, 2, 3))) static void put(walk *w, const char *format, ...) {
    if (w->out == NULL) return;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(w->out + w->used, w->size - w->used, format, args);
    va_end(args);
    w->used = length < 0 || w->used + (size_t)length >= w->size ? w->size - 1 : w->used + (size_t)length;
}

/* Counts and sizes as they are, what is larger to six digits unless it is asked for exactly. */
static void put_number(walk *w, double value, bool exactly) {
    const bool whole = value >= 0.0 && (value < 1e6 || (exactly && value < 1e18)) && value == floor(value);
    put(w, whole ? "%.0f" : "%.6g", value);
}

static const spw_term *term_of(const spw_formula *f, const char *name, size_t length) {
    for (size_t i = 0; i < f->terms; i++)
        if (strncmp(f->term[i].name, name, length) == 0 && f->term[i].name[length] == '\0')
            return &f->term[i];
    return NULL;
}

/* $1 to $9: a term by its place. */
static const spw_term *numbered(const spw_formula *f, char digit) {
    const size_t i = (size_t)(digit - '1');
    return digit >= '1' && digit <= '9' && i < f->terms ? &f->term[i] : NULL;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static void skip(walk *w) {
    while (*w->at == ' ') w->at++;
}

static double sum(walk *w);

static double put_term(walk *w, const spw_term *term, bool exactly) {
    if (w->numbers || exactly)
        put_number(w, term->value, exactly);
    else
        put(w, "%s", term->name);
    return term->value;
}

static double name(walk *w) {
    if (*w->at == '$') {
        const spw_term *term = numbered(w->of, w->at[1]);
        w->at += term != NULL ? 2 : 1;
        return term != NULL ? put_term(w, term, false) : NAN;
    }
    const bool number = *w->at == '{';
    const bool enclosed = number || *w->at == '\'';
    const int closes = number ? '}' : '\'';
    const char *begin = w->at += enclosed ? 1 : 0;
    while (enclosed ? *w->at != closes && *w->at != '\0' : is_letter(*w->at) || is_digit(*w->at)) w->at++;
    const spw_term *term = term_of(w->of, begin, (size_t)(w->at - begin));
    if (enclosed && *w->at == closes) w->at++;
    return term != NULL ? put_term(w, term, number) : NAN;
}

static double factor(walk *w) {
    double value = NAN;
    if (*w->at == '(') {
        w->at++;
        put(w, "(");
        value = sum(w);
        if (*w->at != ')') return NAN;
        w->at++;
        put(w, ")");
    } else if (is_digit(*w->at)) {
        char *end = NULL;
        const char *begin = w->at;
        value = strtod(begin, &end);
        w->at = end;
        put(w, "%.*s", (int)(end - begin), begin);
    } else if (is_letter(*w->at) || *w->at == '\'' || *w->at == '{' || *w->at == '$') {
        value = name(w);
    }
    if (strncmp(w->at, "^2", 2) != 0) return value;
    w->at += 2;
    put(w, "^2");
    return value * value;
}

static bool begins_factor(char c) {
    return c == '(' || c == '\'' || c == '{' || c == '$' || is_digit(c) || is_letter(c);
}

/* Does what follows begin with a digit where names are written? */
static bool is_number(const walk *w) {
    const spw_term *term = *w->at == '$' ? numbered(w->of, w->at[1]) : NULL;
    const char *begin = term != NULL ? term->name : *w->at == '\'' ? w->at + 1 : w->at;
    return *begin == '{' || is_digit(*begin);
}

static double product(walk *w) {
    skip(w);
    bool number = is_number(w);
    double value = factor(w);
    for (;;) {
        skip(w);
        const bool next = is_number(w);
        if (*w->at == '/') {
            w->at++;
            skip(w);
            put(w, " / ");
            value /= factor(w);
        } else if (begins_factor(*w->at)) {
            put(w, w->numbers || (number && next) ? " x " : " ");
            value *= factor(w);
            number = next;
        } else {
            return value;
        }
    }
}

/* + product or - product */
static double signed_product(walk *w) {
    const char sign = *w->at++;
    put(w, " %c ", sign);
    const double value = product(w);
    return sign == '-' ? -value : value;
}

static double sum(walk *w) {
    double value = product(w);
    for (;;) {
        skip(w);
        if (*w->at == '[') {
            w->at++;
            walk silent = *w;
            silent.out = NULL;
            const double part = signed_product(&silent);
            if (part != 0.0) (void)signed_product(w);
            w->at = silent.at;
            if (*w->at != ']') return NAN;
            w->at++;
            value += part;
        } else if (*w->at == '+' || *w->at == '-') {
            value += signed_product(w);
        } else {
            return value;
        }
    }
}

/* Behind the note, which is written where there is a text. */
static void pass_note(walk *w) {
    const char *end = strstr(w->at, ": ");
    if (end == NULL) return;
    for (end += 2; w->at < end; w->at++) {
        const char *closes = *w->at == '{' ? strchr(w->at, '}') : NULL;
        const spw_term *term =
            closes != NULL ? term_of(w->of, w->at + 1, (size_t)(closes - w->at - 1)) : NULL;
        if (term != NULL)
            put_number(w, term->value, true), w->at = closes;
        else
            put(w, "%c", *w->at);
    }
}

/* --- Shapes --- */

static bool is_shape(const spw_formula *f) { return f->words[0] == '['; }

static double shape_value(const spw_formula *f) {
    double value = 1.0;
    for (size_t i = 0; i < f->terms; i++) value *= f->term[i].value;
    return value;
}

/* A factor in front of the last dimension stands in one number with it. */
static void print_shape(const spw_formula *f, walk *w) {
    const bool times = f->words[1] != ']';
    const size_t dims = f->terms - (times ? 2 : 1);
    const double factor = times ? f->term[dims].value : 1.0, bytes = f->term[f->terms - 1].value;
    for (size_t i = 0; i < dims; i++) {
        put(w, i == 0 ? "[" : ", ");
        if (times && i + 1 == dims) put(w, "%.0f ", factor);
        put(w, "%s", f->term[i].name);
    }
    put(w, "] x %.0f B = ", bytes);
    for (size_t i = 0; i < dims; i++) put(w, "%.0f x ", f->term[i].value * (i + 1 == dims ? factor : 1.0));
    put(w, "%.0f", bytes);
}

double spw_formula_value(const spw_formula *f) {
    if (is_shape(f)) return shape_value(f);
    walk w = {.of = f, .at = f->words, .numbers = true};
    pass_note(&w);
    if (*w.at == '=') w.at++;
    const double value = sum(&w);
    return *w.at == '\0' ? value : NAN;
}

void spw_formula_print(const spw_formula *f, char *out, size_t size) {
    walk w = {.of = f, .at = f->words, .out = out, .size = size};
    if (size == 0) return;
    out[0] = '\0';
    if (is_shape(f)) {
        print_shape(f, &w);
        return;
    }
    if (f->note != NULL) put(&w, "%s: ", f->note);
    pass_note(&w);
    const char *begin = w.at;
    if (*begin == '=') {
        begin++;
    } else {
        (void)sum(&w);
        put(&w, " = ");
    }
    w.at = begin;
    w.numbers = true;
    (void)sum(&w);
}
