#include "sim/command/help_lists.h"

#include "base/memory.h"
#include "sim/command/words.h"
#include "sim/machine/cluster.h"
#include "sim/model/model.h"
#include "sim/read/preset.h"
#include "sim/schemes/scheme.h"
#include "traces/generate/generate.h"

#include <stdbool.h>
#include <string.h>

/* "capacity_factor=F (required, 0.1 to 64): what it is" */
static void print_option(const spw_scheme_option *o, FILE *out) {
    fprintf(out, "    %s=", o->name);
    if (o->choices != NULL)
        for (size_t i = 0; o->choices[i] != NULL; i++) fprintf(out, "%s%s", i > 0 ? "|" : "", o->choices[i]);
    else
        fprintf(out, "%g to %g", o->minimum, o->maximum);
    if (o->required)
        fputs(" (required)", out);
    else if (o->choices != NULL)
        fprintf(out, " (default: %s)", o->choices[(size_t)o->fallback]);
    else
        fprintf(out, " (default: %g)", o->fallback);
    fprintf(out, ": %s\n", o->help);
}

spw_status spw_help_schemes(FILE *out) {
    fputs("An execution scheme is how a framework computes MoE layers. Write --scheme NAME[:KEY=VALUE,...], "
          "as in\n"
          "--scheme dense:capacity_factor=1.25. The option may be repeated. Formulas: docs/schemes.md.\n\n",
          out);
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        const spw_scheme_type *type = spw_scheme_types[i];
        fprintf(out, "  %s: %s\n", type->name, type->about.summary);
        for (const spw_scheme_option *o = type->options; o != NULL && o->name != NULL; o++)
            print_option(o, out);
    }
    return SPW_OK;
}

spw_status spw_help_models(FILE *out) {
    spw_model *model = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &model));
    fputs("Write --model NAME, or the path of a Hugging Face config.json. `spillway model NAME` takes one "
          "apart.\n\n",
          out);
    for (const char *const *name = spw_model_names; *name != NULL; name++) {
        SPW_TRY(spw_model_read(*name, NULL, model));
        const spw_parameters p = spw_model_parameters(model);
        fprintf(out,
                "  %s: %.4gB parameters, %.3gB active; %zu layers, %zu of them MoE; top-%zu of %zu experts\n",
                *name, (double)p.total / 1e9, (double)p.active / 1e9, model->layers, model->moe_layers,
                model->top_k, model->experts);
    }

cleanup:
    spw_free(model);
    return status;
}

spw_status spw_help_clusters(FILE *out) {
    spw_cluster *cluster = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &cluster));
    fputs("Write --cluster NAME, another size as h200-32x8 (nodes x GPUs) or h200:8x32 (GPUs x nodes), or "
          "the path of\n"
          "a YAML file (spillway help cluster). FLOP/s are dense peaks in bf16; a link is one direction of "
          "one GPU.\n\n",
          out);
    for (const char *const *name = spw_cluster_names; *name != NULL; name++) {
        char words[SPW_CLUSTER_WORDS];
        SPW_TRY(spw_cluster_read(*name, NULL, cluster));
        fprintf(out, "  %s: %s, %.1f GiB and %.0f TFLOP/s a GPU, links of %.0f GB/s, NICs of %.0f GB/s\n",
                *name, spw_cluster_words(cluster, words), cluster->hbm_gib.value,
                cluster->bf16_flops.value / 1e12, cluster->link_bytes_per_s.value / 1e9,
                cluster->nic_bytes_per_s.value / 1e9);
    }

cleanup:
    spw_free(cluster);
    return status;
}

spw_status spw_help_routing(FILE *out) {
    fputs("A plan needs routing: which experts tokens choose. Take the first of these that you have:\n\n"
          "  --trace TRACE.h5: your own routing, recorded (docs/capture.md) or imported (docs/import.md)\n"
          "  --imbalance X: one number from a log, the fullest GPU over the mean\n"
          "  --routing NAME[:KEY=VALUE,...]: one of the generators below; without any of these, reference\n\n"
          "Generators, also for `trace generate --distribution`. docs/routing.md compares them with measured "
          "routing.\n\n",
          out);
    for (size_t i = 0; spw_distribution_name(i) != NULL; i++)
        fprintf(out, "  %s: %s\n", spw_distribution_name(i), spw_distribution_help(i));
    return SPW_OK;
}

/* A meaning without the marks of Markdown: `code` and [text](link). */
static void print_plain(const char *text, FILE *out) {
    for (; *text != '\0'; text++) {
        const char *end = *text == ']' && text[1] == '(' ? strchr(text, ')') : NULL;
        if (end != NULL)
            text = end;
        else if (*text != '`' && *text != '[')
            (void)fputc(*text, out);
    }
}

spw_status spw_help_words(FILE *out) {
    for (const spw_word *w = spw_words; w->word != NULL; w++) {
        fprintf(out, "  %s: ", w->word);
        print_plain(w->meaning, out);
        (void)fputc('\n', out);
    }
    return SPW_OK;
}
