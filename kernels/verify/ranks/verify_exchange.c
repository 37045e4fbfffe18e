#include "kernels/verify/ranks/verify_exchange.h"

#include "base/progress.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/world_link.h"
#include "kernels/record/record.h"
#include "kernels/record/record_rules.h"
#include "kernels/verify/ranks/verify_dispatch.h"
#include "kernels/verify/ranks/verify_layer.h"
#include "kernels/verify/ranks/verify_made_up.h"
#include "kernels/verify/ranks/verify_plain.h"
#include "kernels/verify/ranks/verify_processes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Experts are of one rank; every routing runs through every row. */
static const struct {
    const char *name;
    spw_dispatch_shape shape;
} shapes[] = {
    {"one token", {1, 1, 1, 8, 2}},         {"edges", {77, 3, 5, 264, 2}},
    {"edges in fp8", {77, 3, 5, 400, 1}},   {"many choices", {300, 12, 16, 1032, 2}},
    {"several turns", {5000, 4, 8, 64, 2}}, {"wide rows in fp8", {300, 8, 32, 7168, 1}},
};
static const spw_dispatch_shape full_shape = {4096, 8, 256, 7168, 2}, repeated_shape = {256, 8, 16, 256, 2};

/* --- Wrong on purpose --- */

static int drop_a_row(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    spw_send_gpu a = *send;
    a.items--;
    return spw_launch_exchange_send(&a, peers, stream);
}
static int write_beside(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    spw_send_gpu a = *send;
    for (int r = 0; r < peers->ranks; r++) a.window[r] += a.row_bytes, a.capacity[r] -= a.capacity[r] > 0;
    return spw_launch_exchange_send(&a, peers, stream);
}
static int forget_choices(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    spw_send_gpu a = *send;
    a.parts &= ~SPW_SEND_CHOICES;
    return spw_launch_exchange_send(&a, peers, stream);
}
static int forget_a_token(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    spw_reduce_gpu a = *reduce;
    a.items--;
    return spw_launch_exchange_reduce(&a, peers, stream);
}
static int read_beside(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    spw_reduce_gpu a = *reduce;
    for (int r = 0; r < peers->ranks; r++) a.window[r] += 16, a.capacity[r] -= a.capacity[r] > 0;
    return spw_launch_exchange_reduce(&a, peers, stream);
}

static int forget_scales(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    spw_send_gpu a = *send;
    a.parts &= ~SPW_SEND_SCALES;
    return spw_launch_exchange_send(&a, peers, stream);
}
static int forget_side(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    spw_reduce_gpu a = *reduce;
    a.side = 0;
    return spw_launch_exchange_reduce(&a, peers, stream);
}

static int forget_a_written_token(const spw_return_gpu *back, const spw_peers *peers, gpu_stream stream) {
    spw_return_gpu a = *back;
    a.add.items--;
    return spw_launch_exchange_return(&a, peers, stream);
}
static int stage_beside(const spw_return_gpu *back, const spw_peers *peers, gpu_stream stream) {
    spw_return_gpu a = *back;
    const int other = (peers->rank + 1) % peers->ranks;
    a.staged[other] += 16, a.staged_rows -= 1;
    return spw_launch_exchange_return(&a, peers, stream);
}
static int forget_what_returns_beside(const spw_return_gpu *back, const spw_peers *peers, gpu_stream stream) {
    spw_return_gpu a = *back;
    a.add.side = 0;
    return spw_launch_exchange_return(&a, peers, stream);
}

/* `layers`: rules whose whole layer must notice it, and which it leaves inside their arrays; a bit for each. */
enum {
    PLAIN_LAYERS = 1 << SPW_RECORD_CAPACITY | 1 << SPW_RECORD_SOURCE,
    RING_LAYER = 1 << SPW_RECORD_EXPERT,
    TOKEN_LAYERS = 1 << SPW_RECORD_TOKEN,
    ALL_LAYERS = PLAIN_LAYERS | RING_LAYER | TOKEN_LAYERS
};
static const struct {
    spw_exchange_variant variant;
    bool dispatch;
    unsigned layers;
} wrong[] = {
    {{"drops a row", drop_a_row, spw_launch_exchange_reduce}, true, ALL_LAYERS},
    {{"writes beside", write_beside, spw_launch_exchange_reduce}, true, PLAIN_LAYERS | RING_LAYER},
    {{"forgets choices", forget_choices, spw_launch_exchange_reduce}, true, TOKEN_LAYERS},
    {{"forgets a token", spw_launch_exchange_send, forget_a_token}, true, ALL_LAYERS},
    {{"reads beside", spw_launch_exchange_send, read_beside}, true, ALL_LAYERS},
    {{"forgets what travels beside rows", forget_scales, spw_launch_exchange_reduce}, false, RING_LAYER},
    {{"forgets what returns beside rows", spw_launch_exchange_send, forget_side},
     false,
     RING_LAYER | TOKEN_LAYERS},
    {{"forgets a written token", spw_launch_exchange_send, spw_launch_exchange_reduce,
      forget_a_written_token},
     true,
     TOKEN_LAYERS},
    {{"writes back beside", spw_launch_exchange_send, spw_launch_exchange_reduce, stage_beside},
     true,
     TOKEN_LAYERS},
    {{"forgets what is written beside rows", spw_launch_exchange_send, spw_launch_exchange_reduce,
      forget_what_returns_beside},
     false,
     TOKEN_LAYERS},
};

