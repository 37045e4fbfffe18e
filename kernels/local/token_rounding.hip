/* Token rounding: every expert takes a multiple of the tile, first those that chose it by falling weight, then the others by falling
 * score, ties to the lower token. Three launches: an integer key for every (expert, token); for each expert the key and the
 * token of the last one taken, by a search over the bits of the key; who is in. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 256, TOKENS = 8 };
constexpr unsigned CHOSEN = 0x80000000; /* in a key, above the bits of a number >= 0 */

/* key [TOKENS][experts]: the score, or the weight and CHOSEN where the token chose the expert. */
GPU_DEVICE void fill_keys(const spw_token_rounding_gpu &p, int first,
                          unsigned (*key)[SPW_GPU_EXPERTS_MAX + 1]) {
    for (int i = gpu_thread(); i < TOKENS * p.experts; i += THREADS) {
        const int t = i / p.experts, x = i % p.experts;
        key[t][x] = first + t < p.tokens ? gpu_float_bits(p.score[(long)(first + t) * p.experts + x]) : 0;
    }
    gpu_barrier();
    for (int i = gpu_thread(); i < TOKENS * p.top_k; i += THREADS) {
        if (first + i / p.top_k >= p.tokens) continue;
        const long at = (long)first * p.top_k + i;
        key[i / p.top_k][p.expert[at]] = CHOSEN | gpu_float_bits(p.weight[at]);
    }
    gpu_barrier();
}

GPU_KERNEL(THREADS) rounding_keys(spw_token_rounding_gpu p) {
    __shared__ unsigned key[TOKENS][SPW_GPU_EXPERTS_MAX + 1];
    const int first = gpu_block() * TOKENS;
    fill_keys(p, first, key);
    for (int i = gpu_thread(); i < TOKENS * p.experts; i += THREADS) {
        const int x = i / TOKENS, t = i % TOKENS;
        if (first + t < p.tokens) p.keys[(long)x * p.tokens + first + t] = key[t][x];
    }
}

/* Sum over the block, the same in every thread. */
GPU_DEVICE int block_sum(int value, int *waves) {
    for (int step = GPU_WAVE / 2; step > 0; step /= 2)
        value += (int)gpu_shuffle((unsigned)value, gpu_lane() ^ step);
    gpu_barrier();
    if (gpu_lane() == 0) waves[gpu_thread() / GPU_WAVE] = value;
    gpu_barrier();
    int sum = 0;
    for (int w = 0; w < THREADS / GPU_WAVE; w++) sum += waves[w];
    return sum;
}

/* How many of an expert's tokens have a key of at least `key`. */
GPU_DEVICE int count_from(const spw_token_rounding_gpu &p, const unsigned *keys, unsigned key, int *waves) {
    int here = 0;
    for (int t = gpu_thread(); t < p.tokens; t += THREADS) here += keys[t] >= key;
    return block_sum(here, waves);
}

/* limits[x] = {key, token}: expert x takes tokens with a larger key, and of those with this key the ones up to this token. */
GPU_KERNEL(THREADS) rounding_select(spw_token_rounding_gpu p) {
    __shared__ int waves[THREADS / GPU_WAVE];
    const unsigned *keys = p.keys + (long)gpu_block() * p.tokens;
    const int chosen = count_from(p, keys, CHOSEN, waves);
    const int whole = chosen / p.tile, rest = chosen % p.tile;
    const bool up = p.rounding == 1 ? rest > 0
                                    : p.rounding == 0 &&
                                          (rest > p.tile - rest || (rest == p.tile - rest && whole % 2 == 1));
    int target = (whole + (up ? 1 : 0)) * p.tile;
    target = target < p.tokens ? target : p.tokens;
    unsigned key = 0; /* the largest one that at least `target` tokens reach */
    for (unsigned bit = CHOSEN; bit != 0; bit >>= 1)
        if (count_from(p, keys, key | bit, waves) >= target) key |= bit;
    const int above = key == 0xffffffff ? 0 : count_from(p, keys, key + 1, waves);
    int low = -1, high = p.tokens - 1; /* the token of number target - above among the equal ones */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        int here = 0;
        for (int t = gpu_thread(); t <= middle; t += THREADS) here += keys[t] == key;
        if (block_sum(here, waves) >= target - above)
            high = middle;
        else
            low = middle;
    }
    if (gpu_thread() == 0) {
        p.limits[gpu_block() * 2] = (int)key, p.limits[gpu_block() * 2 + 1] = high;
        if (target == 0) p.limits[gpu_block() * 2] = -1, p.limits[gpu_block() * 2 + 1] = -1;
        p.count[gpu_block()] = target;
    }
}

GPU_KERNEL(THREADS) rounding_apply(spw_token_rounding_gpu p) {
    __shared__ unsigned key[TOKENS][SPW_GPU_EXPERTS_MAX + 1];
    const int first = gpu_block() * TOKENS;
    fill_keys(p, first, key);
    for (int i = gpu_thread(); i < TOKENS * p.experts; i += THREADS) {
        const int t = i / p.experts, x = i % p.experts;
        if (first + t >= p.tokens) continue;
        const unsigned mine = key[t][x], limit = (unsigned)p.limits[x * 2];
        const bool in = mine > limit || (mine == limit && first + t <= p.limits[x * 2 + 1]);
        const long at = (long)(first + t) * p.experts + x;
        p.taken[at] = in ? gpu_bits_float(mine & ~CHOSEN) : 0;
        p.member[at] = in;
    }
}

#if GPU_HOST
int spw_launch_token_rounding(spw_token_rounding_gpu p, gpu_stream stream) {
    const unsigned blocks = (unsigned)(p.tokens + TOKENS - 1) / TOKENS;
    if (blocks > 0) rounding_keys<<<blocks, THREADS, 0, stream>>>(p);
    rounding_select<<<(unsigned)p.experts, THREADS, 0, stream>>>(p);
    if (blocks > 0) rounding_apply<<<blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
