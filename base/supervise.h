/* Work in a child process that is watched over: however it ends, the user is told and nothing half written stays. HDF5 crashes,
 * and OpenMP exits, when memory or threads run out, and a system without memory kills; none of them says so in our
 * words or with our exit status. */
#ifndef SPW_BASE_SUPERVISE_H
#define SPW_BASE_SUPERVISE_H

/* Runs work(argc, argv) in a child and returns the exit status of the program: what `work` returned, or 3, with a message on
 * standard error, when the child was ended by a crash, by SIGKILL, or by a library with any status but 0 and 2, which are
 * those of help and of wrong options. Any other signal ends this process too. Signals that are sent to this
 * process go to the child, and its temporary files are removed after it. Without a child, or under a sanitizer, `work` runs
 * in this process. To be called while the process has one thread. */
int spw_supervise(int argc, char **argv, int (*work)(int argc, char **argv));

#endif
