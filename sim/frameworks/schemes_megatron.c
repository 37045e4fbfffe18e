#include "sim/frameworks/rules.h"

#include "sim/schemes/scheme.h"

#include <stdio.h>
#include <string.h>

/* The first row that holds. `full`: the whole iteration is one CUDA graph, or rows of a rank are limited. */
static const struct {
    const char *dispatcher, *backend; /* NULL: any */
    bool limited;
    const char *scheme;
} dispatchers[] = {
    {"hybridep", NULL, false, "megatron-flex:backend=hybridep"}, /* as ModelZoo's scripts call it */
    {"deepep", NULL, false, "megatron-flex"},
    {"alltoall", NULL, false, "megatron-alltoall"},
    {"alltoall_seq", NULL, false, "megatron-alltoall"},
    {"allgather", NULL, false, "megatron-allgather"},
    {"flex", "hybridep", true, "megatron-syncfree"},
    {"flex", "hybridep", false, "megatron-flex:backend=hybridep"},
    {"flex", "ncclep", false, "megatron-ncclep"},
    {"flex", "nccl_ep", false, "megatron-ncclep"},
    {"flex", "deepep", false, "megatron-flex"},
};

static void add_option(char scheme[SPW_SCHEME_TEXT], const char *name, const char *value) {
    const size_t used = strlen(scheme);
    (void)snprintf(scheme + used, SPW_SCHEME_TEXT - used, "%s%s=%s", strchr(scheme, ':') != NULL ? "," : ":",
                   name, value);
}

static bool starts(const char *scheme, const char *name) {
    const size_t length = strlen(name);
    return strncmp(scheme, name, length) == 0 && (scheme[length] == ':' || scheme[length] == '\0');
}

/* Primus' Turbo replaces the flex dispatcher, without host synchronization from a stage on. */
static bool turbo_scheme(spw_draft *d, char scheme[SPW_SCHEME_TEXT]) {
    const bool turbo = spw_draft_on(d, "@turbo"), deepep = spw_draft_on(d, "@turbo_deepep"),
               mega = spw_draft_on(d, "@mega_moe");
    const char *stage = spw_draft_fact(d, "@syncfree_stage");
    if (!turbo) return false;
    if (mega) {
        (void)snprintf(scheme, SPW_SCHEME_TEXT, "primus-megamoe");
    } else if (stage != NULL && strcmp(stage, "0") != 0) {
        (void)snprintf(scheme, SPW_SCHEME_TEXT, "primus-syncfree");
        add_option(scheme, "level", stage);
    } else if (deepep) {
        (void)snprintf(scheme, SPW_SCHEME_TEXT, "megatron-flex");
    }
    return mega || deepep || (stage != NULL && strcmp(stage, "0") != 0);
}

static spw_status find_scheme(spw_draft *d, bool limited, char scheme[SPW_SCHEME_TEXT]) {
    const char *dispatcher = spw_draft_fact(d, "@dispatcher"), *backend = spw_draft_fact(d, "@backend");
    const bool deepep = spw_draft_on(d, "@deepep");
    if (backend == NULL || deepep) backend = "deepep";
    if (turbo_scheme(d, scheme)) return SPW_OK;
    if (dispatcher == NULL) {
        const spw_status status =
            spw_draft_note_text(d, SPW_NOTE_ASSUMED, "moe_token_dispatcher_type allgather",
                                "Megatron-Core's own, as the file does not say");
        if (status != SPW_OK) return status;
        dispatcher = "allgather";
    }
    for (size_t i = 0; i < sizeof dispatchers / sizeof *dispatchers; i++) {
        if (strcmp(dispatchers[i].dispatcher, dispatcher) != 0 || (dispatchers[i].limited && !limited))
            continue;
        if (dispatchers[i].backend != NULL && strcmp(dispatchers[i].backend, backend) != 0) continue;
        (void)snprintf(scheme, SPW_SCHEME_TEXT, "%s", dispatchers[i].scheme);
        return SPW_OK;
    }
    return spw_fail(
        SPW_ECONFIG,
        "%s: moe_token_dispatcher_type %.40s with backend %.40s is not modelled; modelled are allgather, "
        "alltoall and flex with deepep, hybridep or ncclep",
        d->where, dispatcher, backend);
}

