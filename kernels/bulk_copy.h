/* Hopper's bulk copies of plain bytes, one PTX instruction a function; 16-byte aligned, multiples of 16. Meaning: NVIDIA, PTX ISA 8.x,
 * "cp.async.bulk". The far side may be another GPU's memory. */
#ifndef SPW_KERNELS_BULK_COPY_H
#define SPW_KERNELS_BULK_COPY_H

#include "kernels/wgmma.h"

/* Arrives at the barrier with its bytes. */
GPU_DEVICE void bulk_load(void *to, const void *from, int bytes, uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
/* Belongs to this thread's open group. */
GPU_DEVICE void bulk_store(void *to, const void *from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}
GPU_DEVICE void bulk_close_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* All but this thread's last GROUPS groups have been read from shared memory. */
template <int GROUPS> GPU_DEVICE void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}
/* Everything that this thread stored has been written. */
GPU_DEVICE void bulk_wait_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/* What others wrote by ordinary stores and this thread has acquired, bulk copies may read. */
GPU_DEVICE void bulk_order() { asm volatile("fence.proxy.async;" ::: "memory"); }

#endif
