#include "sim/frameworks/draft.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_COUNT = 1 << 26 };

/* --- Notes --- */

static spw_status add_note(spw_draft *d, spw_note_kind kind, const spw_file_entry *entry, const char *name,
                           const char *why) {
    if (d->notes == d->note_room) {
        spw_draft_note *more = NULL;
        const size_t room = d->note_room > 0 ? 2 * d->note_room : 64;
        const spw_status status = SPW_ALLOC(room, &more);
        if (status != SPW_OK) return status;
        if (d->notes > 0) memcpy(more, d->note, d->notes * sizeof *more);
        spw_free(d->note);
        d->note = more;
        d->note_room = room;
    }
    char plain[SPW_ENTRY_NAME];
    spw_draft_note *note = &d->note[d->notes++];
    *note = (spw_draft_note){.kind = kind, .entry = entry, .line = entry != NULL ? entry->line : 0};
    spw_plain_text(entry != NULL ? spw_framework_plain_name(d->framework, entry->name, plain) : name,
                   note->name, sizeof note->name);
    spw_plain_text(entry != NULL && !entry->bare ? entry->value : "", note->value, sizeof note->value);
    (void)snprintf(note->why, sizeof note->why, "%s", why);
    return SPW_OK;
}

static spw_draft_fact_entry *find(spw_draft *d, const char *fact) {
    for (size_t i = 0; fact != NULL && i < d->facts; i++)
        if (strcmp(d->fact[i].name, fact) == 0) return &d->fact[i];
    return NULL;
}

spw_status spw_draft_note_fact(spw_draft *d, spw_note_kind kind, const char *fact, const char *why) {
    const spw_draft_fact_entry *f = find(d, fact);
    if (f == NULL || f->entry == NULL) return SPW_OK;
    return add_note(d, kind, f->entry, NULL, why);
}

spw_status spw_draft_note_text(spw_draft *d, spw_note_kind kind, const char *what, const char *why) {
    return add_note(d, kind, NULL, what, why);
}

spw_status spw_draft_note_more(spw_draft *d, const char *fact, const char *key, const char *why) {
    const size_t before = d->notes;
    const spw_status status = spw_draft_note_fact(d, SPW_NOTE_MORE, fact, why);
    if (status == SPW_OK && d->notes > before) d->note[before].key = key;
    return status;
}

spw_status spw_draft_note_more_but_amd(spw_draft *d, const char *fact, const char *why) {
    const size_t before = d->notes;
    const spw_status status = spw_draft_note_more(d, fact, NULL, why);
    if (status == SPW_OK && d->notes > before) d->note[before].but_amd = true;
    return status;
}

spw_status spw_draft_note_less(spw_draft *d, const char *fact, const char *why) {
    const size_t before = d->notes;
    const spw_status status = spw_draft_note_fact(d, SPW_NOTE_LACKS, fact, why);
    if (status == SPW_OK && d->notes > before) d->note[before].less = true;
    return status;
}

spw_status spw_draft_note_text_less(spw_draft *d, const char *what, const char *why) {
    const size_t before = d->notes;
    const spw_status status = spw_draft_note_text(d, SPW_NOTE_LACKS, what, why);
    if (status == SPW_OK && d->notes > before) d->note[before].less = true;
    return status;
}

/* --- Facts --- */

const char *spw_draft_fact(spw_draft *d, const char *fact) {
    spw_draft_fact_entry *f = find(d, fact);
    if (f == NULL) return NULL;
    f->used = true;
    return f->entry != NULL && f->entry->nothing ? NULL : f->value;
}

bool spw_draft_is(spw_draft *d, const char *fact, const char *value) {
    const char *said = spw_draft_fact(d, fact);
    return said != NULL && strcasecmp(said, value) == 0;
}

bool spw_draft_on(spw_draft *d, const char *fact) {
    return spw_draft_is(d, fact, "true") || spw_draft_is(d, fact, "1");
}

