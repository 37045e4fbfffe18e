#include "sim/job/recipe/remat_modules.h"

#include "sim/job/job.h"
#include "sim/job/recipe/maxtext_settings.h"

#include "sim/read/settings.h"

#include <stdio.h>
#include <string.h>

#define REMAT_CHOICE(name, text) {text, SPW_REMAT_##name},
const spw_choice spw_remat_choices[] = {SPW_REMAT_LIST(REMAT_CHOICE){NULL, 0}};
#define MODULE_CHOICE(name, text, bit) {text, bit},
const spw_choice spw_remat_modules_list[] = {SPW_MODULE_LIST(MODULE_CHOICE){NULL, 0}};

/* Modules that have a name of their own when they are alone. */
static const struct {
    spw_remat remat;
    spw_module module;
} alone[] = {{SPW_REMAT_SELECTIVE, SPW_MODULE_CORE_ATTN},
             {SPW_REMAT_MOE_ACT, SPW_MODULE_MOE_ACT},
             {SPW_REMAT_MOE, SPW_MODULE_MOE}};

unsigned spw_remat_modules(spw_remat remat) {
    if (remat > SPW_REMAT_MODULES && remat <= SPW_REMAT_ALL_MODULES)
        return (unsigned)remat - (unsigned)SPW_REMAT_MODULES;
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i].remat == remat) return alone[i].module;
    return 0;
}

bool spw_remat_repeats(spw_remat remat, spw_module module) {
    return (spw_remat_modules(remat) & (unsigned)module) != 0;
}

bool spw_remat_runs_again(spw_remat remat, unsigned modules) {
    return remat == SPW_REMAT_FULL || (spw_remat_modules(remat) & modules) != 0;
}

bool spw_remat_exceeds(spw_remat remat, unsigned read) { return (spw_remat_modules(remat) & ~read) != 0; }

size_t spw_remat_join(size_t modules) {
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i].module == modules) return alone[i].remat;
    return SPW_REMAT_MODULES + modules;
}

/* --- Names --- */

/* All 256 of them, each behind a plus sign: every module doubles the list, without and with its name. */
#define LISTS_0(text) text,
#define LISTS_1(text) LISTS_0(text) LISTS_0(text "+shared_experts")
#define LISTS_2(text) LISTS_1(text) LISTS_1(text "+moe")
#define LISTS_3(text) LISTS_2(text) LISTS_2(text "+mlp")
#define LISTS_4(text) LISTS_3(text) LISTS_3(text "+mla_up_proj")
#define LISTS_5(text) LISTS_4(text) LISTS_4(text "+layernorm")
#define LISTS_6(text) LISTS_5(text) LISTS_5(text "+moe_act")
#define LISTS_7(text) LISTS_6(text) LISTS_6(text "+core_attn")
#define LISTS_8(text) LISTS_7(text) LISTS_7(text "+mhc")
static const char *const lists[] = {LISTS_8("")};

const char *spw_remat_name(spw_remat remat) {
    if ((unsigned)remat < SPW_REMAT_COUNT) return spw_remat_choices[remat].name;
    return spw_remat_modules(remat) != 0 ? lists[spw_remat_modules(remat)] + 1 : "?";
}

static void list(const spw_choice *choices, char *text, size_t size) {
    text[0] = '\0';
    for (; choices->name != NULL; choices++) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", choices->name);
    }
}

spw_status spw_remat_parse(const char *text, spw_remat *out) {
    char copy[2 * SPW_REMAT_TEXT], known[320], modules[112], *rest = NULL;
    size_t bits = 0, found = 0, plain = 0;
    for (const spw_choice *c = spw_remat_choices; c->name != NULL; c++) {
        if (strcmp(text, c->name) != 0) continue;
        *out = (spw_remat)c->value;
        return SPW_OK;
    }
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, "+", &rest); part != NULL; part = strtok_r(NULL, "+", &rest)) {
        for (const spw_choice *c = spw_remat_modules_list; c->name != NULL; c++) {
            if (strcmp(part, c->name) != 0 || (bits & c->value) != 0) continue;
            bits |= c->value;
            found++;
            plain += strlen(part) + 1;
        }
    }
    *out = (spw_remat)spw_remat_join(bits);
    if (found > 0 && plain == strlen(text) + 1) return SPW_OK;
    const spw_maxtext_setting *setting = spw_maxtext_setting_find("remat_policy", 12, text, strlen(text));
    if (setting != NULL) return spw_fail(SPW_ECONFIG, "remat '%.40s': %s", text, setting->note);
    list(spw_remat_choices, known, sizeof known);
    list(spw_remat_modules_list, modules, sizeof modules);
    return spw_fail(SPW_ECONFIG, "remat '%.40s' is unknown; use one of: %s; or several of %s joined by +",
                    text, known, modules);
}
