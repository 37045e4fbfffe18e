/* The router: scores, groups, top-k and weights, one wave a token. Scores are formed in fp64 and rounded once, as the reference does:
 * a choice between neighbours must not hang on the last bit of an exponential. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 256, WAVES = THREADS / GPU_WAVE };

/* exp(x) for x <= 0 in fp64: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor's series to r^13 / 13!, whose rest is below 2^-57. */
GPU_DEVICE double exp_negative(double x) {
    if (x < -700) return 0;
    const double n = __builtin_rint(x * 1.4426950408889634);
    const double r =
        __builtin_fma(n, -1.90821492927058770002e-10, __builtin_fma(n, -6.93147180369123816490e-01, x));
    double sum = 1.0 / 6227020800.0;
    const double inverse[] = {
        1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1,           1};
#pragma unroll
    for (int i = 0; i < 13; i++) sum = __builtin_fma(sum, r, inverse[i]);
    union {
        unsigned long long bits;
        double value;
    } power = {(unsigned long long)(1023 + (int)n) << 52};
    return sum * power.value;
}

GPU_DEVICE double wave_sum(double value) {
    for (int step = GPU_WAVE / 2; step > 0; step /= 2) {
        union {
            double d;
            unsigned u[2];
        } mine = {value}, other;
        other.u[0] = gpu_shuffle(mine.u[0], gpu_lane() ^ step);
        other.u[1] = gpu_shuffle(mine.u[1], gpu_lane() ^ step);
        /* The same order of the two in both lanes: the sum is the same in all lanes. */
        value = (gpu_lane() & step) == 0 ? mine.d + other.d : other.d + mine.d;
    }
    return value;
}

/* Which groups stay, as bits: those of the largest judgements, ties to the lower. `choice` in shared memory. */
GPU_DEVICE unsigned keep_groups(const spw_router_gpu &p, const float *choice) {
    const int size = p.experts / p.groups, g = gpu_lane();
    float judgement = 0;
    if (g < p.groups) {
        float first = -__builtin_inff(), second = first;
        for (int i = 0; i < size; i++) {
            const float value = choice[g * size + (i + g) % size]; /* starts apart: no bank conflicts */
            if (value > first)
                second = first, first = value;
            else if (value > second)
                second = value;
        }
        judgement = p.group_terms == 2 ? first + second : first;
    }
    int better = 0;
    for (int h = 0; h < p.groups; h++) {
        const float other = gpu_shuffle_float(judgement, h);
        better += other > judgement || (other == judgement && h < g);
    }
    return (unsigned)gpu_ballot(g < p.groups && better < p.groups_kept);
}

/* PER experts a lane: expert = lane * PER + i. */
template <int PER> GPU_DEVICE void route(const spw_router_gpu &p) {
    __shared__ float shared_choice[WAVES][GPU_WAVE * PER];
    const int wave = gpu_thread() / GPU_WAVE, token = gpu_block() * WAVES + wave, first = gpu_lane() * PER;
    if (token >= p.tokens) return;
    const long at = (long)token * p.experts;
    float logit[PER], score[PER];
    unsigned key[PER]; /* 0: not to be chosen (any more) */
    float largest = -__builtin_inff();
#pragma unroll
    for (int i = 0; i < PER; i++) {
        logit[i] = first + i < p.experts ? p.logits[at + first + i] : -__builtin_inff();
        largest = logit[i] > largest ? logit[i] : largest;
    }
    double exact[PER], sum = 0;
    for (int step = GPU_WAVE / 2; step > 0; step /= 2) {
        const float other = gpu_shuffle_float(largest, gpu_lane() ^ step);
        largest = other > largest ? other : largest;
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const double z = (double)logit[i];
        const double e = exp_negative(first + i >= p.experts ? -1000
                                      : p.sigmoid            ? (z < 0 ? z : -z)
                                                             : z - (double)largest);
        exact[i] = !p.sigmoid ? e : (z < 0 ? e : 1) / (1 + e);
        sum += exact[i];
    }
    if (!p.sigmoid) sum = wave_sum(sum);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int x = first + i;
        key[i] = 0, score[i] = (float)(p.sigmoid ? exact[i] : exact[i] / sum);
        if (x >= p.experts) continue;
        p.score[at + x] = score[i];
        const float choice = p.bias == nullptr ? score[i] : score[i] + p.bias[x];
        shared_choice[wave][x] = choice;
        key[i] = gpu_ordered(choice);
    }
    if (p.groups > 1) {
        gpu_wave_order();
        const unsigned kept = keep_groups(p, shared_choice[wave]);
        const int size = p.experts / p.groups;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (first + i < p.experts && (kept >> ((first + i) / size) & 1) == 0) key[i] = 0;
    }
    float chosen = 0; /* lane k: the score of choice k */
    int expert = 0;
    for (int k = 0; k < p.top_k; k++) {
        unsigned best = 0;
        int where = 0;
        float its_score = 0;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (key[i] > best) best = key[i], where = i, its_score = score[i];
        const unsigned top = gpu_wave_max(best);
        const int winner = gpu_lowest(gpu_ballot(best == top)); /* the lowest lane holds the lowest expert */
        const float winning = gpu_shuffle_float(its_score, winner);
        const int name = (int)gpu_shuffle((unsigned)(first + where), winner);
        if (gpu_lane() == k) chosen = winning, expert = name;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (gpu_lane() == winner && i == where) key[i] = 0;
    }
    double total = 0;
    for (int k = 0; k < p.top_k; k++) total += (double)gpu_shuffle_float(chosen, k);
    const double share = !p.renormalize ? (double)chosen : total > 0 ? (double)chosen / total : 0;
    if (gpu_lane() < p.top_k) {
        p.expert[(long)token * p.top_k + gpu_lane()] = expert;
        p.weight[(long)token * p.top_k + gpu_lane()] = (float)((double)p.scaling * share);
    }
}

GPU_KERNEL(THREADS) router_64(spw_router_gpu p) { route<(64 + GPU_WAVE - 1) / GPU_WAVE>(p); }
GPU_KERNEL(THREADS) router_256(spw_router_gpu p) { route<256 / GPU_WAVE>(p); }
GPU_KERNEL(THREADS) router_512(spw_router_gpu p) { route<512 / GPU_WAVE>(p); }

#if GPU_HOST
int spw_launch_router(spw_router_gpu p, gpu_stream stream) {
    const unsigned blocks = (unsigned)(p.tokens + WAVES - 1) / WAVES;
    if (blocks == 0) return 0;
    if (p.experts <= 64)
        router_64<<<blocks, THREADS, 0, stream>>>(p);
    else if (p.experts <= 256)
        router_256<<<blocks, THREADS, 0, stream>>>(p);
    else
        router_512<<<blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
