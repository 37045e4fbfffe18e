/* Clang's OpenMP registers each process in /dev/shm by its number, and does not say goodbye when the process is killed or its
 * files may not grow. A later process of the same number reads what was left; an empty file ends it with a bus error. So every
 * process, forked ones too, takes such a file away before OpenMP begins. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void forget(void) {
    char name[64];
    (void)snprintf(name, sizeof name, "/__KMP_REGISTERED_LIB_%d_%d", (int)getpid(), (int)getuid());
    (void)shm_unlink(name);
}

__attribute__((destructor)) static void end(void) { forget(); }

__attribute__((constructor)) static void begin(void) {
    forget();
    (void)pthread_atfork(NULL, NULL, forget);
}
