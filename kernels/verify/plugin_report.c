#include "kernels/verify/plugin_report.h"

#include "kernels/verify/kernel_case.h"

enum { SHOWN = 20 };

typedef struct tally {
    size_t cases, passed, left_out, skipped;
    double worst; /* among those that passed */
} tally;

typedef struct report {
    const spw_plugin_request *request;
    const char *program;
    FILE *out;
    tally of[SPW_KERNELS][SPW_TYPES];
    size_t failed, ran;
} report;

static void show(report *r, const spw_plugin_verdict *v) {
    if (++r->failed > SHOWN) return;
    fprintf(r->out, "FAILED %s, %s, case %zu (%s): %s\n", spw_plugin_kernel_name(v->kernel),
            spw_type_name(v->type), v->number, v->name, v->message);
    if (v->judged.failed > 0) fprintf(r->out, "  largest error: %.3g of its bound\n", v->judged.worst);
    fprintf(r->out, "  again: %s --plugin %s%s%s --kernel %s --case %zu\n", r->program, r->request->path,
            r->request->record != NULL ? " --record " : "",
            r->request->record != NULL ? r->request->record : "", spw_plugin_kernel_name(v->kernel),
            v->number);
}

static void take(void *state, const spw_plugin_verdict *v) {
    report *r = state;
    tally *t = &r->of[v->kernel][v->type];
    if (v->skipped) {
        t->skipped++;
        fprintf(r->out, "not run: %s, %s, case %zu (%s): %s\n", spw_plugin_kernel_name(v->kernel),
                spw_type_name(v->type), v->number, v->name, v->message);
        return;
    }
    t->cases++;
    t->left_out += v->left_out;
    if (v->left_out) return;
    r->ran++;
    if (v->status != SPW_OK) {
        show(r, v);
        return;
    }
    t->passed++;
    if (v->judged.worst > t->worst) t->worst = v->judged.worst;
}

spw_status spw_plugin_report(const spw_plugin_request *request, const char *program, FILE *out) {
    report r = {.request = request, .program = program, .out = out};
    const spw_status status = spw_plugin_run(request, take, &r);
    if (r.failed > SHOWN) fprintf(out, "and %zu more\n", r.failed - SHOWN);
    if (r.failed > 0) fprintf(out, "\n");
    for (int i = 0; r.ran > 0 && i < SPW_KERNELS * SPW_TYPES; i++) {
        const tally *t = &r.of[i / SPW_TYPES][i % SPW_TYPES];
        if (t->cases == 0) continue;
        char skipped[32] = "";
        if (t->skipped > 0) (void)snprintf(skipped, sizeof skipped, ", %zu not run", t->skipped);
        fprintf(out,
                "%-16s %-6s %3zu of %3zu cases passed, %zu left out%s; largest error %.2f of its bound\n",
                spw_plugin_kernel_name((spw_kernel)(i / SPW_TYPES)), spw_type_name((spw_type)(i % SPW_TYPES)),
                t->passed, t->cases - t->left_out, t->left_out, skipped, t->worst);
    }
    if (status != SPW_OK) return status;
    if (r.failed > 0) return spw_fail(SPW_EMISMATCH, "%zu of %zu cases failed", r.failed, r.ran);
    return r.ran > 0 ? SPW_OK : spw_fail(SPW_EMISMATCH, "every case was left out; nothing was compared");
}
