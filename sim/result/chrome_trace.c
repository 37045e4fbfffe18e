#include "sim/result/chrome_trace.h"

#include "base/file.h"
#include "sim/print/json_values.h"

enum { STEP_THREAD = 0, HIDDEN_THREAD = 1 /* and one a stream from there */, MOST_NAME = 256 };

static const double us = 1e6;

typedef struct writer {
    spw_json json;
    json_t *events;
} writer;

typedef struct drawing {
    const spw_result *result;
    const spw_run_settings *settings;
} drawing;

/* A name for a process or a thread of it. */
static void add_name(writer *w, const char *what, size_t process, size_t thread, const char *name) {
    json_t *event = json_object(), *args = json_object();
    spw_json_put(&w->json, args, "name", spw_json_text(name));
    spw_json_put(&w->json, event, "ph", spw_json_text("M"));
    spw_json_put(&w->json, event, "name", spw_json_text(what));
    spw_json_put(&w->json, event, "pid", spw_json_count(process));
    spw_json_put(&w->json, event, "tid", spw_json_count(thread));
    spw_json_put(&w->json, event, "args", args);
    spw_json_add(&w->json, w->events, event);
}

typedef struct trace_event {
    const char *name, *category;
    size_t process, thread;
    double begin_s, seconds;
} trace_event;

/* args is taken. */
static void add_event(writer *w, const trace_event *e, json_t *args) {
    json_t *event = json_object();
    spw_json_put(&w->json, event, "ph", spw_json_text("X"));
    spw_json_put(&w->json, event, "name", spw_json_text(e->name));
    spw_json_put(&w->json, event, "cat", spw_json_text(e->category));
    spw_json_put(&w->json, event, "pid", spw_json_count(e->process));
    spw_json_put(&w->json, event, "tid", spw_json_count(e->thread));
    spw_json_put(&w->json, event, "ts", spw_json_real(e->begin_s * us));
    spw_json_put(&w->json, event, "dur", spw_json_real(e->seconds * us));
    spw_json_put(&w->json, event, "args", args);
    spw_json_add(&w->json, w->events, event);
}

static json_t *component_args(writer *w, const spw_time_component *c) {
    json_t *args = json_object();
    spw_json_put(&w->json, args, "what", spw_json_text(c->help));
    spw_json_put(&w->json, args, "kernels_us", spw_json_real(c->seconds * us));
    spw_json_put(&w->json, args, "waited_for_us", spw_json_real(c->exposed_s * us));
    return args;
}

static void add_row(writer *w, const spw_result_row *row, size_t process) {
    const spw_timeline *time = &row->time;
    double waited = 0.0, hidden[SPW_STREAM_COUNT] = {0.0};
    char name[MOST_NAME];
    json_t *args = json_object();
    (void)snprintf(name, sizeof name, "%s, sequences %zu, expert parallel %zu, steps %lld to %lld",
                   row->scheme.text, row->sequences, row->expert, (long long)row->first_step,
                   (long long)row->last_step);
    add_name(w, "process_name", process, STEP_THREAD, name);
    add_name(w, "thread_name", process, STEP_THREAD, "what the step waits for");
    spw_json_put(&w->json, args, "low_us", spw_json_real(time->low_s * us));
    spw_json_put(&w->json, args, "high_us", spw_json_real(time->high_s * us));
    spw_json_put(&w->json, args, "tokens_per_s_per_gpu", spw_json_real(time->tokens_per_s_per_gpu));
    const trace_event step = {"step", "step", process, STEP_THREAD, 0.0, time->step_s};
    add_event(w, &step, args);
    for (size_t i = 0; i < time->components; i++) {
        const spw_time_component *c = &time->component[i];
        const char *stream = spw_stream_name(c->stream);
        const double rest = c->seconds - c->exposed_s;
        const size_t thread = HIDDEN_THREAD + (size_t)c->stream;
        const trace_event exposed = {c->name, stream, process, STEP_THREAD, waited, c->exposed_s},
                          behind = {c->name, stream, process, thread, hidden[c->stream], rest};
        if (c->exposed_s > 0.0) add_event(w, &exposed, component_args(w, c));
        waited += c->exposed_s;
        if (rest <= 0.0) continue;
        if (hidden[c->stream] <= 0.0) {
            (void)snprintf(name, sizeof name, "hidden: %s", stream);
            add_name(w, "thread_name", process, thread, name);
        }
        add_event(w, &behind, component_args(w, c));
        hidden[c->stream] += rest;
    }
}

static spw_status print(FILE *out, const void *what) {
    const drawing *d = what;
    writer w = {.events = json_array()};
    json_t *document = json_object(), *about = json_object();
    for (size_t i = 0; i < d->result->rows; i++) {
        if (d->result->row[i].timed) add_row(&w, &d->result->row[i], i + 1);
    }
    spw_json_put(&w.json, about, "program", spw_json_text("spillway"));
    spw_json_put(&w.json, about, "command", spw_json_text(d->settings->command));
    spw_json_put(&w.json, about, "trace", spw_json_text(d->settings->trace_path));
    spw_json_put(&w.json, about, "stack", spw_json_text(d->settings->stack));
    spw_json_put(&w.json, about, "order",
                 spw_json_text("that of the table; a time model knows durations alone"));
    spw_json_put(&w.json, document, "traceEvents", w.events);
    spw_json_put(&w.json, document, "displayTimeUnit", spw_json_text("ms"));
    spw_json_put(&w.json, document, "otherData", about);
    return spw_json_print(&w.json, document, JSON_COMPACT, "the Chrome trace", out);
}

spw_status spw_chrome_trace_write(const spw_result *result, const spw_run_settings *settings,
                                  const char *path) {
    const drawing d = {.result = result, .settings = settings};
    size_t timed = 0;
    for (size_t i = 0; i < result->rows; i++) timed += result->row[i].timed;
    if (timed == 0)
        return spw_fail(SPW_EARG,
                        "--chrome-trace: no row has a step time; --stack NAME gives the schemes of that "
                        "software one");
    return spw_file_print(path, print, &d);
}
