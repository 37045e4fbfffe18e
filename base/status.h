/* Status codes and the message that goes with them. Every fallible function of this project returns
 * spw_status; results travel through trailing pointer arguments. Only main turns a status into an exit. */
#ifndef SPW_BASE_STATUS_H
#define SPW_BASE_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One list, expanded into the enum, the names, the texts and the exit status of the program. */
#define SPW_STATUS_LIST(X) \
    X(SPW_OK, 0, "success") \
    X(SPW_EMISMATCH, 1, "result differs from the reference") \
    X(SPW_EARG, 2, "invalid argument") \
    X(SPW_ECONFIG, 2, "job, model or cluster cannot be used") \
    X(SPW_EIO, 3, "file could not be read or written") \
    X(SPW_EFORMAT, 3, "file has wrong content") \
    X(SPW_ENOMEM, 3, "out of memory") \
    X(SPW_EDEVICE, 3, "no GPU, or a GPU call failed")

#define SPW_STATUS_ENUM(name, exit_status, text) name,
typedef enum spw_status { SPW_STATUS_LIST(SPW_STATUS_ENUM) SPW_STATUS_COUNT } spw_status;
#undef SPW_STATUS_ENUM

#define SPW_MUST_CHECK __attribute__((warn_unused_result))

const char *spw_status_name(spw_status status);
const char *spw_status_text(spw_status status);
int spw_status_exit(spw_status status); /* 0 done, 1 a check failed, 2 usage or configuration, 3 the rest */

enum { SPW_MESSAGE_BYTES = 8192 }; /* the longest path of Linux, twice */

/* Message of the latest spw_fail() on this thread; "" if none. Valid until the next spw_fail(). */
const char *spw_last_error(void);

/* Records the message for this thread and returns `status`, so that the control flow stays visible at
 * the call:  return spw_fail(SPW_EARG, "top_k %zu exceeds experts %zu", k, e);
 * A message says what was found, where (file, line, dataset), and what would be right. */
spw_status spw_fail(spw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A library that only says that it failed has met `status`, which `text` words: it ran out of memory, or the system gave an
 * error. From now on what spw_fail() is told to blame a file or a setting for is blamed on that, with that status. */
void spw_note_cause(spw_status status, const char *text);

/* The status with which a run may end that would end with `status`: memory that ran out, or a noted cause, is the run's
 * failure even when nobody passed it on, since something may be missing in what was made. To be asked before an
 * output replaces a file and before a program ends. */
SPW_MUST_CHECK spw_status spw_settle(spw_status status);

/* Another run begins, as in a test. */
void spw_forget_causes(void);

/* Copies text of unknown origin for a message or a table: what is not fit to be shown (base/text.h), tabs and line feeds
 * become '?'. */
void spw_plain_text(const char *text, char *out, size_t size);

/* Puts "prefix: " before the message of a status that came from below, unless it begins so, and returns that status. */
spw_status spw_fail_within(spw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The only control-flow macro: needs a local `spw_status status` and a label `cleanup`. C only. */
#define SPW_TRY(call) \
    do { \
        status = (call); \
        if (status != SPW_OK) goto cleanup; \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
