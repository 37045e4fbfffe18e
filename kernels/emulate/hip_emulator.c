#include "kernels/emulate/hip_emulator.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    char socket[64], arena[64], target[32];
    unsigned long address, bytes;
    int devices, line; /* a line for each process: forked ones open their own */
    pid_t owner;
    bool known;
} machine = {.line = -1};
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static void know(void) {
    const char *text = getenv("SPW_EMULATOR");
    if (machine.known) return;
    machine.known = true;
    if (text == NULL || sscanf(text, "%63s %63s %lx %lx %31s %d", machine.socket, machine.arena,
                               &machine.address, &machine.bytes, machine.target, &machine.devices) != 6)
        machine.devices = 0;
}

static bool map_arena(void) {
    const int file = open(machine.arena, O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    void *at = (void *)machine.address; /* NOLINT(performance-no-int-to-ptr): the emulator says where */
    void *mapped = mmap(at, machine.bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0);
    (void)close(file);
    return mapped == at;
}

/* The arena stays mapped in a forked process; its line is its own. */
static bool connected(void) {
    know();
    if (machine.devices == 0) return false;
    if (machine.line >= 0 && machine.owner == getpid()) return true;
    const bool first = machine.line < 0;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, machine.socket, sizeof machine.socket);
    machine.line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    machine.owner = getpid();
    if (machine.line >= 0 && connect(machine.line, (struct sockaddr *)&address, sizeof address) == 0 &&
        (!first || map_arena()))
        return true;
    fprintf(stderr, "emulated HIP runtime: no emulator at %s\n", machine.socket);
    machine.devices = 0;
    return false;
}

int spw_emulate_devices(void) { return connected() ? machine.devices : 0; }
const char *spw_emulate_target(void) { return machine.target; }
size_t spw_emulate_bytes(void) { return machine.bytes; }

static bool send_all(const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t some = send(machine.line, (const char *)from + done, bytes - done, MSG_NOSIGNAL);
        if (some <= 0) return false;
        done += (size_t)some;
    }
    return true;
}

hipError_t spw_emulate_ask(spw_emulate_request request, const void *bytes, spw_emulate_answer *answer) {
    *answer = (spw_emulate_answer){.error = hipErrorNoDevice};
    (void)pthread_mutex_lock(&busy);
    if (connected() &&
        !(send_all(&request, sizeof request) && send_all(bytes, request.bytes) &&
          recv(machine.line, answer, sizeof *answer, MSG_WAITALL) == (ssize_t)sizeof *answer)) {
        fprintf(stderr, "emulated HIP runtime: the emulator has gone\n");
        answer->error = hipErrorLaunchFailure;
    }
    (void)pthread_mutex_unlock(&busy);
    return (hipError_t)answer->error;
}