/* "run.sh:12 --micro-batch-size 1", which begins messages. */
static void label_of(const spw_draft *d, const spw_file_entry *entry, char out[SPW_DRAFT_LABEL]) {
    char name[64], value[64], line[24] = "", plain[SPW_ENTRY_NAME];
    if (entry == NULL) {
        (void)snprintf(out, SPW_DRAFT_LABEL, "%.120s", d->where);
        return;
    }
    spw_plain_text(spw_framework_plain_name(d->framework, entry->name, plain), name, sizeof name);
    spw_plain_text(entry->bare ? "" : entry->value, value, sizeof value);
    if (entry->line > 0) (void)snprintf(line, sizeof line, ":%zu", entry->line);
    (void)snprintf(out, SPW_DRAFT_LABEL, "%.80s%s %s%s%s", d->where, line, name, value[0] != '\0' ? " " : "",
                   value);
}

spw_status spw_draft_count(spw_draft *d, const char *fact, size_t least, size_t fallback, size_t *out) {
    const char *text = spw_draft_fact(d, fact);
    char label[SPW_DRAFT_LABEL], *end = NULL;
    *out = fallback;
    if (text == NULL) return SPW_OK;
    const double value = spw_text_number(text, &end);
    if (end != text && *end == '\0' && value >= (double)least && value <= (double)MOST_COUNT &&
        value == (double)(size_t)value) {
        *out = (size_t)value;
        return SPW_OK;
    }
    label_of(d, find(d, fact)->entry, label);
    return spw_fail(SPW_ECONFIG, "%s: no whole number in [%zu, %d]", label, least, MOST_COUNT);
}

/* --- Keys --- */

const char *spw_draft_key_value(const spw_draft *d, const char *key) {
    for (size_t i = 0; i < d->keys; i++)
        if (strcmp(d->key[i].key, key) == 0) return d->key[i].value;
    return NULL;
}

static spw_status put(spw_draft *d, const char *key, const char *value, const spw_file_entry *entry) {
    if (spw_draft_key_value(d, key) != NULL) return SPW_OK;
    if (d->keys == SPW_DRAFT_KEYS || strlen(key) >= SPW_DRAFT_KEY || strlen(value) >= SPW_DRAFT_VALUE)
        return spw_fail(SPW_ECONFIG, "%s: a value of %s has more than %d characters", d->where, key,
                        SPW_DRAFT_VALUE - 1);
    spw_draft_key *k = &d->key[d->keys++];
    (void)snprintf(k->key, sizeof k->key, "%s", key);
    (void)snprintf(k->value, sizeof k->value, "%s", value);
    k->entry = entry;
    label_of(d, entry, k->label);
    return SPW_OK;
}

spw_status spw_draft_put(spw_draft *d, const char *key, const char *value, const char *fact) {
    const spw_draft_fact_entry *f = find(d, fact);
    return put(d, key, value, f != NULL ? f->entry : NULL);
}

spw_status spw_draft_put_count(spw_draft *d, const char *key, size_t value, const char *fact) {
    char text[24];
    (void)snprintf(text, sizeof text, "%zu", value);
    return spw_draft_put(d, key, text, fact);
}

static spw_status quote(const spw_draft *d, const char *text, char out[SPW_DRAFT_VALUE]) {
    size_t used = 0;
    out[used++] = '\'';
    for (; *text != '\0'; text++) {
        if (used + 4 >= SPW_DRAFT_VALUE)
            return spw_fail(SPW_ECONFIG, "%s: a text of more than %d characters", d->where,
                            SPW_DRAFT_VALUE - 4);
        out[used++] = *text;
        if (*text == '\'') out[used++] = '\'';
    }
    out[used++] = '\'';
    out[used] = '\0';
    return SPW_OK;
}

spw_status spw_draft_put_text(spw_draft *d, const char *key, const char *text, const char *fact) {
    char quoted[SPW_DRAFT_VALUE];
    const spw_status status = quote(d, text, quoted);
    return status == SPW_OK ? spw_draft_put(d, key, quoted, fact) : status;
}

/* --- Entries to facts and keys --- */

