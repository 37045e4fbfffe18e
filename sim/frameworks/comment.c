#include "sim/frameworks/comment.h"

#include <string.h>

void spw_comment_print(const char *text, const char *begin, const char *next, const char *between,
                       FILE *out) {
    size_t column = 0;
    for (const char *at = text + strspn(text, " "); *at != '\0' && *at != '\n';) {
        const char *stop = strstr(at, between), *end = at + strcspn(at, "\n");
        const size_t length = stop != NULL && stop < end ? (size_t)(stop - at) : (size_t)(end - at);
        if (column == 0)
            column = (size_t)fprintf(out, "%s", begin);
        else if (column + length + 1 > SPW_COMMENT_LINE)
            column = (size_t)fprintf(out, "\n%s", next) - 1;
        else
            column += (size_t)fprintf(out, " ");
        column += (size_t)fprintf(out, "%.*s", (int)length, at);
        at += length + strspn(at + length, " ");
    }
    fputc('\n', out);
}
