#include "sim/memory/tensors/autograd_tape.h"

#include "base/memory.h"

#include <string.h>

enum { NO_REGION = 0, OUTPUTS = 4 };

typedef struct storage {
    uint64_t bytes;
    uint32_t refs;
    uint16_t kind;
    uint8_t stream;
    bool view; /* of a tensor that a view refers to */
} storage;

typedef struct node {
    uint32_t input[SPW_OP_INPUTS]; /* nodes */
    uint32_t leaf[SPW_OP_INPUTS];
    uint8_t output[SPW_OP_INPUTS]; /* of these nodes */
    bool needs[SPW_OP_INPUTS];
    uint32_t kept[SPW_OP_KEPT + 2]; /* storages */
    uint8_t keeps;                  /* how many it has, or will have */
    uint32_t gradient[OUTPUTS];     /* that came */
    spw_gradient_step back[SPW_OP_STEPS];
    uint32_t region; /* 0: none; of a hook its number */
    uint8_t rate, inner_rate;
    uint16_t kind;
    bool hook;
} node;

typedef struct region {
    spw_tape_region run;
    void *of;
    size_t index;
    uint32_t first;
    size_t keeps;
    bool done;
} region;

struct spw_tape {
    spw_event_list *out;
    spw_status status;
    storage *store; /* [stores]; 0 is none */
    size_t stores, store_room;
    uint32_t *spare; /* [spares] storages that are free again */
    size_t spares, spare_room;
    node *nodes; /* 0 is none */
    size_t count, node_room;
    region *regions; /* 0 is none */
    size_t region_count, region_room;
    uint32_t *leaf_gradient; /* [leaves]; 0 is none */
    bool *leaf_trained;
    size_t leaves, leaf_room, trained_room;
    uint32_t in_region; /* recording */
    uint32_t again;     /* node that a region run again comes to; 0: none is run again */
    size_t left;        /* tensors that it must still make */
    bool stopped, backward, once;
    uint16_t kind, leaf_kind;
    uint8_t stream, rate, inner_rate;
    spw_tape_work work;
};

/* --- Room --- */

static void *grown(spw_tape *t, void *array, size_t size, size_t used, size_t *room) {
    if (used < *room) return array;
    const size_t wanted = *room > 0 ? *room * 2 : 256;
    void *bigger = NULL;
    if (t->status == SPW_OK) t->status = spw_alloc(wanted, size, &bigger);
    if (t->status != SPW_OK) return array;
    if (used > 0) memcpy(bigger, array, used * size);
    spw_free(array);
    *room = wanted;
    return bigger;
}

spw_status spw_tape_create(uint16_t leaf_kind, spw_tape **out) {
    spw_tape *t = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &t));
    t->store = grown(t, NULL, sizeof *t->store, 0, &t->store_room);
    t->nodes = grown(t, NULL, sizeof *t->nodes, 0, &t->node_room);
    t->regions = grown(t, NULL, sizeof *t->regions, 0, &t->region_room);
    t->leaf_gradient = grown(t, NULL, sizeof *t->leaf_gradient, 0, &t->leaf_room);
    t->leaf_trained = grown(t, NULL, sizeof *t->leaf_trained, 0, &t->trained_room);
    t->stores = t->count = t->region_count = t->leaves = 1;
    t->leaf_kind = leaf_kind;
    SPW_TRY(t->status);
    *out = t;
    t = NULL;

cleanup:
    spw_tape_destroy(t);
    return status;
}

void spw_tape_destroy(spw_tape *t) {
    if (t == NULL) return;
    spw_free(t->store);
    spw_free(t->spare);
    spw_free(t->nodes);
    spw_free(t->regions);
    spw_free(t->leaf_gradient);
    spw_free(t->leaf_trained);
    spw_free(t);
}

/* --- Storages --- */

static bool is_quiet(const spw_tape *t) { return t->stopped || t->status != SPW_OK; }

static void event(spw_tape *t, uint32_t at, bool born) {
    const storage *s = &t->store[at];
    if (t->out == NULL || t->status != SPW_OK) return;
    t->status = spw_event_list_append(t->out, (spw_memory_event){.bytes = s->bytes,
                                                                 .slot = at,
                                                                 .kind = s->kind,
                                                                 .layer = SPW_NO_MOE_LAYER,
                                                                 .born = born,
                                                                 .backward = t->backward,
                                                                 .stream = s->stream});
}