static const char *theirs_of(const spw_framework *f, const char *fact) {
    for (size_t i = 0; i < SPW_FRAMEWORK_TABLES && f->rows[i] != NULL; i++)
        for (const spw_framework_row *row = f->rows[i]; row->theirs != NULL; row++)
            if (row->ours != NULL && strcmp(row->ours, fact) == 0) return spw_framework_row_name(row);
    return fact;
}

static bool is_off(const spw_file_entry *e) {
    static const char *const words[] = {"",     "false", "False", "0",  "0.0",  "none",
                                        "None", "off",   "null",  "-1", "-1.0", NULL};
    if (e->nothing) return true;
    for (const char *const *word = words; *word != NULL; word++)
        if (strcmp(e->value, *word) == 0) return true;
    return false;
}

/* Our word for a value; NULL: the row does not know it. */
static const char *our_word(const spw_framework_row *row, const char *value) {
    if (strcmp(value, "True") == 0) value = "true";
    if (strcmp(value, "False") == 0) value = "false";
    for (const spw_word_pair *pair = row->values; pair != NULL && pair->theirs != NULL; pair++)
        if (strcasecmp(pair->theirs, value) == 0) return pair->ours;
    return row->values == NULL ? value : NULL;
}

static spw_status note_entry(spw_draft *d, spw_note_kind kind, const spw_file_entry *e, const char *why) {
    return add_note(d, kind, e, NULL, why);
}

static spw_status take_fact(spw_draft *d, const spw_framework_row *row, const char *value,
                            const spw_file_entry *e) {
    spw_draft_fact_entry *there = find(d, row->ours);
    d->taken++;
    if (there == NULL) {
        if (d->facts == SPW_DRAFT_FACTS)
            return spw_fail(SPW_ECONFIG, "%s:%zu: more than %d settings that are known", d->where, e->line,
                            SPW_DRAFT_FACTS);
        d->fact[d->facts++] = (spw_draft_fact_entry){row->ours, value, e, false};
        return SPW_OK;
    }
    spw_status status = SPW_OK;
    if (!there->entry->nothing && !e->nothing && strcmp(there->value, value) != 0)
        status = note_entry(d, SPW_NOTE_TWICE, there->entry, "given again with another value, which counts");
    if (!e->nothing || there->entry->nothing) *there = (spw_draft_fact_entry){row->ours, value, e, false};
    return status;
}

/* What the row has no counterpart for; a key of the job, given as an option, says it after all. */
static spw_status note_row(spw_draft *d, const spw_framework_row *row, const spw_file_entry *e,
                           const char *why) {
    const size_t before = d->notes;
    const spw_status status = note_entry(d, row->more ? SPW_NOTE_MORE : SPW_NOTE_LACKS, e, why);
    if (status == SPW_OK && d->notes > before) d->note[before].less = row->less;
    if (status == SPW_OK && row->more && row->ours != NULL && row->ours[0] != '@')
        d->note[before].key = row->ours;
    return status;
}

static const char *last_part(const char *name) {
    const char *point = strrchr(name, '.');
    return point != NULL ? point + 1 : name;
}

/* Letters by which `name` misses `theirs`: a few of a long name, as others are names of their own, or an end that is missing or too
 * much; SIZE_MAX: another name. Within one section its last part alone is looked at, which may be short. */
static size_t slip_of(const char *name, const char *theirs) {
    enum { LONG_NAME = 10, SHORT_PART = 4 };
    const char *part = last_part(name), *other = last_part(theirs);
    const size_t section = (size_t)(part - name), a = strlen(part), b = strlen(other);
    const size_t shorter = a < b ? a : b, longer = a < b ? b : a;
    if (shorter < SHORT_PART) return SIZE_MAX;
    const bool same = section == (size_t)(other - theirs) && strncmp(name, theirs, section) == 0;
    const bool end = same && strncmp(part, other, shorter) == 0 && 10 * shorter >= 7 * longer;
    const size_t off = spw_nearest_distance(name, theirs), few = strlen(name) < LONG_NAME ? 1 : 2;
    const bool near = off <= few && (few > 1 || name[0] == theirs[0]);
    return near || end ? off : SIZE_MAX;
}

