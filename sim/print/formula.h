/* The bytes of a component as an expression of named terms. Value and text are made from the same words, the text when it is asked for.
 *
 * Words: names of terms, whole numbers, + - / ( ) and ^2; what stands side by side is multiplied. 'two words' is one name; of {name} the
 * number, with all its digits, stands on both sides; $1 to $9 are terms by their place, whatever they are called. What
 * stands in [+ brackets] is not printed where it is 0. The text is the words, "=" and the words with numbers in the place of names:
 * "2 T V b" is "2 T V b = 2 x 4096 x 129280 x 2". Words that begin with "=" are printed with numbers alone. Before them may
 * stand a note that ends in ": ", in which {name} is a term's number.
 *
 * The words "[]" are a tensor's shape: its terms are the dimensions and, last, the bytes of an element; "[n]": before these a factor
 * of the last dimension. It is printed as "[T, 2 F] x 2 B = 4096 x 2048 x 2". */
#ifndef SPW_SIM_PRINT_FORMULA_H
#define SPW_SIM_PRINT_FORMULA_H

#include <stddef.h>

enum { SPW_FORMULA_TERMS = 10 };

typedef struct spw_term {
    const char *name;
    double value;
} spw_term;
#define TERM(name, value) \
    { name, (double)(value) }

typedef struct spw_formula { /* words and names are borrowed: they are constants */
    const char *words;
    const char *note; /* NULL: none beside that of the words; printed before them, with ": " */
    size_t terms;
    spw_term term[SPW_FORMULA_TERMS];
} spw_formula;

/* Terms and how many; more than there is room for do not compile. */
#define SPW_TERMS_COUNT(...) (sizeof((spw_term[]){__VA_ARGS__}) / sizeof(spw_term))
#define SPW_TERMS_GIVEN(...) \
    (const spw_term[]){__VA_ARGS__}, \
        SPW_TERMS_COUNT(__VA_ARGS__) + \
            0 * sizeof(char[SPW_TERMS_COUNT(__VA_ARGS__) <= SPW_FORMULA_TERMS ? 1 : -1])

/* NAN where the words are no expression of these terms. */
double spw_formula_value(const spw_formula *formula);
/* Cut where `size` is too small. */
void spw_formula_print(const spw_formula *formula, char *out, size_t size);

#endif