static uint32_t birth(spw_tape *t, uint64_t bytes) {
    if (is_quiet(t) || bytes == 0) return 0;
    t->store = grown(t, t->store, sizeof *t->store, t->stores, &t->store_room);
    if (t->status != SPW_OK) return 0;
    const uint32_t at = t->spares > 0 ? t->spare[--t->spares] : (uint32_t)t->stores++;
    t->store[at] = (storage){.bytes = bytes, .refs = 1, .kind = t->kind, .stream = t->stream};
    event(t, at, true);
    return at;
}

static void hold(spw_tape *t, uint32_t at) {
    if (at != 0) t->store[at].refs++;
}

static void release(spw_tape *t, uint32_t at) {
    if (at == 0 || t->status != SPW_OK) return;
    if (t->store[at].refs == 0) t->status = spw_fail(SPW_EARG, "a tensor of the tape is given back twice");
    if (t->status != SPW_OK) return;
    if (--t->store[at].refs > 0) return;
    event(t, at, false);
    t->spare = grown(t, t->spare, sizeof *t->spare, t->spares, &t->spare_room);
    if (t->status == SPW_OK) t->spare[t->spares++] = at;
}

void spw_tape_write(spw_tape *t, spw_event_list *list) { t->out = list; }

uint16_t spw_tape_kind(spw_tape *t, uint16_t kind) {
    const uint16_t was = t->kind;
    t->kind = kind;
    return was;
}

void spw_tape_stream(spw_tape *t, uint8_t stream) { t->stream = stream; }
spw_status spw_tape_status(const spw_tape *t) { return t->status; }
size_t spw_tape_slots(const spw_tape *t) { return t->stores; }
spw_tape_work spw_tape_work_of(const spw_tape *t) { return t->work; }
void spw_tape_reset_work(spw_tape *t) { t->work = (spw_tape_work){.kernels = 0.0}; }

/* --- Forward --- */

spw_value spw_tape_parameter(spw_tape *t, bool trained) {
    t->leaf_gradient = grown(t, t->leaf_gradient, sizeof *t->leaf_gradient, t->leaves, &t->leaf_room);
    t->leaf_trained = grown(t, t->leaf_trained, sizeof *t->leaf_trained, t->leaves, &t->trained_room);
    if (t->status != SPW_OK) return (spw_value){.storage = 0};
    t->leaf_trained[t->leaves] = trained;
    t->leaf_gradient[t->leaves] = 0;
    return (spw_value){.leaf = (uint32_t)t->leaves++, .grad = trained};
}

uint32_t spw_tape_leaves(const spw_tape *t) { return (uint32_t)t->leaves; }

spw_value spw_tape_tensor(spw_tape *t, uint64_t bytes) { return (spw_value){.storage = birth(t, bytes)}; }
void spw_tape_drop(spw_tape *t, spw_value value) { release(t, value.storage); }
spw_value spw_tape_output(spw_value value, uint8_t output) {
    value.output = output;
    return value;
}

spw_value spw_tape_hold(spw_tape *t, spw_value value) {
    hold(t, value.storage);
    return value;
}

spw_value spw_tape_make(spw_tape *t, uint64_t bytes, double read_bytes, double flop, uint8_t rate) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes, .read_bytes = read_bytes, .flop = flop, .rate = rate});
}

spw_value spw_tape_needs(spw_tape *t, spw_value value) {
    (void)t;
    value.grad = true;
    return value;
}

static void count_work(spw_tape *t, double read, double written, double flop) {
    t->work.kernels += 1.0;
    if (flop > 0.0) {
        t->work.flop[t->rate] += flop;
        t->work.products[t->rate] += 1.0;
    } else {
        t->work.bytes += read + written;
    }
}

static bool needs_any(const spw_op *op) {
    for (size_t i = 0; i < SPW_OP_INPUTS; i++)
        if (op->input[i].grad) return true;
    return false;
}

/* A tensor that is kept: by its node, or by the node that was made when the region ran first. */
static void keep(spw_tape *t, node *n, uint32_t at) {
    n->keeps++;
    if (t->in_region != NO_REGION) {
        t->regions[t->in_region].keeps++;
        return;
    }
    hold(t, at);
    n->kept[n->keeps - 1] = at;
    if (t->again != 0 && --t->left == 0) t->stopped = true;
}

static node *next_node(spw_tape *t) {
    if (t->again != 0) {
        while (t->nodes[t->again].hook) t->again++;
        node *n = &t->nodes[t->again++];
        n->keeps = 0;
        return n;
    }
    t->nodes = grown(t, t->nodes, sizeof *t->nodes, t->count, &t->node_room);
    if (t->status != SPW_OK) return NULL;
    node *n = &t->nodes[t->count++];
    *n = (node){.region = t->in_region, .kind = t->kind, .rate = t->rate, .inner_rate = t->inner_rate};
    return n;
}