/* One wrong kernel, in dispatch and combine (rule SPW_RECORD_RULES) or in the whole layers of a rule. Each has a world
 * of its own: one may leave it with a row that is another token's. */
static spw_status is_rejected(const spw_exchange_request *q, const spw_exchange_variant *variant, int rule,
                              bool *rejected) {
    const spw_dispatch_case c = {
        .name = "wrong on purpose", .shape = {200, 3, 4 * q->ranks, 64, 2}, .routing = SPW_CHOICES_UNIFORM};
    spw_judge unseen = {.quiet = true};
    spw_world *world = NULL;
    spw_status status = spw_world_create(q->ranks, q->gpus, q->phases, &world);
    if (status == SPW_OK)
        status = rule == SPW_RECORD_RULES
                     ? spw_verify_dispatch(world, &c, variant, 1, &unseen)
                     : spw_verify_made_up_layer(world, (spw_record_rule)rule, variant, &unseen);
    spw_world_destroy(world);
    *rejected = status == SPW_EMISMATCH || unseen.failed > 0;
    return status == SPW_EMISMATCH ? SPW_OK : status;
}

static spw_status reject_wrong_kernels(const spw_exchange_request *q, spw_judge *judge) {
    size_t count = 0, found = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int rule = 0; rule <= SPW_RECORD_RULES; rule++) {
            bool rejected = false;
            if (!(rule == SPW_RECORD_RULES ? wrong[i].dispatch : wrong[i].layers >> rule & 1)) continue;
            if (wrong[i].variant.back != NULL && q->ranks == 1) continue; /* nothing is written back */
            const spw_status status = is_rejected(q, &wrong[i].variant, rule, &rejected);
            if (status != SPW_OK) return status;
            count++, found += rejected;
            if (!rejected)
                fprintf(stderr, "accepted: a kernel that %s, case %d\n", wrong[i].variant.name, rule);
        }
    }
    printf("wrong kernels: %zu of %zu rejected\n", found, count);
    spw_judge_count(judge,
                    found == count ? SPW_OK : spw_fail(SPW_EMISMATCH, "%zu were accepted", count - found),
                    "wrong kernels");
    return SPW_OK;
}

static int stay_away(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    return peers->rank == peers->ranks - 1 ? 0 : spw_launch_exchange_send(send, peers, stream);
}

/* Kernels that wait for a rank whose kernel is never launched end, and it is named. */
static spw_status miss_a_rank(const spw_exchange_request *q, spw_judge *judge) {
    static const spw_exchange_variant away = {"stays away", stay_away, spw_launch_exchange_reduce};
    const spw_dispatch_case c = {
        .name = "a rank missing", .shape = {200, 3, 4 * q->ranks, 64, 2}, .routing = SPW_CHOICES_UNIFORM};
    spw_world *world = NULL;
    spw_judge unseen = {.quiet = true};
    char want[48];
    spw_status status = SPW_OK, result = SPW_OK;
    SPW_TRY(spw_world_create(q->ranks, q->gpus, q->phases, &world));
    if (!world->wait || q->ranks < 2) goto cleanup;
    world->patience_s = 1;
    const double start = spw_clock_s();
    const spw_status missed = spw_verify_dispatch(world, &c, &away, 1, &unseen);
    const double seconds = spw_clock_s() - start;
    (void)snprintf(want, sizeof want, "in vain for rank %zu", q->ranks - 1);
    if (missed != SPW_EDEVICE || strstr(spw_last_error(), want) == NULL)
        result = spw_fail(SPW_EMISMATCH, "a rank that never came was not missed");
    else if (seconds < world->patience_s || seconds > world->patience_s + 5)
        result = spw_fail(SPW_EMISMATCH, "a rank that never came was missed after %.1f s, not %d", seconds,
                          world->patience_s);
    printf("a rank that never comes: %s after %.1f s\n", result == SPW_OK ? "missed" : "NOT MISSED", seconds);
    spw_judge_count(judge, result, "a rank missing");
cleanup:
    spw_world_destroy(world);
    return status;
}

