/* Shell scripts and command lines: their words, and what of them is an argument. Assignments of plain values become variables;
 * arguments are "--name value ...", "--name=value" and "name=value" behind a command's first word, wherever they stand: both
 * branches of an `if` are read, in the order in which they are written. Nothing is executed. */
#include "sim/frameworks/file_entries.h"

#include "base/memory.h"
#include "sim/frameworks/variables.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORDS = 1024, NESTED = 4, WORD = 32768 }; /* a word may be all arguments of a command */
enum { PLAIN_DOLLAR = 1 }; /* within a word: a '$' that quotes or a backslash make a letter */

typedef struct shell_word {
    char *text;
    size_t line;
    bool unknown, quoted, separator; /* separator: the text is "" and a command ends here */
} shell_word;

typedef struct shell_reader {
    spw_file_entries *out;
    spw_variables variables;
    shell_word word[WORDS];
    size_t words;
    char raw[WORD], value[WORD];
    bool in_array; /* words between NAME=( and ): arguments */
} shell_reader;

static spw_status read_text(shell_reader *r, const char *text, size_t line, size_t depth);

static void forget_words(shell_reader *r) {
    for (size_t i = 0; i < r->words; i++) spw_free(r->word[i].text);
    r->words = 0;
}

static size_t name_of_assignment(const char *word) {
    size_t length = 0;
    if (!isalpha((unsigned char)word[0]) && word[0] != '_') return 0;
    while (isalnum((unsigned char)word[length]) || word[length] == '_') length++;
    return word[length] == '=' ? length : word[length] == '+' && word[length + 1] == '=' ? length : 0;
}

/* A text of arguments, "--num-layers 32 --bf16", or a command in quotes. */
static bool holds_arguments(const char *text) {
    const char *at = strstr(text, "--");
    if (at == NULL || !isalpha((unsigned char)at[2])) return false;
    return (at == text || isspace((unsigned char)at[-1])) && text[strcspn(text, " \t\n")] != '\0';
}

/* --- Words to entries --- */

/* "--name=value", "name=value", "+name=value", "++name=value"; false: neither. */
static bool split_pair(const char *word, char name[SPW_ENTRY_NAME], const char **value) {
    const char *begin = word + (strncmp(word, "--", 2) == 0 ? 2 : strspn(word, "+"));
    size_t length = 0;
    while (isalnum((unsigned char)begin[length]) || strchr("_-.", begin[length]) != NULL) {
        if (begin[length] == '\0') break;
        length++;
    }
    if (length == 0 || length >= SPW_ENTRY_NAME || begin[length] != '=') return false;
    (void)snprintf(name, SPW_ENTRY_NAME, "%.*s", (int)length, begin);
    *value = begin + length + 1;
    return true;
}

static bool is_option(const char *word) {
    return strncmp(word, "--", 2) == 0 && (isalpha((unsigned char)word[2]) || word[2] == '_');
}

/* "trainer.num_nodes=4", of itself and no value of an option before it. */
static bool is_override(const char *word) {
    char name[SPW_ENTRY_NAME];
    const char *value = NULL;
    return split_pair(word, name, &value) && strchr(name, '.') != NULL;
}

static bool is_program(const char *word) {
    const size_t length = strlen(word);
    return length > 3 && (strcmp(word + length - 3, ".py") == 0 || strcmp(word + length - 3, ".sh") == 0);
}

/* Whole words that stand for arguments which are read where they are set: "${MODEL_ARGS[@]}", $ARGS, $@. */
static bool stands_for_arguments(const shell_word *word) {
    return word->text[0] == '$' && (strchr(word->text, '@') != NULL || word->unknown);
}

/* A variable that holds arguments, which are read where it is set: $ARGS, ${ARGS}. */
static bool holds_known_arguments(const shell_reader *r, const char *word) {
    const size_t open = word[0] == '$' && word[1] == '{';
    if (word[0] != '$') return false;
    const size_t length = strcspn(word + 1 + open, "}");
    const spw_variable *found = spw_variables_find(&r->variables, word + 1 + open, length);
    return found != NULL && found->unknown && found->value[0] == '\0' &&
           word[1 + open + length + open] == '\0';
}