/* What is kept of the inputs is kept before the operation runs, its outputs afterwards. */
static node *record(spw_tape *t, const spw_op *op) {
    node *n = next_node(t);
    if (n == NULL) return NULL;
    for (size_t i = 0; i < SPW_OP_INPUTS && t->again == 0; i++) {
        n->input[i] = op->input[i].node;
        n->leaf[i] = op->input[i].leaf;
        n->output[i] = op->input[i].output;
        n->needs[i] = op->input[i].grad;
    }
    if (t->again == 0) memcpy(n->back, op->back, sizeof n->back);
    for (size_t i = 0; i < SPW_OP_KEPT && !t->stopped; i++)
        if (op->keep[i].value.storage != 0 && op->input[op->keep[i].input].grad)
            keep(t, n, op->keep[i].value.storage);
    return n;
}

spw_value spw_tape_apply(spw_tape *t, const spw_op *op) {
    if (is_quiet(t)) return (spw_value){.grad = needs_any(op)};
    const bool grad = needs_any(op);
    t->rate = op->rate;
    t->inner_rate = op->inner_rate;
    node *n = grad ? record(t, op) : NULL;
    spw_value out = {.grad = grad, .node = n != NULL ? (uint32_t)(n - t->nodes) : 0};
    if (is_quiet(t)) return out;
    out.storage = op->bytes > 0 ? birth(t, op->bytes) : op->input[0].storage;
    if (op->bytes == 0) hold(t, out.storage);
    const uint32_t second = birth(t, op->kept_bytes);
    if (op->bytes > 0) count_work(t, op->read_bytes, (double)op->bytes, op->flop);
    if (op->bytes > 0) t->work.flop[op->inner_rate] += op->inner_flop;
    if (n != NULL && second != 0 && op->input[0].grad) keep(t, n, second);
    if (n != NULL && op->keeps_output && op->input[0].grad && !t->stopped) keep(t, n, out.storage);
    if (op->second != NULL)
        *op->second = (spw_value){.storage = second};
    else
        release(t, second);
    return out;
}

void spw_tape_checkpoint(spw_tape *t, spw_tape_region run, void *of, size_t index) {
    t->regions = grown(t, t->regions, sizeof *t->regions, t->region_count, &t->region_room);
    if (t->status != SPW_OK) return;
    t->in_region = (uint32_t)t->region_count++;
    t->regions[t->in_region] = (region){.run = run, .of = of, .index = index, .first = (uint32_t)t->count};
    run(t, of, index);
    t->in_region = NO_REGION;
}

void spw_tape_hook(spw_tape *t, spw_tape_region run, void *of, size_t index) {
    if (t->again != 0 || is_quiet(t)) return;
    const uint32_t inside = t->in_region;
    t->regions = grown(t, t->regions, sizeof *t->regions, t->region_count, &t->region_room);
    node *n = next_node(t);
    if (n == NULL || t->status != SPW_OK) return;
    *n = (node){.hook = true, .region = (uint32_t)t->region_count++};
    t->regions[n->region] = (region){.run = run, .of = of, .index = index};
    t->in_region = inside;
}

/* --- Backward --- */

/* The region's forward pass again, for what its nodes keep. */
static void run_again(spw_tape *t, uint32_t at) {
    region *r = &t->regions[at];
    const uint16_t kind = t->kind;
    r->done = true;
    t->again = r->first;
    t->left = r->keeps;
    if (t->left > 0) r->run(t, r->of, r->index);
    t->again = 0;
    t->stopped = false;
    t->kind = kind;
}

/* Of a parameter: taken, or added in place. */
static void accumulate_leaf(spw_tape *t, uint32_t leaf, uint32_t came) {
    uint32_t *gradient = &t->leaf_gradient[leaf];
    if (*gradient == 0 && t->store[came].refs == 1) {
        *gradient = came;
        return;
    }
    if (*gradient == 0) *gradient = birth(t, t->store[came].bytes); /* a clone */
    release(t, came);
}

static void send(spw_tape *t, const node *n, size_t input, uint32_t came) {
    if (came == 0) return;
    if (n->leaf[input] != 0) {
        accumulate_leaf(t, n->leaf[input], came);
        return;
    }
    if (n->input[input] == 0) {
        release(t, came); /* of what no operation made */
        return;
    }
    uint32_t *there = &t->nodes[n->input[input]].gradient[n->output[input]];
    if (*there == 0) {
        *there = came;
        return;
    }
    const uint64_t bytes = t->store[*there].bytes;
    count_work(t, 2.0 * (double)bytes, (double)bytes, 0.0);
    if (t->store[*there].refs > 1 || t->store[*there].view) {
        const uint32_t sum = birth(t, bytes);
        release(t, *there);
        *there = sum;
    }
    release(t, came);
}

