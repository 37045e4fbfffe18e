/* Hopper's asynchronous machinery, one PTX instruction a function: barriers in shared memory, bulk tensor
 * copies, warpgroup matrix products. Meaning and layouts: NVIDIA, PTX ISA 8.x, chapters "mbarrier",
 * "cp.async.bulk.tensor", "wgmma". */
#ifndef SPW_KERNELS_GEMM_WGMMA_H
#define SPW_KERNELS_GEMM_WGMMA_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gpu/gpu.h"

#include <cuda.h>
#include <stdint.h>

GPU_DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* A barrier is named by its address in shared memory. */
GPU_DEVICE void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
GPU_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
GPU_DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
GPU_DEVICE void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives once this thread's copies (copy_number) so far are there. */
GPU_DEVICE void barrier_arrive_with_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* Returns once the phase of this parity has completed. */
GPU_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
/* A barrier among `threads` threads of the block; id 0 is __syncthreads. */
GPU_DEVICE void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* Makes ordinary stores to shared memory visible to the copy engine and the tensor cores. */
GPU_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int REGISTERS> GPU_DEVICE void registers_raise() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> GPU_DEVICE void registers_lower() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Copies the box at (inner, outer[, group]) of the tensor to shared memory; elements outside the tensor
 * become 0. */
GPU_DEVICE void tensor_load(const CUtensorMap *map, uint32_t to, uint32_t barrier, int inner, int outer) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(inner), "r"(outer)
                 : "memory");
}
GPU_DEVICE void tensor_load(const CUtensorMap *map, uint32_t to, uint32_t barrier, int inner, int outer,
                            int group) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], "
                 "[%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(group)
                 : "memory");
}
/* --- Two blocks of a cluster, which reach into one another's shared memory. --- */
GPU_DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* Arrives at the barrier that block `rank` has at the place of this one's `barrier`. */
GPU_DEVICE void barrier_arrive(uint32_t barrier, int rank) {
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}
/* tensor_load to both blocks, and both of their barriers count its bytes. */
GPU_DEVICE void tensor_load_to_both(const CUtensorMap *map, uint32_t to, uint32_t barrier, int inner,
                                    int outer) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                 "cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(inner), "r"(outer), "h"((uint16_t)3)
                 : "memory");
}
GPU_DEVICE void tensor_load_to_both(const CUtensorMap *map, uint32_t to, uint32_t barrier, int inner,
                                    int outer, int group) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                 "cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(inner), "r"(outer), "r"(group), "h"((uint16_t)3)
                 : "memory");
}
/* The box in shared memory to its place in the tensor; elements outside of it are not written. It is under way until
 * stores_read() returns, which waits for all of this thread's boxes to have been read. */
