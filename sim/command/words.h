/* The words of the program's output, and what they mean here: `spillway help words`, the manual and docs/glossary.md are made of
 * this table. */
#ifndef SPW_SIM_COMMAND_WORDS_H
#define SPW_SIM_COMMAND_WORDS_H

typedef struct spw_word {
    const char *word;    /* one, or several between commas; NULL ends the table */
    const char *meaning; /* in Markdown; the test docs_are_true writes docs/glossary.md */
} spw_word;

extern const spw_word spw_words[];

#endif