/* What a region has made again is the operation's own by now, and goes with it. */
static void drop_made_again(spw_tape *t, node *n) {
    if (n->region == NO_REGION) return;
    while (n->keeps > 0) release(t, n->kept[--n->keeps]);
}

static void run_steps(spw_tape *t, node *n, uint32_t gradient[SPW_OP_INPUTS]) {
    uint32_t temp[SPW_OP_STEPS];
    size_t temps = 0;
    for (const spw_gradient_step *s = n->back; s < n->back + SPW_OP_STEPS && s->role != SPW_GRADIENT_END;
         s++) {
        if (s->role == SPW_GRADIENT_DONE) drop_made_again(t, n);
        if (!n->needs[s->input] || s->role == SPW_GRADIENT_DONE) continue;
        if (s->role == SPW_GRADIENT_PASS) {
            hold(t, n->gradient[0]);
            gradient[s->input] = n->gradient[0];
            continue;
        }
        if (s->role == SPW_GRADIENT_KEPT) {
            hold(t, n->kept[s->bytes]);
            gradient[s->input] = n->kept[s->bytes];
            continue;
        }
        if (s->role == SPW_GRADIENT_ONCE && t->once) continue;
        t->kind = s->role == SPW_GRADIENT_TO && n->leaf[s->input] != 0 ? t->leaf_kind : n->kind;
        const uint32_t made = birth(t, s->bytes);
        t->rate = s->inner ? n->inner_rate : n->rate;
        t->once = t->once || s->role == SPW_GRADIENT_ONCE;
        if (s->role != SPW_GRADIENT_WORK && s->role != SPW_GRADIENT_ONCE)
            count_work(t, s->read_bytes, (double)s->bytes, s->flop);
        if (s->role == SPW_GRADIENT_WORK) release(t, made);
        if (s->role == SPW_GRADIENT_TEMP) temp[temps++] = made;
        if (s->role == SPW_GRADIENT_TO || s->role == SPW_GRADIENT_VIEW) gradient[s->input] = made;
        if (made != 0) t->store[made].view = s->role == SPW_GRADIENT_VIEW;
    }
    while (temps > 0) release(t, temp[--temps]);
}

static void run_node(spw_tape *t, uint32_t at) {
    uint32_t gradient[SPW_OP_INPUTS] = {0};
    const uint32_t inside = t->nodes[at].region;
    if (inside != NO_REGION && t->nodes[at].keeps > 0 && !t->regions[inside].done) run_again(t, inside);
    node *n = &t->nodes[at];
    t->kind = n->kind;
    t->rate = n->rate;
    run_steps(t, n, gradient);
    drop_made_again(t, n);
    for (size_t i = 0; i < OUTPUTS; i++) release(t, n->gradient[i]);
    for (size_t i = 0; i < n->keeps; i++) release(t, n->kept[i]);
    for (size_t i = 0; i < SPW_OP_INPUTS; i++) send(t, n, i, gradient[i]);
}

static bool has_gradient(const node *n) {
    for (size_t i = 0; i < OUTPUTS; i++)
        if (n->gradient[i] != 0) return true;
    return false;
}

void spw_tape_backward(spw_tape *t, spw_value loss) {
    const uint16_t kind = t->kind;
    t->backward = true;
    if (loss.node != 0) t->nodes[loss.node].gradient[0] = birth(t, 4);
    for (uint32_t at = (uint32_t)t->count; at-- > 1 && t->status == SPW_OK;) {
        const node *n = &t->nodes[at];
        if (n->hook)
            t->regions[n->region].run(t, t->regions[n->region].of, t->regions[n->region].index);
        else if (has_gradient(n))
            run_node(t, at);
        else
            for (size_t i = 0; i < n->keeps; i++) release(t, n->kept[i]);
    }
    t->count = t->region_count = 1;
    t->backward = false;
    t->kind = kind;
}

void spw_tape_each_kept(const spw_tape *t, spw_tape_visit visit, void *of) {
    for (size_t i = 1; i < t->count; i++)
        for (size_t k = 0; k < t->nodes[i].keeps && t->nodes[i].region == NO_REGION; k++) {
            const storage *s = &t->store[t->nodes[i].kept[k]];
            visit(of, t->nodes[i].kept[k], s->bytes, s->kind);
        }
}

void spw_tape_forget(spw_tape *t, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        release(t, t->leaf_gradient[i]);
        t->leaf_gradient[i] = 0;
    }
}
