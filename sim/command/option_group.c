#include "sim/command/option_group.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define GROUPS(X) \
    X(SPW_GROUP_JOB, "Job") \
    X(SPW_GROUP_SPLIT, "Split and batch") \
    X(SPW_GROUP_SEARCH, "Search") \
    X(SPW_GROUP_ROUTING, "Routing") \
    X(SPW_GROUP_MEMORY, "Memory") X(SPW_GROUP_MONEY, "Time and money") X(SPW_GROUP_OUTPUT, "Output")
#define NAME(group, name) [group] = (name),
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a literal, joined with another */
#define HEADING(group, name) [group] = name ":",
static const char *const names[SPW_GROUP_COUNT] = {GROUPS(NAME)};
static const char *const headings[SPW_GROUP_COUNT] = {GROUPS(HEADING)};
#undef NAME
#undef HEADING

static const struct {
    const char *name;
    spw_option_group group;
} members[] = {
    {"job", SPW_GROUP_JOB},
    {"from", SPW_GROUP_JOB},
    {"model", SPW_GROUP_JOB},
    {"cluster", SPW_GROUP_JOB},
    {"gpus", SPW_GROUP_JOB},
    {"scheme", SPW_GROUP_JOB},
    {"precision", SPW_GROUP_JOB},
    {"optimizer", SPW_GROUP_JOB},
    {"stack", SPW_GROUP_JOB},
    {"set", SPW_GROUP_JOB},
    {"expert-parallel", SPW_GROUP_SPLIT},
    {"expert-tensor", SPW_GROUP_SPLIT},
    {"fsdp", SPW_GROUP_SPLIT},
    {"tensor", SPW_GROUP_SPLIT},
    {"context", SPW_GROUP_SPLIT},
    {"data", SPW_GROUP_SPLIT},
    {"pipeline", SPW_GROUP_SPLIT},
    {"virtual-stages", SPW_GROUP_SPLIT},
    {"micro-batches", SPW_GROUP_SPLIT},
    {"sequences-per-gpu", SPW_GROUP_SPLIT},
    {"global-batch", SPW_GROUP_SPLIT},
    {"sequence-length", SPW_GROUP_SPLIT},
    {"rank", SPW_GROUP_SPLIT},
    {"search", SPW_GROUP_SEARCH},
    {"over", SPW_GROUP_SEARCH},
    {"gpus-at-most", SPW_GROUP_SEARCH},
    {"tokens-per-day", SPW_GROUP_SEARCH},
    {"global-batch-at-most", SPW_GROUP_SEARCH},
    {"trace", SPW_GROUP_ROUTING},
    {"routing", SPW_GROUP_ROUTING},
    {"routing-steps", SPW_GROUP_ROUTING},
    {"routing-tokens", SPW_GROUP_ROUTING},
    {"imbalance", SPW_GROUP_ROUTING},
    {"steps", SPW_GROUP_ROUTING},
    {"layers", SPW_GROUP_ROUTING},
    {"seed", SPW_GROUP_ROUTING},
    {"drop-at-most", SPW_GROUP_ROUTING},
    {"until", SPW_GROUP_ROUTING},
    {"balancer", SPW_GROUP_ROUTING},
    {"advise", SPW_GROUP_ROUTING},
    {"overload", SPW_GROUP_ROUTING},
    {"remat", SPW_GROUP_MEMORY},
    {"memory-fraction", SPW_GROUP_MEMORY},
    {"allocator", SPW_GROUP_MEMORY},
    {"no-allocator", SPW_GROUP_MEMORY},
    {"every-rank", SPW_GROUP_MEMORY},
    {"snapshot", SPW_GROUP_MEMORY},
    {"snapshot-stage", SPW_GROUP_MEMORY},
    {"fits-at", SPW_GROUP_MEMORY},
    {"tokens", SPW_GROUP_MONEY},
    {"price", SPW_GROUP_MONEY},
    {"format", SPW_GROUP_OUTPUT},
    {"all", SPW_GROUP_OUTPUT},
    {"details", SPW_GROUP_OUTPUT},
    {"each-step", SPW_GROUP_OUTPUT},
    {"flags", SPW_GROUP_OUTPUT},
    {"as", SPW_GROUP_OUTPUT},
    {"traffic", SPW_GROUP_OUTPUT},
    {"output", SPW_GROUP_OUTPUT},
    {"chrome-trace", SPW_GROUP_OUTPUT},
    {"checkpoint", SPW_GROUP_OUTPUT},
    {"memory", SPW_GROUP_OUTPUT},
    {"wide", SPW_GROUP_OUTPUT},
};

const char *spw_option_group_name(int group) {
    return group > SPW_GROUP_NONE && group < SPW_GROUP_COUNT ? names[group] : NULL;
}

spw_option_group spw_option_group_of(const char *name) {
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (strcmp(members[i].name, name) == 0) return members[i].group;
    return SPW_GROUP_NONE;
}

static bool is_end(const struct argp_option *o) { return o->name == NULL && o->key == 0; }

const struct argp *spw_option_group_add(const struct argp *argp, spw_grouped_options *out) {
    const size_t at = out->argps;
    size_t count = 0;
    if (argp->options == NULL || at == SPW_GROUPED_ARGPS) return argp;
    while (!is_end(&argp->options[count])) count++;
    if (count >= SPW_GROUPED_OPTIONS) return argp;
    for (size_t i = 0; i <= count; i++) out->option[at][i] = argp->options[i];
    for (size_t i = 0; i < count; i++)
        if (out->option[at][i].name != NULL)
            out->option[at][i].group = (int)spw_option_group_of(out->option[at][i].name);
    out->argp[at] = *argp;
    out->argp[at].options = out->option[at];
    out->argps++;
    return &out->argp[at];
}

const struct argp *spw_option_group_headings(spw_grouped_options *grouped) {
    size_t count = 0;
    for (int group = SPW_GROUP_JOB; group < SPW_GROUP_COUNT; group++) {
        bool used = false;
        for (size_t a = 0; a < grouped->argps; a++)
            for (const struct argp_option *o = grouped->option[a]; !is_end(o) && !used; o++)
                used = o->group == group;
        if (used) grouped->heading[count++] = (struct argp_option){.doc = headings[group], .group = group};
    }
    grouped->heading[count] = (struct argp_option){0};
    grouped->headings = (struct argp){.options = grouped->heading};
    return &grouped->headings;
}
