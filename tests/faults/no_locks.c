/* To be preloaded: a file system without file locks, as one of a network may be. */
#include <errno.h>
#include <sys/file.h>

int flock(int file, int operation) {
    (void)file;
    (void)operation;
    errno = ENOLCK;
    return -1;
}