/* More blocks than have room side by side are not taken. */
static spw_status refuse_blocks(spw_world *world, spw_judge *judge) {
    const spw_dispatch_shape shape = {16, 1, world->ranks, 64, 2};
    spw_dispatch *dispatch = NULL;
    const spw_status status =
        spw_dispatch_create(world, shape, spw_exchange_variants, spw_world_blocks(world) + 1, &dispatch);
    spw_dispatch_destroy(dispatch);
    if (status != SPW_OK && status != SPW_EARG) return status;
    spw_judge_count(judge,
                    status == SPW_EARG ? SPW_OK : spw_fail(SPW_EMISMATCH, "more blocks than fit were taken"),
                    "blocks a rank");
    return SPW_OK;
}

/* --- Cases --- */

static spw_status run_case(spw_world *world, const spw_dispatch_case *c, const spw_exchange_variant *variant,
                           size_t repetitions, spw_judge *judge) {
    const size_t before = judge->comparisons, failed = judge->failed;
    const double start = spw_clock_s();
    const spw_status status = spw_verify_dispatch(world, c, variant, repetitions, judge);
    printf("%-22s %-12s %-8s %6zu times %8zu comparisons, %zu failed, %.1f s\n", c->name,
           spw_choice_names[c->routing], variant->name, repetitions, judge->comparisons - before,
           judge->failed - failed, spw_clock_s() - start);
    fflush(stdout);
    return status;
}

static spw_status run_cases(spw_world *world, const spw_exchange_request *q,
                            const spw_exchange_variant *variant, spw_judge *judge) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int kind = 0; kind < SPW_CHOICES_KINDS; kind++) {
            spw_dispatch_case c = {
                .name = shapes[i].name, .shape = shapes[i].shape, .routing = (spw_choice_kind)kind};
            c.shape.experts *= world->ranks;
            if (c.shape.top_k > c.shape.experts) continue;
            SPW_TRY(run_case(world, &c, variant, 1, judge));
        }
    }
    if (q->full && full_shape.experts % world->ranks == 0) {
        const spw_dispatch_case c = {
            .name = "deepseek-v3", .shape = full_shape, .routing = SPW_CHOICES_UNIFORM};
        SPW_TRY(run_case(world, &c, variant, 1, judge));
    }
    for (int kind = 0; q->repetitions > 0 && kind < SPW_CHOICES_KINDS; kind++) {
        spw_dispatch_case c = {
            .name = "again and again", .shape = repeated_shape, .routing = (spw_choice_kind)kind};
        c.shape.experts *= world->ranks;
        const size_t share = q->repetitions / SPW_CHOICES_KINDS;
        SPW_TRY(run_case(world, &c, variant, share > 1 ? share : 2, judge));
    }
cleanup:
    return status;
}

/* --- A record --- */

static spw_status run_scheme(spw_world *world, const spw_record *r, const spw_record_scheme *s,
                             const spw_exchange_variant *variant, spw_judge *judge) {
    if (s->rule != SPW_RECORD_TOKEN) return spw_verify_plain(world, r, s, variant, judge);
    const spw_dispatch_case c = {.name = s->text,
                                 .shape = {spw_record_tokens(r), r->top_k, r->experts, r->hidden, 2},
                                 .expert = r->expert,
                                 .predicted = s};
    return spw_verify_dispatch(world, &c, variant, 1, judge);
}

/* Every prediction off by one: each scheme must be rejected. */
static spw_status reject_wrong_prediction(spw_world *world, const spw_record *r, const spw_record_scheme *s,
                                          spw_judge *judge) {
    spw_record_scheme wrong_scheme = *s;
    spw_judge unseen = {.quiet = true};
    wrong_scheme.wire[0][r->ranks - 1]++;
    const spw_status status = run_scheme(world, r, &wrong_scheme, spw_exchange_variants, &unseen);
    if (status != SPW_OK) return status;
    spw_judge_count(judge,
                    unseen.failed > 0 ? SPW_OK : spw_fail(SPW_EMISMATCH, "a row too many was accepted"),
                    "%s, wrong prediction", s->text);
    return SPW_OK;
}

static spw_status run_whole_layer(spw_world *world, const spw_record *r, const spw_record_scheme *s,
                                  const spw_exchange_variant *variant, spw_judge *judge) {
    const size_t before = judge->comparisons, failed = judge->failed;
    judge->worst = 0;
    const spw_status status = spw_verify_layer(world, r, s, spw_layer_activations, variant, judge);
    printf("  whole layers               %-8s %6zu comparisons, %zu failed, largest error %.2f of the "
           "allowance\n",
           variant->name, judge->comparisons - before, judge->failed - failed, judge->worst);
    return status;
}

