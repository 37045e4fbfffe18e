/* Reads a YAML mapping into a struct by a table: one row a key. The table alone decides what is accepted,
 * what a refusal says and what the documentation lists. Text is hostile until proven: it has a size and depth
 * limit, an alias is never followed in a circle, a key may be given once, a number must be plain decimal and
 * finite. */
#ifndef SPW_SIM_READ_SETTINGS_H
#define SPW_SIM_READ_SETTINGS_H

#include "base/status.h"

#include <stddef.h>
#include <stdio.h>

enum { SPW_SETTINGS_BYTES = 1 << 20, SPW_SETTINGS_DEPTH = 16, SPW_SETTINGS_NODES = 16384 };

typedef enum spw_setting_kind {
    SPW_SETTING_COUNT,  /* size_t: a whole number */
    SPW_SETTING_REAL,   /* double */
    SPW_SETTING_FLAG,   /* bool: true or false */
    SPW_SETTING_TEXT,   /* char [size], ended by zero */
    SPW_SETTING_CHOICE, /* enum or size_t, by `size`: one of `choices`; with `parts`, or several of these */
    SPW_SETTING_COUNTS, /* size_t [limit]: a whole number or a list of them */
    SPW_SETTING_TEXTS,  /* char [limit][size]: a list */
    SPW_SETTING_GROUP   /* a mapping with a table of its own, into the struct at `offset` */
} spw_setting_kind;

typedef struct spw_choice {
    const char *name; /* NULL ends the list */
    size_t value;
} spw_choice;

typedef struct spw_setting {
    const char *key; /* NULL ends the table */
    spw_setting_kind kind;
    size_t offset;              /* of the field in the struct, by SPW_SETTING_OF and its like alone */
    size_t within, inside;      /* bytes of that struct; GROUP: of the struct that its table is of */
    size_t size;                /* TEXT, TEXTS: bytes of one text; CHOICE: sizeof the field */
    size_t limit, count_offset; /* lists: most elements; offset of the size_t that receives how many */
    size_t
        fewest; /* COUNTS: fewest elements that are taken where the key is given; 0: one, or a number alone */
    double minimum, maximum; /* COUNT, COUNTS, REAL; both ends are allowed */
    const char *fallback; /* the default as one would write it; NULL: the key is required. GROUP: "{}", every
                             key of the group then has a default, or "default": the field stays as the caller has
                             filled it; lists: "" is the empty list */
    const spw_choice *choices;
    const spw_choice
        *parts; /* CHOICE: bits that may be given together, as [a, b] or a+b or a,b; NULL: none */
    size_t (*join)(size_t bits);      /* the value of such a list */
    const struct spw_setting *fields; /* GROUP */
    const char *help;
    const char *option; /* its name on the command line, without "--"; NULL: none but --set */
} spw_setting;

/* A row's field, tied to its struct and its kind: what is of another type, or of another size, does not compile; a table of rows of
 * unlike structs, or a group whose table is of another struct than its field, is refused when it is read. */
/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types and fields, which take none */
#define SPW_OFFSET_OF(type, field, what) \
    (offsetof(type, field) + 0 * sizeof(char[_Generic(((type *)0)->field, what : 1, default : -1)]))
#define SPW_SETTING_OF(type, field, what) .offset = SPW_OFFSET_OF(type, field, what), .within = sizeof(type)
#define SPW_SETTING_CHOICE_OF(type, field, what) SPW_SETTING_OF(type, field, what), .size = sizeof(what)
#define SPW_SETTING_TEXT_OF(type, field, length) \
    SPW_SETTING_OF(type, field, char *), \
        .size = (length) + 0 * sizeof(char[sizeof(((type *)0)->field) == (length) ? 1 : -1])
#define SPW_SETTING_COUNTS_OF(type, field, most, counter) \
    SPW_SETTING_OF(type, field, size_t *), \
        .count_offset = SPW_OFFSET_OF(type, counter, size_t), \
        .limit = (most) + 0 * sizeof(char[sizeof(((type *)0)->field) == (most) * sizeof(size_t) ? 1 : -1])
#define SPW_SETTING_TEXTS_OF(type, field, length, most, counter) \
    .offset = SPW_OFFSET_OF(type, field[0], char *), .within = sizeof(type), .size = (length), \
    .count_offset = SPW_OFFSET_OF(type, counter, size_t), \
    .limit = (most) + 0 * sizeof(char[sizeof(((type *)0)->field) == (size_t)(most) * (length) ? 1 : -1])
#define SPW_SETTING_GROUP_OF(type, field) \
    .offset = offsetof(type, field), .within = sizeof(type), .inside = sizeof(((type *)0)->field)
/* A group whose table is of the struct around it. */
#define SPW_SETTING_SAME_GROUP(type) .offset = 0, .within = sizeof(type), .inside = sizeof(type)
/* NOLINTEND(bugprone-macro-parentheses) */

typedef struct spw_settings spw_settings;

/* `where` names the text in messages and must live as long as *out. SPW_ECONFIG with file and line when the
 * text is not one YAML mapping. The result is closed by spw_settings_close. */
SPW_MUST_CHECK spw_status spw_settings_open(const char *where, const char *text, size_t length,
                                            spw_settings **out);
void spw_settings_close(spw_settings *settings); /* NULL is fine */
/* The text was made for a file of another kind, `where`: messages name that without lines, which are not its own. */
void spw_settings_hide_lines(spw_settings *settings);
enum { SPW_ADVICE = 288 };
/* What to write for a key that no table has, from one who knows other names of them; "" where it knows none. Returns `out`. */
typedef const char *spw_settings_adviser(const char *word, size_t length, char out[SPW_ADVICE]);
void spw_settings_advise(spw_settings *settings, spw_settings_adviser *adviser);

/* Puts one value in, in place of what the text says at `path`, "batch.sequence_length"; mappings around it are made where they
 * are missing. `value` is YAML: a word, [a, b], {a: b}. Messages about it begin with `label`, which must live as long as the
 * settings. SPW_ECONFIG when the value is not YAML, or something on the way is no mapping. */
SPW_MUST_CHECK spw_status spw_settings_put(spw_settings *settings, const char *path, const char *value,
                                           const char *label);

/* Fills the struct at `out` (zeroed by the caller) by `table`. SPW_EARG where its rows are of unlike structs. SPW_ECONFIG: "file:line: what; what would be
 * right". */
SPW_MUST_CHECK spw_status spw_settings_read(const spw_settings *settings, const spw_setting *table,
                                            void *out);

/* The scalar that was given at `path`, as written; NULL: none, or no scalar. Lives as long as the settings. */
const char *spw_settings_text(const spw_settings *settings, const char *path);

enum { SPW_SETTINGS_PLACE = 320, SPW_SETTINGS_PUTS = 192 };

/* Where the value of a key was given: "job.yaml:7", or the label of spw_settings_put. Returns `out`. */
const char *spw_settings_place(const spw_settings *settings, const char *path, char out[SPW_SETTINGS_PLACE]);

/* The line of a key, "batch.sequence_length"; of what encloses it when it is not given. Counts from 1. */
size_t spw_settings_line(const spw_settings *settings, const char *path);

enum { SPW_SETTINGS_SHOWN = 48 };

/* Text of a stranger, fit for one line of a terminal: cut, control characters replaced by '?'. Returns
 * `shown`. */
const char *spw_settings_shown(const void *text, size_t length, char shown[SPW_SETTINGS_SHOWN]);

/* One line a key: name, what it takes, default, help. */
void spw_settings_describe(const spw_setting *table, FILE *out);

#endif
