#include "sim/result/row_cost.h"

#include "sim/job/job.h"
#include "sim/job/replicas.h"
#include "sim/model/token_work.h"
#include "sim/replay/result.h"

#include <math.h>
#include <string.h>

static const double DAY = 86400.0, HOUR = 3600.0;

static spw_cost_figure times(spw_cost_figure figure, double factor) {
    return (spw_cost_figure){figure.value * factor, figure.low * factor, figure.high * factor};
}

/* What a speed of `figure` takes to do `amount`. */
static spw_cost_figure duration(spw_cost_figure figure, double amount) {
    return (spw_cost_figure){amount / figure.value, amount / figure.high, amount / figure.low};
}

static const spw_cost_figure none = {NAN, NAN, NAN};

/* The speed with a step that is `more` seconds longer, at its fastest not at all. */
static spw_cost_figure slowed(spw_cost_figure speed, double step_s, double more) {
    const double tokens = speed.value * step_s; /* of a GPU in a step */
    if (!(more > 0.0)) return speed;
    return (spw_cost_figure){tokens / (step_s + more), tokens / (tokens / speed.low + more), speed.high};
}

spw_row_cost spw_cost_of_speed(spw_cost_figure speed, double step_s, const spw_job *job, size_t gpus,
                               double tokens) {
    const double price = spw_job_price(job);
    const size_t all = gpus * spw_job_replicas(job);
    spw_row_cost cost = {none, none, none, none, none, none};
    cost.tokens_per_day = times(slowed(speed, step_s, spw_job_replicas_s(job, gpus)), (double)all * DAY);
    if (job->part == SPW_PART_WHOLE) {
        cost.flops_per_s_per_gpu =
            times(speed, spw_token_work_of(&job->model, job->sequence_length).training);
        cost.mfu = times(cost.flops_per_s_per_gpu, 1.0 / job->cluster.bf16_flops.value);
    }
    if (!(tokens > 0.0)) return cost;
    cost.days = duration(cost.tokens_per_day, tokens);
    cost.gpu_hours = times(cost.days, (double)all * DAY / HOUR);
    if (price > 0.0) cost.money = times(cost.gpu_hours, price);
    return cost;
}

spw_row_cost spw_row_cost_of(const spw_result_row *row, const spw_job *job, double tokens) {
    const spw_cost_figure speed = {row->time.tokens_per_s_per_gpu, row->tokens_per_s_low,
                                   row->tokens_per_s_high};
    if (!row->timed) return (spw_row_cost){none, none, none, none, none, none};
    return spw_cost_of_speed(speed, row->time.step_s, job, spw_job_gpus(job), tokens);
}

double spw_cost_tokens(const spw_job *job, double asked) {
    static const double TRILLION = 1e12;
    return asked > 0.0 ? asked : spw_job_price(job) > 0.0 ? TRILLION : 0.0;
}

void spw_row_cost_list(const spw_row_cost *cost, spw_named_cost out[SPW_ROW_COSTS]) {
#define NAMED(field) {#field, #field "_low", #field "_high", cost->field},
    const spw_named_cost list[SPW_ROW_COSTS] = {SPW_ROW_COST_LIST(NAMED)};
#undef NAMED
    memcpy(out, list, sizeof list);
}
