/* The machine's ceiling for work on data in memory: a sum. */
#ifndef SPW_SIM_COMMAND_BENCH_MEMORY_READ_H
#define SPW_SIM_COMMAND_BENCH_MEMORY_READ_H

#include <stddef.h>
#include <stdint.h>

/* Sum of the words of data [count], but for some at the end, read by all threads in four streams each, by the widest vectors of the processor. */
uint64_t spw_memory_read(const uint64_t *data, size_t count);

/* Bytes that do not fit into the caches: twice the last one, as far as the system says; 256 MiB to 1 GiB. */
size_t spw_memory_beyond_caches(void);

#endif
