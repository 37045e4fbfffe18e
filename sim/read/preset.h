/* Files that come with the program: sim/models/, sim/clusters/, sim/stacks/, sim/time_stacks/ and
 * sim/megatron_stacks/, and the style of a report, compiled in by sim/embed.cmake. A name in a job is one of them or the path of a file. */
#ifndef SPW_SIM_READ_PRESET_H
#define SPW_SIM_READ_PRESET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_preset {
    const char *name, *text; /* a NULL name ends the list */
    size_t length;
} spw_preset;

/* Written by sim/embed.cmake, in alphabetical order. */
extern const spw_preset spw_model_files[], spw_cluster_files[], spw_stack_files[], spw_time_stack_files[],
    spw_megatron_files[], spw_report_files[];
extern const char *const spw_model_names[], *const spw_cluster_names[], *const spw_stack_names[];
extern const char *const spw_time_stack_names[], *const spw_megatron_names[];

/* Presets of one kind, and what a path to a file of that kind ends in. */
typedef struct spw_preset_kind {
    const char *what, *file_words; /* "model", "a Hugging Face config.json": for messages */
    const spw_preset *files;
    const char *const *suffixes; /* ended by NULL */
    size_t most_bytes;           /* of a file; 0: SPW_SETTINGS_BYTES */
} spw_preset_kind;

/* A text ready to be parsed. `where` names it in messages. Freed by spw_preset_close. */
typedef struct spw_preset_text {
    const char *where, *text;
    size_t length;
    char *path, *content; /* owned; NULL for a preset */
} spw_preset_text;

/* Opens the preset `name`, or the file `name` when it contains a '/' or ends in one of the suffixes; relative
 * to `folder` when that is not NULL. SPW_ECONFIG lists the presets, SPW_EIO names the file. */
SPW_MUST_CHECK spw_status spw_preset_open(const spw_preset_kind *kind, const char *name, const char *folder,
                                          spw_preset_text *out);
void spw_preset_close(spw_preset_text *text);

/* Fills a struct, which owns nothing, from a text. */
typedef spw_status spw_preset_parser(const char *where, const char *text, size_t length, void *out);
/* Parses it into the `bytes` of `out`. What a preset says does not change: it is parsed once a process, and copied from then on. Any
 * thread may ask. */
SPW_MUST_CHECK spw_status spw_preset_parse(const spw_preset_text *text, spw_preset_parser *parser,
                                           size_t bytes, void *out);

/* What a file is whose beginning is that of an HDF5 file, GGUF, archive or array: "a GGUF of weights"; NULL: it cannot be read, or
 * may be text. */
const char *spw_preset_other_kind(const char *path);

#endif
