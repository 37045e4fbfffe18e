#include "base/mpi_link.h"

#include "base/memory.h"

#include <limits.h>
#include <mpi.h>

enum { TAG_ASK = 1, TAG_GIVE };

static spw_status join(int *number, int *count) {
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return spw_fail(SPW_EIO, "MPI could not be started");
    (void)MPI_Comm_rank(MPI_COMM_WORLD, number);
    (void)MPI_Comm_size(MPI_COMM_WORLD, count);
    return SPW_OK;
}

static bool meet(void) {
    static MPI_Request request = MPI_REQUEST_NULL;
    static bool came;
    int together = 0;
    if (!came) (void)MPI_Ibarrier(MPI_COMM_WORLD, &request);
    came = true;
    (void)MPI_Test(&request, &together, MPI_STATUS_IGNORE);
    return together != 0;
}

static void part(void) { (void)MPI_Finalize(); }
static void end_all(int exit_status) { (void)MPI_Abort(MPI_COMM_WORLD, exit_status); }

static spw_status tell(void *data, size_t bytes) {
    enum { PART = 1 << 30 };
    for (size_t done = 0; done < bytes; done += PART) {
        const size_t now = bytes - done < PART ? bytes - done : PART;
        if (MPI_Bcast((char *)data + done, (int)now, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
            return spw_fail(SPW_EIO, "MPI: what the first process says does not arrive");
    }
    return SPW_OK;
}

static spw_status gather(int count, const void *mine, size_t bytes, char **out, size_t *out_bytes) {
    spw_status status = SPW_OK;
    int *each = NULL, *offset = NULL, own = (int)bytes;
    size_t sum = 0;
    SPW_TRY(SPW_ALLOC((size_t)count, &each));
    SPW_TRY(SPW_ALLOC((size_t)count, &offset));
    if (bytes > INT_MAX || MPI_Allgather(&own, 1, MPI_INT, each, 1, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS)
        SPW_TRY(spw_fail(SPW_EIO, "MPI: %zu bytes cannot be gathered", bytes));
    for (int i = 0; i < count; i++) {
        offset[i] = (int)sum;
        sum += (size_t)each[i];
        if (sum > INT_MAX) SPW_TRY(spw_fail(SPW_ENOMEM, "MPI: %zu bytes of one round are too many", sum));
    }
    SPW_TRY(SPW_ALLOC(sum, out));
    *out_bytes = sum;
    if (MPI_Allgatherv(mine, own, MPI_BYTE, *out, each, offset, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        status = spw_fail(SPW_EIO, "MPI: %zu bytes cannot be gathered", sum);

cleanup:
    spw_free(each);
    spw_free(offset);
    return status;
}

static void ask(void) { (void)MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_ASK, MPI_COMM_WORLD); }

static bool is_asked(int *who) {
    MPI_Status state;
    int there = 0;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, TAG_ASK, MPI_COMM_WORLD, &there, &state);
    if (!there) return false;
    *who = state.MPI_SOURCE;
    (void)MPI_Recv(NULL, 0, MPI_BYTE, *who, TAG_ASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return true;
}

static void answer(int who, size_t begin, size_t end) {
    const unsigned long long range[2] = {begin, end};
    (void)MPI_Send(range, 2, MPI_UNSIGNED_LONG_LONG, who, TAG_GIVE, MPI_COMM_WORLD);
}

static void hear(size_t *begin, size_t *end) {
    unsigned long long range[2] = {0, 0};
    (void)MPI_Recv(range, 2, MPI_UNSIGNED_LONG_LONG, 0, TAG_GIVE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    *begin = (size_t)range[0];
    *end = (size_t)range[1];
}

const spw_process_link spw_mpi_link = {join, meet, part, end_all, tell, gather, ask, is_asked, answer, hear};