/* A value that is too long, such as a list of data, is cut, and not known. */
static spw_status add_entry(shell_reader *r, const char *name, const char *value, spw_file_entry like) {
    char begin[SPW_ENTRY_VALUE];
    if (strlen(value) >= sizeof begin) like.unknown = true;
    like.nothing = !like.bare && (strcmp(value, "None") == 0 || strcmp(value, "null") == 0);
    (void)snprintf(begin, sizeof begin, "%s", value);
    return spw_file_entries_add(r->out, name, begin, like);
}

/* "--name" with the words behind it; returns the first word that is none of them. */
static spw_status add_option(shell_reader *r, size_t from, size_t end, size_t *next) {
    char list[SPW_ENTRY_VALUE + 1] = ""; /* one more than fits: it is cut */
    size_t used = 0;
    spw_file_entry like = {.line = r->word[from].line};
    const char *name = r->word[from].text + 2;
    for (*next = from + 1; *next < end; (*next)++) {
        const shell_word *word = &r->word[*next];
        if (is_option(word->text) || is_program(word->text) || is_override(word->text)) break;
        if (stands_for_arguments(word) && strchr(word->text, '@') != NULL) break;
        if (word->unknown && holds_known_arguments(r, word->text)) break;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? "," : "", word->text);
        if (used >= sizeof list) used = sizeof list - 1;
        like.unknown = like.unknown || word->unknown;
    }
    like.bare = *next == from + 1;
    return add_entry(r, name, like.bare ? "true" : list, like);
}

static spw_status add_arguments(shell_reader *r, size_t from, size_t end) {
    char name[SPW_ENTRY_NAME];
    const char *value = NULL;
    spw_status status = SPW_OK;
    for (size_t i = from; status == SPW_OK && i < end;) {
        const shell_word *word = &r->word[i];
        const spw_file_entry like = {.line = word->line, .unknown = word->unknown};
        const bool stands = stands_for_arguments(word);
        if (!stands && split_pair(word->text, name, &value))
            status = add_entry(r, name, value, like), i++;
        else if (!stands && is_option(word->text))
            status = add_option(r, i, end, &i);
        else
            i++;
    }
    return status;
}

/* NAME=value; of a value made of arguments, these as well. */
static spw_status set_variable(shell_reader *r, const shell_word *word, bool with_command, size_t depth) {
    char name[SPW_ENTRY_NAME];
    const size_t length = name_of_assignment(word->text);
    const char *value = word->text + length + (word->text[length] == '+' ? 2 : 1);
    if (length >= SPW_VARIABLE_NAME) return SPW_OK;
    (void)snprintf(name, sizeof name, "%.*s", (int)length, word->text);
    if (holds_arguments(value)) {
        spw_status status =
            spw_variables_set(&r->variables, name, "", true); /* read here, not where it is used */
        if (status != SPW_OK || depth >= NESTED) return status;
        char *inner = NULL;
        status = SPW_ALLOC(strlen(value) + 1, &inner);
        if (status != SPW_OK) return status;
        memcpy(inner, value, strlen(value) + 1);
        const size_t line = word->line;
        forget_words(r);
        status = read_text(r, inner, line, depth + 1);
        spw_free(inner);
        return status;
    }
    const spw_status status = spw_variables_set(&r->variables, name, value, word->unknown);
    if (status != SPW_OK || !with_command) return status;
    (void)snprintf(name, sizeof name, "env.%.*s", (int)length, word->text);
    return add_entry(r, name, value, (spw_file_entry){.line = word->line, .unknown = word->unknown});
}

/* One word of a command that is a command itself, as behind bash -c. */
static spw_status read_quoted(shell_reader *r, size_t depth, bool *found) {
    *found = false;
    for (size_t i = 0; i < r->words && depth < NESTED; i++) {
        if (!r->word[i].quoted || !holds_arguments(r->word[i].text) || is_option(r->word[i].text)) continue;
        char *inner = r->word[i].text;
        const size_t line = r->word[i].line;
        r->word[i].text = NULL;
        forget_words(r);
        const spw_status status = read_text(r, inner, line, depth + 1);
        spw_free(inner);
        *found = true;
        return status;
    }
    return SPW_OK;
}

static bool is_word(const char *text, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(text, *list) == 0) return true;
    return false;
}