static spw_status compose_graph(spw_draft *d, bool *full) {
    const char *graph = spw_draft_fact(d, "@graph"), *scope = spw_draft_fact(d, "@graph_scope");
    const bool local = spw_draft_on(d, "@graph_local"), external = spw_draft_on(d, "@graph_external");
    if (graph == NULL) graph = local ? "local" : external ? "transformer_engine" : "none";
    *full = strcmp(graph, "full_iteration") == 0 ||
            (strcmp(graph, "local") == 0 && scope != NULL && strcmp(scope, "full_iteration") == 0);
    if (*full || strcmp(graph, "none") == 0) return SPW_OK; /* the scheme says it */
    return spw_draft_put(d, "cuda_graph_impl", graph, "@graph");
}

/* Options of the scheme that facts set. */
static void add_options(spw_draft *d, const char *recipe, bool full, char scheme[SPW_SCHEME_TEXT]) {
    const char *capacity = spw_draft_fact(d, "@capacity"), *policy = spw_draft_fact(d, "@drop_policy"),
               *rank = spw_draft_fact(d, "@rank_capacity"), *stash = spw_draft_fact(d, "@stash"),
               *host = spw_draft_fact(d, "@stash_host"), *page = spw_draft_fact(d, "@stash_page");
    const bool pad = spw_draft_on(d, "@pad_to_capacity"), paged = spw_draft_on(d, "@paged_stash"),
               router = spw_draft_on(d, "@router_pads");
    const bool alltoall = starts(scheme, "megatron-alltoall"), flex = starts(scheme, "megatron-flex"),
               gather = starts(scheme, "megatron-allgather"), syncfree = starts(scheme, "megatron-syncfree"),
               nccl = starts(scheme, "megatron-ncclep");
    const bool drops = capacity != NULL && strcmp(capacity, "0") != 0 && strncmp(capacity, "-", 1) != 0 &&
                       (alltoall || flex || gather);
    if (syncfree || (nccl && rank != NULL)) add_option(scheme, "rank_capacity", rank != NULL ? rank : "1.5");
    if (syncfree && paged && stash != NULL) add_option(scheme, "stash", stash);
    if (syncfree && paged && host != NULL) add_option(scheme, "host", host);
    if (syncfree && paged && page != NULL) add_option(scheme, "page", page);
    if (drops) add_option(scheme, "capacity_factor", capacity);
    if (drops && policy != NULL && strcmp(policy, "probs") != 0) add_option(scheme, "policy", policy);
    if (drops && alltoall && pad) add_option(scheme, "pad", "true");
    if (recipe != NULL && alltoall && router) add_option(scheme, "pay", "router");
    if (syncfree && full) add_option(scheme, "graph", "full");
}

spw_status spw_compose_megatron_scheme(spw_draft *d, const char *recipe) {
    char scheme[SPW_SCHEME_TEXT] = "";
    bool full = false;
    spw_status status = SPW_OK;
    SPW_TRY(compose_graph(d, &full));
    const bool limited = full || spw_draft_fact(d, "@rank_capacity") != NULL;
    SPW_TRY(find_scheme(d, limited, scheme));
    add_options(d, recipe, full, scheme);
    if (full && !starts(scheme, "megatron-syncfree"))
        SPW_TRY(spw_draft_put(d, "cuda_graph_impl", "full_iteration", "@graph"));
    if (starts(scheme, "megatron-syncfree") && spw_draft_fact(d, "@rank_capacity") == NULL)
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "moe_expert_rank_capacity_factor 1.5",
                                    "a graph of the whole iteration needs one; recipes have 1.5"));
    if (spw_draft_is(d, "@grouped", "false"))
        SPW_TRY(
            spw_draft_note_fact(d, SPW_NOTE_LACKS, "@grouped", "experts are planned as grouped products"));
    (void)spw_draft_fact(d, "@grouped");
    SPW_TRY(spw_draft_put_text(d, "schemes", scheme, "@dispatcher"));

cleanup:
    return status;
}