static spw_status run_record(spw_world *world, const spw_record *r, const spw_exchange_variant *variant,
                             spw_judge *judge) {
    spw_status status = SPW_OK;
    printf("record: %s; top-%zu of %zu experts, %zu tokens a rank, hidden %zu\n", r->origin, r->top_k,
           r->experts, spw_record_tokens(r), r->hidden);
    for (size_t i = 0; i < r->schemes; i++) {
        const size_t before = judge->comparisons, failed = judge->failed;
        SPW_TRY(run_scheme(world, r, &r->scheme[i], variant, judge));
        printf("%-28s %-8s %6zu comparisons, %zu failed\n", r->scheme[i].text, variant->name,
               judge->comparisons - before, judge->failed - failed);
        SPW_TRY(run_whole_layer(world, r, &r->scheme[i], variant, judge));
        if (world->link == NULL) SPW_TRY(reject_wrong_prediction(world, r, &r->scheme[i], judge));
    }
cleanup:
    return status;
}

static spw_status run_world(spw_world *world, const spw_exchange_request *q, spw_judge *judge) {
    spw_status status = SPW_OK;
    printf("%zu ranks on %zu GPUs (%s), %s, %d blocks a rank\n", world->ranks,
           q->processes ? world->ranks : world->gpus, spw_device_name(),
           q->processes  ? "a process a rank: kernels wait for each other"
           : world->wait ? "kernels wait for each other"
                         : "in phases",
           spw_exchange_blocks(world));
    for (const spw_exchange_variant *v = spw_exchange_variants; v->name != NULL; v++)
        SPW_TRY(q->record != NULL ? run_record(world, q->record, v, judge) : run_cases(world, q, v, judge));
    for (const spw_exchange_variant *v = spw_exchange_variants; v->name != NULL && q->record == NULL; v++)
        SPW_TRY(spw_verify_made_up_layers(world, v, judge));
cleanup:
    return status;
}

/* The last process is killed while the others wait for it. */
static spw_status die(spw_world_link *link, size_t rank, void *data, spw_judge *judge) {
    const spw_exchange_request *q = data;
    (void)judge;
    if (rank == q->ranks - 1) (void)raise(SIGKILL);
    return spw_world_link_share(link, rank, NULL) == SPW_OK ? SPW_EMISMATCH : SPW_OK;
}

static void miss_a_process(spw_exchange_request *q, spw_judge *judge) {
    spw_judge unseen = {.quiet = true};
    const spw_status status = spw_verify_processes(q->ranks, die, q, &unseen);
    spw_judge_count(judge,
                    status == SPW_EDEVICE ? SPW_OK : spw_fail(SPW_EMISMATCH, "a dead process was not missed"),
                    "a process missing");
}

static spw_status run_process(spw_world_link *link, size_t rank, void *data, spw_judge *judge) {
    spw_world *world = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_join(link, rank, &world));
    SPW_TRY(run_world(world, data, judge));
cleanup:
    if (status != SPW_OK) spw_world_link_leave(link); /* nobody waits for what this one frees */
    spw_world_destroy(world);
    return status;
}

spw_status spw_verify_exchange(const spw_exchange_request *request) {
    spw_exchange_request q = *request;
    spw_judge judge = {0};
    spw_world *world = NULL;
    spw_status status = SPW_OK;
    spw_world_prepare();
    if (q.ranks > SPW_WORLD_RANKS)
        return spw_fail(SPW_EARG, "%zu ranks; a node holds 1 to %d", q.ranks, SPW_WORLD_RANKS);
    if (q.record != NULL && q.record->ranks != q.ranks)
        return spw_fail(SPW_EARG, "the record has %zu ranks, --ranks is %zu", q.record->ranks, q.ranks);
    if (q.processes) {
        if (q.ranks > 1) miss_a_process(&q, &judge);
        SPW_TRY(spw_verify_processes(q.ranks, run_process, &q, &judge));
    } else {
        SPW_TRY(spw_world_create(q.ranks, q.gpus, q.phases, &world));
        if (q.record == NULL) SPW_TRY(reject_wrong_kernels(&q, &judge));
        if (q.record == NULL) SPW_TRY(miss_a_rank(&q, &judge));
        SPW_TRY(refuse_blocks(world, &judge));
        SPW_TRY(run_world(world, &q, &judge));
    }
cleanup:
    spw_world_destroy(world);
    printf("%zu comparisons, %zu failed\n", judge.comparisons, judge.failed);
    if (status != SPW_OK) return spw_fail_within(status, "stopped");
    if (judge.comparisons == 0) return spw_fail(SPW_EMISMATCH, "nothing was compared");
    return judge.failed == 0
               ? SPW_OK
               : spw_fail(SPW_EMISMATCH, "%zu of %zu comparisons failed", judge.failed, judge.comparisons);
}
