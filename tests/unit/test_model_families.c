/* Every configuration in tests/models against the number of elements that Hugging Face transformers builds of it (counts.csv) and
 * against what its publisher says (published.csv). argv[1]: tests/models. */
#include "sim/input/model.h"

#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 512, LEAST_COUNTED = 53, LEAST_PUBLISHED = 58 };

/* NAME.json in the folder, or the preset NAME. */
static spw_status read_model(const char *folder, const char *name, spw_model *out) {
    char path[LINE];
    (void)snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return spw_model_read(name, NULL, out);
    (void)fclose(file);
    return spw_model_read(path, NULL, out);
}

/* Calls `check` with every line of a table that is neither a remark nor its head; returns how many there were. */
static size_t each_line(const char *folder, const char *table,
                        void (*check)(const char *folder, char *line)) {
    char path[LINE], line[LINE];
    size_t lines = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, table);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#' || strncmp(line, "name,", 5) == 0) continue;
        line[strcspn(line, "\n")] = '\0';
        check(folder, line);
        lines++;
    }
    (void)fclose(file);
    return lines;
}

/* name,elements: the same to the last parameter, but for what the table's notes say. */
static void count_is_exact(const char *folder, char *line) {
    char *number = strchr(line, ',');
    spw_model m;
    CHECK(number != NULL);
    if (number == NULL) return;
    *number++ = '\0';
    CHECK_OK(read_model(folder, line, &m));
    uint64_t want = strtoull(number, NULL, 10);
    /* transformers keeps rows of weights for LongCat's experts that compute nothing; its published weights have none */
    if (strcmp(m.name, "longcat-flash") == 0) want -= 28ull * 256 * 2 * 2048 * 6144;
    const uint64_t got = spw_model_parameters(&m).total;
    CHECK(got == want);
    if (got != want)
        fprintf(stderr, "  %s: %llu, transformers %llu, %+lld\n", line, (unsigned long long)got,
                (unsigned long long)want, (long long)(got - want));
}

/* Half of what the last digit of a figure is worth. */
static double half_digit(const char *figure) {
    const char *point = strchr(figure, '.');
    return 0.5 * pow(10.0, point == NULL ? 0.0 : -(double)strlen(point + 1));
}

/* name,total in B,active in B,vocabulary matrices that the publisher leaves out of the active ones,source: total within 1 %,
 * active within 5 % or what rounding leaves open. */
static void published_is_near(const char *folder, char *line) {
    char name[64], total[32], active[32];
    int left_out = 0;
    spw_model m;
    CHECK(sscanf(line, "%63[^,],%31[^,],%31[^,],%d", name, total, active, &left_out) == 4);
    CHECK_OK(read_model(folder, name, &m));
    const spw_parameters p = spw_model_parameters(&m);
    const double want = strtod(total, NULL) * 1e9, some = strtod(active, NULL);
    const double got = (double)p.total, vocabulary = (double)p.embedding * left_out;
    const double runs = ((double)p.active - vocabulary) / 1e9;
    const bool near = fabs(got / want - 1) <= 0.01,
               runs_near = fabs(runs - some) <= fmax(0.05 * some, half_digit(active));
    CHECK(near);
    CHECK(runs_near);
    if (!near || !runs_near)
        fprintf(stderr, "  %s: %.3f B of %s, active %.3f B of %s\n", name, got / 1e9, total, runs, active);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    CHECK(each_line(argv[1], "counts.csv", count_is_exact) >= LEAST_COUNTED);
    CHECK(each_line(argv[1], "published.csv", published_is_near) >= LEAST_PUBLISHED);
    return check_done();
}