/* The name that a name which no row knows is a slip of; NULL: of none. */
static const char *meant_name(const spw_framework *f, const char *name) {
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < SPW_FRAMEWORK_TABLES && f->rows[i] != NULL; i++)
        for (const spw_framework_row *row = f->rows[i]; row->theirs != NULL; row++) {
            const char *theirs = spw_framework_row_name(row);
            if (row->ours == NULL || strchr(theirs, '*') != NULL) continue;
            const size_t off = slip_of(name, theirs);
            if (off < least) best = theirs, least = off;
        }
    return best;
}

/* "training.*": what a section has beside the names that count. */
static bool is_rest_of_section(const spw_framework_row *row) {
    const size_t length = strlen(row->theirs);
    return row->ours == NULL && row->why == NULL && strchr(row->theirs, '.') != NULL &&
           row->theirs[length - 1] == '*';
}

/* The setting that it was meant to be has another value in the plan, of whatever memory. */
static spw_status note_slip(spw_draft *d, const spw_file_entry *e, const char *meant) {
    char why[SPW_NOTE_WHY];
    (void)snprintf(why, sizeof why,
                   "unknown, and does not count; did you mean %.100s? what is planned may not be the job",
                   meant);
    return note_entry(d, SPW_NOTE_MORE, e, why);
}

static spw_status note_unset(spw_draft *d, const spw_framework_row *row, const spw_file_entry *e) {
    const char *key = NULL;
    char why[SPW_NOTE_WHY];
    const size_t before = d->notes;
    const bool doubt = spw_draft_unset_counts(row, &key);
    if (!doubt) return note_entry(d, SPW_NOTE_UNSAID, e, "a variable that the file does not set");
    spw_draft_unset_why(e, d->entries.kind, key, why);
    const spw_status status = note_entry(d, SPW_NOTE_UNSAID, e, why);
    if (status != SPW_OK || d->notes == before) return status;
    d->note[before].doubt = true;
    d->note[before].key = key;
    return status;
}

/* "$MODELS/Qwen3-30B-A3B": the folder is a variable, the name is none. */
static bool names_model(const spw_framework_row *row, const spw_file_entry *e) {
    const char *tail = strrchr(e->value, '$');
    return strcmp(row->ours, "@model_name") == 0 && tail != NULL && (tail = strchr(tail, '/')) != NULL &&
           tail[1] != '\0';
}

static spw_status take(spw_draft *d, const spw_file_entry *e) {
    char name[SPW_ENTRY_NAME];
    (void)spw_framework_plain_name(d->framework, e->name, name);
    const spw_framework_row *row = spw_framework_row_of(d->framework, name);
    const bool counts = row != NULL && row->ours != NULL && !row->quiet;
    if (e->unknown && counts && !names_model(row, e)) return note_unset(d, row, e);
    if (counts) {
        const char *value = our_word(row, e->value);
        if (value != NULL || e->nothing) return take_fact(d, row, value != NULL ? value : "", e);
        return note_row(d, row, e, row->why != NULL ? row->why : "a value that is not modelled");
    }
    if (row != NULL && is_rest_of_section(row) && !e->nothing) {
        const char *counted = meant_name(d->framework, name);
        if (counted != NULL) return note_slip(d, e, counted);
    }
    if (row != NULL && row->why == NULL) return note_entry(d, SPW_NOTE_QUIET, e, "");
    if (row == NULL && spw_framework_is_quiet(name)) return note_entry(d, SPW_NOTE_QUIET, e, "");
    if (row == NULL && d->framework->known != NULL && !e->nothing) {
        int kind = SPW_NOTE_LACKS;
        const char *known = d->framework->known(name, e->value, &kind);
        if (known != NULL) return note_entry(d, (spw_note_kind)kind, e, known);
    }
    const char *meant = row == NULL && !e->nothing ? meant_name(d->framework, name) : NULL;
    if (meant != NULL) return note_slip(d, e, meant);
    if (is_off(e)) return note_entry(d, SPW_NOTE_OFF, e, "");
    return row != NULL ? note_row(d, row, e, row->why) : note_entry(d, SPW_NOTE_LACKS, e, "not known here");
}

