/* XLA's own flags beside a configuration of MaxText: in XLA_FLAGS, or in a variable that a script gives to it. No job has a key for
 * them; those that take memory of a program are doubts. */
#include "sim/frameworks/draft.h"
#include "sim/frameworks/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct flag {
    const char *name, *fact; /* how MaxText's table calls it where it stands alone */
    const char *off;         /* the value that leaves a program as it is planned; NULL: "false" and "0" */
    bool amd;                /* counted by the stacks of AMD's GPUs */
    const char *why;
} flag;

static const flag flags[] = {
    {"xla_gpu_enable_latency_hiding_scheduler", "@xla_hiding", NULL, true,
     "exchanges in flight are counted by AMD's stacks alone: by JAX 0.12 a layer of Phi-3.5-MoE's sizes, "
     "gmm, 4 sequences, takes 31.5 GiB for 25.5"},
    {"xla_gpu_enable_while_loop_double_buffering", "@xla_twice", NULL, false,
     "two turns of the layers' loop in one, with the buffers of both, are not counted"},
    {"xla_gpu_enable_pipelined_all_gather", "@xla_gathers", NULL, false,
     "weights that are gathered a turn of the loop ahead are not counted"},
    {"xla_gpu_enable_pipelined_reduce_scatter", "@xla_scatters", NULL, false,
     "gradients that wait a turn of the loop are not counted"},
    {"xla_gpu_enable_pipelined_all_reduce", "@xla_reduces", NULL, false,
     "gradients that wait a turn of the loop are not counted"},
    {"xla_gpu_memory_limit_slop_factor", "@xla_limit", "95", false,
     "XLA is planned to run again what is above 95 % of what the arguments leave"},
    {"xla_disable_hlo_passes", "@xla_passes", "", false,
     "without rematerialization XLA runs nothing again past its limit, where a part is planned to come back"},
};

/* The value of --NAME in a text of flags: "true" where it stands alone, NULL where it does not stand. The last one counts. */
static const char *value_in(const char *text, const char *name, char *out, size_t size) {
    const size_t length = strlen(name);
    const char *found = NULL;
    for (const char *at = text; at != NULL && (at = strstr(at, name)) != NULL; at += length) {
        const char after = at[length];
        if (at == text || at[-1] != '-' || (after != '=' && after != '\0' && !isspace((unsigned char)after)))
            continue;
        const char *value = after == '=' ? at + length + 1 : "true";
        const size_t end = strcspn(value, " \t\n'\"");
        (void)snprintf(out, size, "%.*s", (int)end, value);
        found = out;
    }
    return found;
}

static bool is_on(const flag *f, const char *value) {
    if (value == NULL) return false;
    if (f->off != NULL && f->off[0] == '\0') return strstr(value, "rematerialization") != NULL;
    if (f->off != NULL) return strcmp(value, f->off) != 0;
    return strcmp(value, "false") != 0 && strcmp(value, "False") != 0 && strcmp(value, "0") != 0;
}

spw_status spw_compose_xla_flags(spw_draft *d) {
    const char *const text = spw_draft_fact(d, "@xla_flags");
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && status == SPW_OK; i++) {
        const flag *f = &flags[i];
        char value[256];
        const char *fact = f->fact;
        if (!is_on(f, spw_draft_fact(d, f->fact))) {
            if (!is_on(f, value_in(text, f->name, value, sizeof value))) continue;
            fact = "@xla_flags";
        }
        status = f->amd ? spw_draft_note_more_but_amd(d, fact, f->why)
                        : spw_draft_note_more(d, fact, NULL, f->why);
    }
    return status;
}
