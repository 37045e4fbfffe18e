/* The options that every command on a job shares: which job, which schemes, which batch. */
#ifndef SPW_SIM_COMMAND_JOB_OPTIONS_H
#define SPW_SIM_COMMAND_JOB_OPTIONS_H

#include "base/status.h"
#include "sim/frameworks/framework_job.h"
#include "sim/job/job.h"
#include "sim/print/table.h"
#include "sim/schemes/scheme.h"
#include "traces/trace_memory.h"

#include <argp.h>

enum { SPW_JOB_KEY_TEXT = 96 }; /* "finetune.lora_targets" */

typedef struct spw_job_options {
    const char *job_path, *from, *sequences, *expert_parallel, *format_text;
    spw_draft *draft; /* of --from, read by spw_job_options_finish; NULL: none */
    const char *scheme_text[SPW_JOB_MAX_SCHEMES];
    size_t scheme_texts;
    char scheme_list[SPW_JOB_MAX_SCHEMES *
                     (2 * SPW_SCHEME_TEXT + 4)];  /* the same as one value of the key schemes */
    spw_job_override override[SPW_JOB_OVERRIDES]; /* of --set and of the keys' own options */
    struct {
        char key[SPW_JOB_KEY_TEXT], label[224];
    } override_text[SPW_JOB_OVERRIDES]; /* what the overrides point to */
    size_t overrides;
    char expert_first[32]; /* of a list of --expert-parallel */
    /* filled by spw_job_options_finish */
    spw_job job;
    spw_scheme scheme[SPW_JOB_MAX_SCHEMES];
    spw_format format;
    bool
        points_alone; /* a scheme or a batch that does not go with the job is no error of the whole; set before parsing */
    bool
        searched; /* stages and micro-batches are tried, so that the job's stay as they were said; set before finishing */
    bool schemes_alone; /* so is a scheme, which the command itself looks at; set before parsing */
    bool
        expert_lists; /* --expert-parallel may be a list, or all, which the command itself looks at; set before parsing */
    bool schemes_unsaid; /* no file and no option names a scheme */
    bool split_unsaid;   /* no file and no option splits the GPUs among experts and replicas */
    bool batch_unsaid;   /* no file and no option says how many sequences a GPU has: one */
    size_t left_out[SPW_JOB_MAX_BATCHES],
        left_outs; /* batches that micro_batches does not divide, where others are */
} spw_job_options;

/* Keys of the shared options; a command's own keys start above SPW_OPTION_OWN. */
enum {
    SPW_OPTION_JOB = 0x100,
    SPW_OPTION_SCHEME,
    SPW_OPTION_SEQUENCES,
    SPW_OPTION_EXPERT,
    SPW_OPTION_FORMAT,
    SPW_OPTION_SET,
    SPW_OPTION_FROM,
    SPW_OPTION_OWN,
    SPW_OPTION_KEYS = 0x1000 /* of the keys that have a name on the command line */
};

#define SPW_JOB_ARGP_OPTIONS \
    {"job", \
     SPW_OPTION_JOB, \
     "FILE", \
     0, \
     "the job: model, cluster, parallel split, batch (YAML); or none, with --model and --cluster", \
     0}, \
        {"from", \
         SPW_OPTION_FROM, \
         "[NAME:]FILE", \
         0, \
         "the job: a configuration of Megatron-LM, Megatron-Bridge, Primus, MaxText, torchtitan, " \
         "DeepSpeed, Axolotl or TRL " \
         "(spillway job FILE prints what it becomes)", \
         0}, \
        {"scheme", \
         SPW_OPTION_SCHEME, \
         "NAME[:KEY=VALUE,...]", \
         0, \
         "execution scheme, may be repeated (default: the job's)", \
         0}, \
        {"sequences-per-gpu", \
         SPW_OPTION_SEQUENCES, \
         "LIST", \
         SPW_OPTION_LAST, \
         "batch sizes, as in 1,2,4 (default: the job's)", \
         0}, \
        {"expert-parallel", \
         SPW_OPTION_EXPERT, \
         "R", \
         SPW_OPTION_LAST, \
         "expert-parallel size; fsdp becomes what is left, unless it is given too (default: the job's)", \
         0}, \
        {"set", \
         SPW_OPTION_SET, \
         "KEY=VALUE", \
         0, \
         "any key of the job (spillway help job), as in batch.micro_batches=4; may be repeated", \
         0}, \
    { \
        "format", SPW_OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0 \
    }

/* An argp parser for the options above, for `children`; its input is the spw_job_options. */
extern const struct argp spw_job_argp;

/* Completes the list of options from the table of a job's keys; to be called once, before any arguments are parsed. */
void spw_job_argp_fill(void);
/* The key of a job that a word means as an option does, "lora-targets" as finetune.lora_targets; false: none ends so. */
bool spw_job_key_of_word(const char *word, char out[SPW_JOB_KEY_TEXT]);

/* "KEY:VALUE,..." of --allocator as values of the job's keys; before spw_job_options_finish. */
SPW_MUST_CHECK spw_status spw_job_options_put_allocator(spw_job_options *options, const char *text);

/* Reads and checks the job and the schemes. What it keeps is freed by spw_job_options_close. */
SPW_MUST_CHECK spw_status spw_job_options_finish(spw_job_options *options);
void spw_job_options_close(spw_job_options *options); /* zeroed ones are fine */

typedef struct spw_software spw_software; /* sim/job/software.h */
/* The newest stacks of what the schemes ask for: those that a plan takes by itself. */
SPW_MUST_CHECK spw_status spw_job_options_newest(const spw_job_options *options, spw_software *out);

/* What the model's file says and is not in the figures: a line each, after `label`. */
void spw_print_model_doubts(const spw_model *model, const char *label, FILE *out);

/* "A:B" (half open), "A:", ":B" or "A"; *end 0 = to the last. SPW_EARG otherwise. */
SPW_MUST_CHECK spw_status spw_parse_range(const char *option, const char *text, size_t *begin, size_t *end);
/* A whole number of at most `most`; SPW_EARG names the option. */
SPW_MUST_CHECK spw_status spw_parse_count(const char *option, const char *text, uint64_t most, uint64_t *out);
/* "300B", "1T", "1.5e12" of `what`: K, M, B and T stand for 10^3, 10^6, 10^9, 10^12; from 1 to 1e18. */
SPW_MUST_CHECK spw_status spw_parse_amount(const char *option, const char *text, const char *what,
                                           double *out);
/* A share, from a percentage in [0, 100]. */
/* A number of bytes: 4GB, 512MiB, 1e9. */
SPW_MUST_CHECK spw_status spw_parse_bytes(const char *option, const char *text, size_t *out);
/* A bound of so many bytes, which is told to whoever listens; *out is NULL without a text. */
SPW_MUST_CHECK spw_status spw_parse_memory(const char *text, spw_memory_bound *bound, spw_memory_bound **out);
SPW_MUST_CHECK spw_status spw_parse_percent(const char *option, const char *text, double *out);

#endif