#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
/* Facts that are keys themselves. What is no plain word is a text, whatever it looks like to YAML. */
static spw_status put_keys(spw_draft *d) {
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < d->facts; i++) {
        spw_draft_fact_entry *f = &d->fact[i];
        if (f->name[0] == '@' || f->entry == NULL) continue;
        f->used = true;
        const bool plain = f->value[strspn(f->value, PLAIN)] == '\0';
        if (f->entry->nothing || f->value[0] == '\0') continue;
        status =
            plain ? put(d, f->name, f->value, f->entry) : spw_draft_put_text(d, f->name, f->value, f->name);
    }
    return status;
}

static spw_status put_defaults(spw_draft *d) {
    spw_status status = SPW_OK;
    for (const spw_framework_default *def = d->framework->defaults; def != NULL && def->key != NULL; def++) {
        char what[SPW_DRAFT_KEY + 64];
        const bool batch = strcmp(def->key, "batch.sequences_per_gpu") == 0 &&
                           spw_draft_key_value(d, "batch.global_batch") != NULL;
        if (batch || spw_draft_key_value(d, def->key) != NULL) continue;
        status = spw_draft_put(d, def->key, def->value, NULL);
        (void)snprintf(what, sizeof what, "%s: %s", def->key, def->value);
        if (status == SPW_OK)
            status = spw_draft_note_text(d, SPW_NOTE_ASSUMED, what,
                                         "the framework's own, as the file does not say");
        if (status != SPW_OK) return status;
    }
    return status;
}

static spw_status note_unused(spw_draft *d) {
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < d->facts; i++) {
        const spw_draft_fact_entry *f = &d->fact[i];
        if (!f->used && f->entry != NULL)
            status = note_entry(d, is_off(f->entry) ? SPW_NOTE_OFF : SPW_NOTE_LACKS, f->entry,
                                "it says nothing more beside the others");
    }
    return status;
}

/* What the framework takes where the file is silent, as facts of rules. */
static spw_status take_silent(spw_draft *d) {
    spw_status status = SPW_OK;
    for (const spw_framework_default *def = d->framework->silent;
         def != NULL && def->key != NULL && status == SPW_OK; def++) {
        char what[SPW_DRAFT_KEY + 64];
        if (find(d, def->key) != NULL || d->facts == SPW_DRAFT_FACTS) continue;
        d->fact[d->facts++] = (spw_draft_fact_entry){def->key, def->value, NULL, false};
        (void)snprintf(what, sizeof what, "%s: %s", theirs_of(d->framework, def->key), def->value);
        status =
            spw_draft_note_text(d, SPW_NOTE_ASSUMED, what, "the framework's own, as the file does not say");
    }
    return status;
}

spw_status spw_draft_fill(spw_draft *out) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < out->entries.count; i++) SPW_TRY(take(out, &out->entries.entry[i]));
    SPW_TRY(take_silent(out));
    SPW_TRY(put_keys(out));
    SPW_TRY(out->framework->compose(out));
    SPW_TRY(put_defaults(out));
    SPW_TRY(note_unused(out));

cleanup:
    return status;
}

void spw_draft_close(spw_draft *d) {
    spw_file_entries_close(&d->entries);
    spw_free(d->note);
    d->note = NULL;
    d->notes = d->note_room = 0;
}

const char *spw_draft_title(const spw_draft *d) { return d->title != NULL ? d->title : d->framework->title; }

spw_draft_use spw_draft_use_of(const spw_draft *d, size_t i) {
    const spw_file_entry *entry = &d->entries.entry[i];
    for (size_t n = 0; n < d->notes; n++)
        if (d->note[n].entry == entry) return SPW_USE_NOTE;
    for (size_t k = 0; k < d->keys; k++)
        if (d->key[k].entry == entry && d->key[k].key[0] != '\0') return SPW_USE_KEY;
    return SPW_USE_READ;
}
