#include "base/child.h"
#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/command/trace/command_trace.h"
#include "sim/library/gate.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spw_answer {
    char *json, *notes; /* of open_memstream() */
    size_t json_bytes, notes_bytes;
    json_t *root; /* NULL: no JSON */
};

static const struct {
    const char *name;
    spw_status (*run)(int argc, char **argv);
    enum { AS_JSON, AS_FILE, AS_TEXT } answer; /* AS_JSON: the command has --format */
} questions[] = {
    {"replay", spw_command_replay, AS_JSON},
    {"plan", spw_command_plan, AS_JSON},
    {"flags", spw_command_plan, AS_TEXT},
    {"explain", spw_command_explain, AS_JSON},
    {"job", spw_command_job, AS_JSON},
    {"model", spw_command_model, AS_JSON},
    {"report", spw_command_report, AS_FILE},
    {"score", spw_command_score, AS_JSON},
    {"verify", spw_command_verify, AS_JSON},
    {"trace info", spw_command_trace_info, AS_JSON},
    {"trace verify", spw_command_trace_verify, AS_JSON},
    {"trace generate", spw_command_trace_generate, AS_FILE},
    {"trace merge", spw_command_trace_merge, AS_FILE},
    {"trace import", spw_command_trace_import, AS_FILE},
    {"trace slice", spw_command_trace_slice, AS_FILE},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

const char *spw_version(void) { return SPW_VERSION; }

void spw_answer_destroy(spw_answer *answer) {
    if (answer == NULL) return;
    json_decref(answer->root);
    free(answer->json);
    free(answer->notes);
    spw_free(answer);
}

const char *spw_answer_json(const spw_answer *answer) { return answer != NULL ? answer->json : ""; }
const char *spw_answer_notes(const spw_answer *answer) { return answer != NULL ? answer->notes : ""; }

/* Runs the command with streams of its own. */
static spw_status run_here(size_t which, int argc, char **argv, spw_answer *answer) {
    spw_command_streams own = {.out = open_memstream(&answer->json, &answer->json_bytes),
                               .notes = open_memstream(&answer->notes, &answer->notes_bytes)};
    spw_status status = SPW_OK;
    if (own.out == NULL || own.notes == NULL) {
        status = spw_fail(SPW_ENOMEM, "cannot allocate the streams of an answer");
    } else {
        spw_command_redirect(own);
        status = questions[which].run(argc, argv);
        spw_command_redirect((spw_command_streams){.out = NULL});
    }
    const bool whole =
        (own.out == NULL || fclose(own.out) == 0) && (own.notes == NULL || fclose(own.notes) == 0);
    if (status == SPW_OK && !whole) status = spw_fail(SPW_ENOMEM, "cannot keep the answer");
    return status;
}

/* --- In a child, which a library that fails takes with it --- */

typedef struct question {
    size_t which;
    int argc;
    char **argv;
    spw_answer *answer;
    spw_status status;
    char message[8192];
} question;

/* What comes back, before the JSON and the notes. */
typedef struct answer_head {
    int status;
    size_t json_bytes, notes_bytes;
    char message[8192];
} answer_head;

static void *work(void *context) {
    question *q = context;
    q->status = spw_settle(run_here(q->which, q->argc, q->argv, q->answer));
    (void)snprintf(q->message, sizeof q->message, "%s", spw_last_error());
    return NULL;
}

/* The child's main thread is a copy of one for which OpenMP keeps a team that was not copied; a new one gets a team of its own. */
static spw_status work_there(void *context, FILE *out) {
    question *q = context;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, q) != 0) {
        (void)work(q);
    } else {
        (void)pthread_join(thread, NULL);
    }
    spw_forget_causes(); /* they are in the status */
    answer_head head = {
        .status = (int)q->status, .json_bytes = q->answer->json_bytes, .notes_bytes = q->answer->notes_bytes};
    memcpy(head.message, q->message, sizeof head.message);
    const bool said = fwrite(&head, sizeof head, 1, out) == 1 &&
                      fwrite(q->answer->json, 1, head.json_bytes, out) == head.json_bytes &&
                      fwrite(q->answer->notes, 1, head.notes_bytes, out) == head.notes_bytes;
    return said ? SPW_OK : spw_fail(SPW_ENOMEM, "cannot keep the answer");
}

static spw_status copy_part(const char *from, size_t bytes, char **out, size_t *out_bytes) {
    *out = malloc(bytes + 1);
    if (*out == NULL) return spw_fail(SPW_ENOMEM, "cannot keep the answer");
    memcpy(*out, from, bytes);
    (*out)[bytes] = '\0';
    *out_bytes = bytes;
    return SPW_OK;
}

static spw_status unpack(const char *reply, size_t bytes, spw_answer *answer) {
    answer_head head;
    spw_status status = SPW_OK;
    const char *at = reply + sizeof head;
    if (bytes < sizeof head) return spw_fail(SPW_EIO, "half an answer");
    memcpy(&head, reply, sizeof head);
    const size_t rest = bytes - sizeof head;
    if (head.json_bytes > rest || head.notes_bytes != rest - head.json_bytes || head.status < 0 ||
        head.status >= SPW_STATUS_COUNT)
        return spw_fail(SPW_EIO, "half an answer");
    SPW_TRY(copy_part(at, head.json_bytes, &answer->json, &answer->json_bytes));
    SPW_TRY(copy_part(at + head.json_bytes, head.notes_bytes, &answer->notes, &answer->notes_bytes));
    status = (spw_status)head.status;
    head.message[sizeof head.message - 1] = '\0';
    if (status != SPW_OK) status = spw_fail(status, "%s", head.message);

cleanup:
    return status;
}

