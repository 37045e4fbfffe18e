/* What a shell can offer behind an option, by hand from the texts of arguments. */
#include "sim/manual/values.h"
#include "sim/read/preset.h"
#include "tests/unit/check.h"

#include <stdbool.h>
#include <string.h>

static bool has_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' ')) return true;
    return false;
}

/* words: all of them, or, behind "+", some of those of a list. */
static void expect(const char *option, const char *argument, const char *words, const char *endings) {
    spw_values v;
    char copy[128], *rest = NULL;
    CHECK_OK(spw_values_of(option, argument, &v));
    (void)snprintf(copy, sizeof copy, "%s", words[0] == '+' ? words + 1 : words);
    if (words[0] != '+') CHECK(strcmp(v.words, words) == 0);
    if (words[0] != '+' && strcmp(v.words, words) != 0) fprintf(stderr, "%s: '%s'\n", argument, v.words);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        CHECK(has_word(v.words, word));
    CHECK(strcmp(v.endings, endings) == 0);
    if (strcmp(v.endings, endings) != 0) fprintf(stderr, "%s: endings '%s'\n", argument, v.endings);
}

/* Every name that comes with the program. */
static void expect_all(const char *option, const char *argument, const char *const *names) {
    spw_values v;
    size_t missing = 0, count = 0;
    CHECK_OK(spw_values_of(option, argument, &v));
    for (; names[count] != NULL; count++) missing += !has_word(v.words, names[count]);
    CHECK(count > 0 && missing == 0);
}

int main(void) {
    expect("format", "table|json|csv", "table json csv", "");
    expect("format", "table[|json|csv]", "table", ""); /* what stands in [] is more of the same */
    expect("sequences-per-gpu", "N[,N...]", "", "");
    expect("over", "a[b[c]|d]|e", "a e", "");
    expect("model", "NAME|FILE.json", "+olmoe-1b-7b mixtral-8x7b", "json");
    expect("cluster", "NAME|FILE", "+h200-8x8 mi355x-8x8", "yaml");
    expect("scheme", "NAME[:OPTION=VALUE]", "+dense megatron-alltoall", "");
    expect("stack", "NAME|FILE[,...]|none", "+xla-cuda-0.12.0 megatron-h200-2026-11 none", "yaml");
    expect_all("stack", "NAME|FILE[,...]|none", spw_time_stack_names);
    expect_all("stack", "NAME|FILE[,...]|none", spw_megatron_names);
    expect("routing", "NAME[:KEY=VALUE]", "+uniform reference", "");
    expect(NULL, "PRESET|CONFIG.json", "+olmoe-1b-7b", "json");
    expect("output", "FILE.h5", "", "h5");
    expect("traces", "DIR", "", "/");
    expect("job", "FILE", "", "yaml");
    return check_done();
}