/* What was collected since the last separator. */
static spw_status end_command(shell_reader *r, size_t depth) {
    static const char *const silent[] = {"echo", "printf", "for", "mkdir", "test", "[", "[[", "case", NULL},
                             *const setting[] = {"export", "local", "readonly", "declare", "then",
                                                 "else",   "do",    "set",      NULL};
    spw_status status = SPW_OK;
    size_t first = 0, last = 0;
    bool found = false;
    if (r->words == 0) return SPW_OK;
    if (r->in_array) {
        status = add_arguments(r, 0, r->words);
        forget_words(r);
        return status;
    }
    bool exported = false;
    while (first < r->words && is_word(r->word[first].text, setting))
        exported = exported || strcmp(r->word[first].text, "export") == 0, first++;
    if (first < r->words && is_word(r->word[first].text, silent)) first = r->words;
    for (last = first; last < r->words && name_of_assignment(r->word[last].text) > 0; last++) {
    }
    for (size_t i = first; status == SPW_OK && i < last && i < r->words; i++) {
        const size_t words = r->words;
        status = set_variable(r, &r->word[i], exported || last < r->words, depth);
        if (r->words != words) return status; /* it was text of arguments, and its words are gone */
    }
    if (status == SPW_OK && last < r->words) status = read_quoted(r, depth, &found);
    if (status == SPW_OK && !found && last < r->words) status = add_arguments(r, last, r->words);
    forget_words(r);
    return status;
}

/* --- Text to words --- */

static spw_status end_word(shell_reader *r, size_t used, size_t line, bool quoted) {
    bool unknown = false;
    char *copy = NULL;
    if (r->words == WORDS)
        return spw_fail(SPW_ECONFIG, "%s:%zu: a command of more than %d words", r->out->where, line, WORDS);
    r->raw[used] = '\0';
    spw_status status =
        spw_variables_expand(r->out->where, line, &r->variables, r->raw, r->value, sizeof r->value, &unknown);
    for (char *c = r->value; *c != '\0'; c++) *c = (char)(*c == PLAIN_DOLLAR ? '$' : *c);
    if (status == SPW_OK) status = SPW_ALLOC(strlen(r->value) + 1, &copy);
    if (status != SPW_OK) return status;
    memcpy(copy, r->value, strlen(r->value) + 1);
    r->word[r->words++] = (shell_word){copy, line, unknown, quoted, false};
    return SPW_OK;
}

/* The length of what is within brackets, and these; 1: they are not closed. */
static size_t bracket_length(const char *at, char open, char close) {
    size_t depth = 0;
    for (size_t i = 0; at[i] != '\0'; i++) {
        depth += at[i] == open;
        if (at[i] == close && --depth == 0) return i + 1;
    }
    return 1;
}

/* The characters of $(...), ${...} and $((...)) belong to the word, whatever they are. */
static size_t dollar_length(const char *at) {
    const char open = at[1];
    if (open != '(' && open != '{') return 1;
    const size_t length = bracket_length(at + 1, open, open == '(' ? ')' : '}');
    return length > 1 ? length + 1 : 1;
}

typedef struct scan {
    const char *at;
    size_t line, used, word_line;
    bool in_word, quoted;
} scan;

static spw_status take(shell_reader *r, scan *s, size_t length) {
    if (s->used + length + 1 >= sizeof r->raw)
        return spw_fail(SPW_ECONFIG, "%s:%zu: a word of more than %d characters", r->out->where, s->line,
                        WORD - 2);
    if (!s->in_word) s->word_line = s->line;
    s->in_word = true;
    for (size_t i = 0; i < length; i++) s->line += s->at[i] == '\n';
    memcpy(r->raw + s->used, s->at, length);
    s->used += length;
    s->at += length;
    return SPW_OK;
}

/* One character that is no more than itself. */
static spw_status take_plain(shell_reader *r, scan *s) {
    const spw_status status = take(r, s, 1);
    if (status == SPW_OK && r->raw[s->used - 1] == '$') r->raw[s->used - 1] = PLAIN_DOLLAR;
    return status;
}