GPU_DEVICE void tensor_store(const CUtensorMap *map, const void *from, int inner, int outer, int group) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(inner), "r"(outer), "r"(group)
                 : "memory");
}
/* The same to rows of a ragged map: of a group that ends before row `end` of the array, `left` rows from the box on. */
GPU_DEVICE void tensor_store_ragged(const CUtensorMap *map, const void *from, int inner, int end, int left) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(shared_address(from)), "r"(inner), "r"((1 << 30) - left), "r"(end), "r"(1 << 30)
        : "memory");
}
/* The box, of fp32, is added to what is there. */
GPU_DEVICE void tensor_add(const CUtensorMap *map, const void *from, int inner, int outer, int group) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
            map),
        "r"(shared_address(from)), "r"(inner), "r"(outer), "r"(group)
        : "memory");
}
GPU_DEVICE void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
GPU_DEVICE void stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/* One number of fp32 to shared memory, without waiting for it. */
GPU_DEVICE void copy_number(const float *to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/* Sixteen bytes to shared memory, without waiting for them; zeros unless `there`, and then nothing is read. */
GPU_DEVICE void copy_piece(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
/* What copy_piece was asked for so far is one group; returns when all but the last PENDING groups of this thread are there. */
GPU_DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> GPU_DEVICE void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
GPU_DEVICE float shared_number(uint32_t address) {
    float number;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(number) : "r"(address));
    return number;
}
GPU_DEVICE void store_number(uint32_t address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
GPU_DEVICE void store_pair(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
/* Describes an operand in shared memory, written by a bulk tensor copy with the 128-byte swizzle: rows of 128
 * bytes, eight rows an atom, the next eight 1024 bytes on. Outer dimension contiguous: these step eight along the sum,
 * and `next_chunk` bytes from 64 outer elements to the next 64. It is the low word of the descriptor, a matter of 16
 * bytes a unit; the high one, OPERAND_HIGH, is the same for all. */
GPU_DEVICE uint32_t operand_at(uint32_t address, uint32_t next_chunk) {
    return next_chunk >> 4 << 16 | (address & 0x3ffff) >> 4;
}
#define OPERAND_HIGH "0x40000040" /* 128-byte swizzle; 1024 bytes to the next eight rows */

GPU_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GPU_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> GPU_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define WGMMA_SUM8(i) \
    "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), "+f"(sum[i + 5]), \
        "+f"(sum[i + 6]), "+f"(sum[i + 7])

#define WGMMA_64X256X16(TYPE) \
    asm volatile("{\n.reg .pred keep;\n.reg .b64 a, b;\n" \
                 "setp.ne.b32 keep, %130, 0;\n" \
                 "mov.b64 a, {%128, " OPERAND_HIGH "};\nmov.b64 b, {%129, " OPERAND_HIGH "};\n" \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" \
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15, " \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31, " \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47, " \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63, " \
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79, " \
                 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95, " \
                 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111, " \
                 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127 " \
                 "}, a, b, keep, 1, 1, %131, %132;\n}" \
                 : WGMMA_SUM8(0), WGMMA_SUM8(8), WGMMA_SUM8(16), WGMMA_SUM8(24), WGMMA_SUM8(32), \
                   WGMMA_SUM8(40), WGMMA_SUM8(48), WGMMA_SUM8(56), WGMMA_SUM8(64), WGMMA_SUM8(72), \
                   WGMMA_SUM8(80), WGMMA_SUM8(88), WGMMA_SUM8(96), WGMMA_SUM8(104), WGMMA_SUM8(112), \
                   WGMMA_SUM8(120) \
                 : "r"(a), "r"(b), "r"(keep), "n"(A_OUTER), "n"(B_OUTER))

/* sum[64][256] = a[64][16] * b[16][256] (+ sum if keep). A_OUTER, B_OUTER: the operand's outer dimension is
 * contiguous. */
template <spw_gemm_element ELEMENT, int A_OUTER, int B_OUTER>
GPU_DEVICE void wgmma_64x256x16(float (&sum)[128], uint32_t a, uint32_t b, int keep) {
    if constexpr (ELEMENT == SPW_GEMM_FP16)
        WGMMA_64X256X16("f16");
    else
        WGMMA_64X256X16("bf16");
}

#define WGMMA_64X192X16(TYPE) \
    asm volatile("{\n.reg .pred keep;\n.reg .b64 a, b;\n" \
                 "setp.ne.b32 keep, %98, 0;\n" \
                 "mov.b64 a, {%96, " OPERAND_HIGH "};\nmov.b64 b, {%97, " OPERAND_HIGH "};\n" \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {" \
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15, " \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31, " \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47, " \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63, " \
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79, " \
                 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95 " \
                 "}, a, b, keep, 1, 1, %99, %100;\n}" \
                 : WGMMA_SUM8(0), WGMMA_SUM8(8), WGMMA_SUM8(16), WGMMA_SUM8(24), WGMMA_SUM8(32), \
                   WGMMA_SUM8(40), WGMMA_SUM8(48), WGMMA_SUM8(56), WGMMA_SUM8(64), WGMMA_SUM8(72), \
                   WGMMA_SUM8(80), WGMMA_SUM8(88) \
                 : "r"(a), "r"(b), "r"(keep), "n"(A_OUTER), "n"(B_OUTER))

/* The same with 192 columns. */
template <spw_gemm_element ELEMENT, int A_OUTER, int B_OUTER>
GPU_DEVICE void wgmma_64x192x16(float (&sum)[96], uint32_t a, uint32_t b, int keep) {
    if constexpr (ELEMENT == SPW_GEMM_FP16)
        WGMMA_64X192X16("f16");
    else
        WGMMA_64X192X16("bf16");
}
/* The product of so many columns as the sums are. */
template <spw_gemm_element ELEMENT, int A_OUTER, int B_OUTER>
GPU_DEVICE void wgmma_product(float (&sum)[96], uint32_t a, uint32_t b, int keep) {
    wgmma_64x192x16<ELEMENT, A_OUTER, B_OUTER>(sum, a, b, keep);
}
template <spw_gemm_element ELEMENT, int A_OUTER, int B_OUTER>
GPU_DEVICE void wgmma_product(float (&sum)[128], uint32_t a, uint32_t b, int keep) {
    wgmma_64x256x16<ELEMENT, A_OUTER, B_OUTER>(sum, a, b, keep);
}

/* One warp: of a stage of CHUNKS chunks of 64 rows of 128 bytes, rows from `row` up to the next multiple of 16 become 0, for the
 * tensor cores. */
template <int CHUNKS> GPU_DEVICE void clear_behind(unsigned char *stage, int row) {
    const int pieces = (-row & 15) * 8; /* of 16 bytes in a chunk */
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        for (int i = gpu_lane(); i < pieces; i += 32)
            *(uint4 *)(stage + (chunk * 64 + row) * 128 + i * 16) = make_uint4(0, 0, 0, 0);
    fence_async_proxy();
    __syncwarp();
}

/* sum[64][128] = a[64][32] * b[32][128] (+ sum if keep), of codes of e4m3, the inner dimension of both contiguous (operand_at(address, 0)). The tensor cores keep fewer bits of such a sum than fp32
 * has (spw_gemm_float8_variant). */
GPU_DEVICE void wgmma_64x128x32_float8(float (&sum)[64], uint32_t a, uint32_t b, int keep) {
    asm volatile("{\n.reg .pred keep;\n.reg .b64 a, b;\n"
                 "setp.ne.b32 keep, %66, 0;\n"
                 "mov.b64 a, {%64, " OPERAND_HIGH "};\nmov.b64 b, {%65, " OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15, "
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31, "
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47, "
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63 "
                 "}, a, b, keep, 1, 1;\n}"
                 : WGMMA_SUM8(0), WGMMA_SUM8(8), WGMMA_SUM8(16), WGMMA_SUM8(24), WGMMA_SUM8(32),
                   WGMMA_SUM8(40), WGMMA_SUM8(48), WGMMA_SUM8(56)
                 : "r"(a), "r"(b), "r"(keep));
}

/* Four 8 x 8 matrices of numbers of 16 bits from the accumulator layout to rows in shared memory, a row address a lane; by columns:
 * an address of a column a lane. */
GPU_DEVICE void store_matrices_by_columns(uint32_t column, uint32_t m0, uint32_t m1, uint32_t m2,
                                          uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(column),
                 "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}
GPU_DEVICE void store_matrices(uint32_t row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

#endif