static spw_status run(size_t which, int argc, char **argv, spw_answer *answer) {
    if (!spw_child_is_apart()) return run_here(which, argc, argv, answer);
    question *q = NULL;
    char *reply = NULL;
    size_t bytes = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &q));
    *q = (question){.which = which, .argc = argc, .argv = argv, .answer = answer};
    SPW_TRY(spw_child_do(argv[0], work_there, q, &reply, &bytes));
    SPW_TRY(unpack(reply, bytes, answer));

cleanup:
    spw_free(q);
    spw_free(reply);
    return status;
}

static spw_status check_argument(const char *name, const char *argument, size_t position, bool formats) {
    static const char format[] = "--format";
    if (argument == NULL) return spw_fail(SPW_EARG, "%s: argument %zu is NULL", name, position);
    if (formats && strncmp(argument, format, sizeof format - 1) == 0)
        return spw_fail(SPW_EARG, "%s: the answer is JSON; leave --format out", name);
    return SPW_OK;
}

static spw_status ask(size_t which, size_t arguments, const char *const *argument, spw_answer *answer) {
    static const char *const json[] = {"--format", "json"};
    const size_t formats = questions[which].answer == AS_JSON ? sizeof json / sizeof *json : 0;
    spw_status status = SPW_OK;
    char **list = NULL, name[64];
    size_t count = 0;
    SPW_TRY(SPW_ALLOC(arguments + formats + 2, &list)); /* the parser sorts it and leaves the texts alone */
    (void)snprintf(name, sizeof name, "spillway %s", questions[which].name);
    list[count++] = name;
    for (size_t i = 0; i < arguments; i++) {
        SPW_TRY(check_argument(name, argument[i], i, formats > 0));
        list[count++] = (char *)argument[i];
    }
    for (size_t i = 0; i < formats; i++) list[count++] = (char *)json[i];
    SPW_TRY(run(which, (int)count, list, answer));

cleanup:
    spw_free(list);
    return status;
}

/* Finds what is wrong with a question before anything is locked. */
static spw_status find(const char *command, size_t arguments, size_t *which) {
    enum { MOST_ARGUMENTS = 1 << 16 };
    for (*which = 0; *which < QUESTIONS; ++*which) {
        if (strcmp(command, questions[*which].name) != 0) continue;
        return arguments <= MOST_ARGUMENTS ? SPW_OK
                                           : spw_fail(SPW_EARG, "%s: %zu arguments; at most %d are read",
                                                      command, arguments, MOST_ARGUMENTS);
    }
    char names[256] = "";
    for (size_t i = 0; i < QUESTIONS; i++) {
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", questions[i].name);
    }
    return spw_fail(SPW_EARG, "'%s' is no question; there are %s", command, names);
}

spw_code spw_ask(const char *command, size_t arguments, const char *const *argument, spw_answer **out) {
    spw_answer *answer = NULL;
    size_t which = 0;
    if (out != NULL) *out = NULL;
    spw_status status =
        spw_check_given(__func__, (spw_given[]){{"command", command},
                                                {"argument", spw_array(argument, arguments > 0)},
                                                {"out", out},
                                                {NULL, NULL}});
    if (status == SPW_OK) status = find(command, arguments, &which);
    if (status == SPW_OK) status = SPW_ALLOC(1, &answer);
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) {
        spw_answer_destroy(answer);
        return (spw_code)status;
    }
    status = (spw_status)spw_gate_leave(ask(which, arguments, argument, answer));
    const bool there = status == SPW_OK || (status == SPW_EMISMATCH && answer->json_bytes > 0);
    if (there && answer->json_bytes > 0 && questions[which].answer != AS_TEXT) {
        answer->root = json_loadb(answer->json, answer->json_bytes, 0, NULL);
        if (answer->root == NULL && status == SPW_OK) status = spw_fail(SPW_ENOMEM, "cannot keep the answer");
    }
    if (out != NULL && (status == SPW_OK || (there && answer->root != NULL))) {
        *out = answer;
    } else {
        spw_answer_destroy(answer);
    }
    return (spw_code)status;
}

/* --- One value --- */

/* What stands at "rows.0.memory.peak_bytes"; NULL: nothing. */
static const json_t *value_at(const spw_answer *answer, const char *path) {
    const json_t *value = answer->root;
    while (value != NULL && *path != '\0') {
        char part[128];
        const size_t length = strcspn(path, ".");
        if (length >= sizeof part) return NULL;
        (void)snprintf(part, sizeof part, "%.*s", (int)length, path);
        char *end = NULL;
        const unsigned long position = strtoul(part, &end, 10);
        const bool numbered = end != part && *end == '\0';
        value =
            json_is_array(value) && numbered ? json_array_get(value, position) : json_object_get(value, part);
        path += path[length] == '.' ? length + 1 : length;
    }
    return value;
}

spw_code spw_answer_real(const spw_answer *answer, const char *path, double *out) {
    const spw_status given = spw_check_given(
        __func__, (spw_given[]){{"answer", answer}, {"path", path}, {"out", out}, {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    const json_t *value = value_at(answer, path);
    if (value == NULL || !json_is_number(value))
        return (spw_code)spw_fail(SPW_EARG, "the answer has no number '%s'", path);
    *out = json_number_value(value);
    return SPW_CODE_OK;
}

spw_code spw_answer_size(const spw_answer *answer, const char *path, size_t *out) {
    const spw_status given = spw_check_given(
        __func__, (spw_given[]){{"answer", answer}, {"path", path}, {"out", out}, {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    const json_t *value = value_at(answer, path);
    if (value == NULL || !(json_is_array(value) || json_is_object(value)))
        return (spw_code)spw_fail(SPW_EARG, "the answer has no list '%s'", path);
    *out = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    return SPW_CODE_OK;
}