/* What stands between quotes; the quotes go. An end that is missing is the end of the text. */
static spw_status take_quoted(shell_reader *r, scan *s) {
    const char quote = *s->at++;
    spw_status status = SPW_OK;
    if (!s->in_word) s->word_line = s->line;
    s->in_word = s->quoted = true;
    while (status == SPW_OK && *s->at != '\0' && *s->at != quote) {
        if (quote == '"' && s->at[0] == '\\' && s->at[1] == '\n')
            s->at += 2, s->line++;
        else if (quote == '"' && s->at[0] == '\\' && strchr("\"\\$`", s->at[1]) != NULL && s->at[1] != '\0')
            s->at++, status = take_plain(r, s);
        else if (quote == '"' && s->at[0] == '$')
            status = take(r, s, dollar_length(s->at));
        else
            status = take_plain(r, s);
    }
    s->at += *s->at == quote;
    return status;
}

static spw_status finish_word(shell_reader *r, scan *s) {
    const bool in_word = s->in_word;
    const size_t used = s->used;
    s->used = 0;
    s->in_word = false;
    const spw_status status = in_word ? end_word(r, used, s->word_line, s->quoted) : SPW_OK;
    s->quoted = false;
    return status;
}

/* A comment; "#SBATCH --nodes=8" is a command of the batch system. */
static spw_status skip_comment(shell_reader *r, scan *s, size_t depth) {
    char text[256];
    const size_t length = strcspn(s->at, "\n");
    spw_status status = SPW_OK;
    if (strncmp(s->at, "#SBATCH ", 8) == 0 && length < sizeof text && depth == 0) {
        (void)snprintf(text, sizeof text, "sbatch %.*s", (int)(length - 8), s->at + 8);
        text[strcspn(text, "#")] = '\0';
        status = end_command(r, depth);
        if (status == SPW_OK) status = read_text(r, text, s->line, 1);
    }
    s->at += length;
    return status;
}

/* An array of arguments begins, NAME=( or NAME+=(; the words in front of it are a command of their own. */
static bool begins_array(const shell_reader *r, const scan *s) {
    return s->in_word && s->used > 1 && r->raw[s->used - 1] == '=' && s->at[0] == '(';
}

static spw_status read_one(shell_reader *r, scan *s, size_t depth) {
    spw_status status = SPW_OK;
    const char c = *s->at;
    if (c == '\\' && s->at[1] == '\n') {
        s->at += 2, s->line++;
        return finish_word(r, s);
    }
    if (c == '\\' && s->at[1] != '\0') {
        s->at++;
        return take_plain(r, s);
    }
    if (c == '"' || c == '\'') return take_quoted(r, s);
    if (c == '$') return take(r, s, dollar_length(s->at));
    if (c == '#' && !s->in_word) return skip_comment(r, s, depth);
    if (begins_array(r, s)) {
        s->used = 0, s->in_word = false, s->at++;
        status = end_command(r, depth);
        r->in_array = true;
        return status;
    }
    if (strchr(" \t\r", c) != NULL || (c == '\n' && r->in_array)) {
        s->at++, s->line += c == '\n';
        return finish_word(r, s);
    }
    if (c == '(' && !s->in_word && s->at[1] == '[')
        return take(r, s, bracket_length(s->at, '(', ')')); /* of layers */
    if (strchr("\n;&|()<>`", c) == NULL) return take(r, s, 1);
    s->at++, s->line += c == '\n';
    status = finish_word(r, s);
    if (status == SPW_OK) status = end_command(r, depth);
    if (c == ')') r->in_array = false;
    return status;
}

static spw_status read_text(shell_reader *r, const char *text, size_t line, size_t depth) {
    scan s = {.at = text, .line = line};
    spw_status status = SPW_OK;
    const bool outer = r->in_array;
    r->in_array = false;
    while (status == SPW_OK && *s.at != '\0') status = read_one(r, &s, depth);
    if (status == SPW_OK) status = finish_word(r, &s);
    if (status == SPW_OK) status = end_command(r, depth);
    r->in_array = outer;
    return status;
}

spw_status spw_entries_of_shell(const char *text, spw_file_entries *out) {
    shell_reader *r = NULL;
    spw_status status = SPW_ALLOC(1, &r);
    if (status != SPW_OK) return status;
    r->out = out;
    status = read_text(r, text, 1, 0);
    forget_words(r);
    spw_variables_close(&r->variables);
    spw_free(r);
    return status;
}
