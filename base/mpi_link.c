#include "base/mpi_link.h"

#include "base/memory.h"

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>

enum { TAG_ASK = 1, TAG_GIVE, TAG_RECORDS };

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

static void end_all(int exit_status) { (void)MPI_Abort(MPI_COMM_WORLD, exit_status); }

/* Who waits does not take the processor from those who work. */
static void rest_until(MPI_Request *request) {
    int there = 0;
    long waited_us = 0;
    while (MPI_Test(request, &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && there == 0)
        spw_processes_rest(&waited_us);
}

static spw_status tell(void *data, size_t bytes) {
    enum { PART = 1 << 30 };
    for (size_t done = 0; done < bytes; done += PART) {
        const size_t now = bytes - done < PART ? bytes - done : PART;
        MPI_Request request = MPI_REQUEST_NULL;
        const int begun = MPI_Ibcast((char *)data + done, (int)now, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        if (begun == MPI_SUCCESS) rest_until(&request);
        if (MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS || begun != MPI_SUCCESS)
            return spw_fail(SPW_EIO, "MPI: what the first process says does not arrive");
    }
    return SPW_OK;
}

/* --- Records --- */

static MPI_Request sending = MPI_REQUEST_NULL;

static spw_status send_records(const void *data, size_t bytes) {
    if (bytes > INT_MAX ||
        MPI_Isend(data, (int)bytes, MPI_BYTE, 0, TAG_RECORDS, MPI_COMM_WORLD, &sending) != MPI_SUCCESS)
        return spw_fail(SPW_EIO, "MPI: %zu bytes cannot be sent", bytes);
    return SPW_OK;
}

static bool sent(void) {
    int done = 0;
    return MPI_Test(&sending, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

/* Messages that have begun to come. A sender over a network goes on only when it looks after it: the first does not wait for that. */
static struct coming {
    MPI_Request request;
    char *data;
    size_t bytes;
} * coming;
static size_t come, capacity;

/* One that was met and had no room yet. */
static MPI_Message met;
static int met_bytes;
static bool is_met;

static void look(void) {
    MPI_Status state;
    int there = 0;
    if (is_met) return;
    (void)MPI_Improbe(MPI_ANY_SOURCE, TAG_RECORDS, MPI_COMM_WORLD, &there, &met, &state);
    is_met = there != 0;
    if (is_met) (void)MPI_Get_count(&state, MPI_BYTE, &met_bytes);
}

static spw_status begin_one(bool *begun) {
    spw_status status = SPW_OK;
    char *data = NULL;
    look();
    *begun = is_met;
    if (!is_met) return SPW_OK;
    if (come == capacity) {
        SPW_TRY(SPW_RESIZE(2 * capacity + 16, &coming));
        capacity = 2 * capacity + 16;
    }
    SPW_TRY(SPW_ALLOC((size_t)met_bytes, &data));
    coming[come] = (struct coming){MPI_REQUEST_NULL, data, (size_t)met_bytes};
    (void)MPI_Imrecv(data, met_bytes, MPI_BYTE, &met, &coming[come++].request);
    is_met = false;

cleanup:
    return status;
}

static spw_status receive(char **out, size_t *bytes) {
    spw_status status = SPW_OK;
    *out = NULL;
    for (bool begun = true; begun && status == SPW_OK;) status = begin_one(&begun);
    for (size_t i = 0; i < come && *out == NULL && status == SPW_OK; i++) {
        int done = 0;
        if (MPI_Test(&coming[i].request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return spw_fail(SPW_EIO, "MPI: records of another process do not arrive");
        if (!done) continue;
        *out = coming[i].data;
        *bytes = coming[i].bytes;
        coming[i] = coming[--come];
    }
    return status;
}

static void part(void) {
    spw_free(coming);
    coming = NULL;
    come = capacity = 0;
    (void)MPI_Finalize();
}

/* --- Numbers --- */

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

static bool hear(size_t *begin, size_t *end) {
    unsigned long long range[2] = {0, 0};
    int there = 0;
    (void)MPI_Iprobe(0, TAG_GIVE, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (!there) return false;
    (void)MPI_Recv(range, 2, MPI_UNSIGNED_LONG_LONG, 0, TAG_GIVE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    *begin = (size_t)range[0];
    *end = (size_t)range[1];
    return true;
}

const spw_process_link spw_mpi_link = {.join = join,
                                       .meet = meet,
                                       .part = part,
                                       .end_all = end_all,
                                       .tell = tell,
                                       .send = send_records,
                                       .sent = sent,
                                       .receive = receive,
                                       .ask = ask,
                                       .is_asked = is_asked,
                                       .answer = answer,
                                       .hear = hear};
