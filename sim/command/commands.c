/* The table of commands. To add one: its file, its row here, four lines in sim/command/examples.c. */
#include "sim/command/command.h"

#include "sim/command/help_lists.h"
#include "sim/job/job.h"
#include "sim/machine/cluster.h"

#include <string.h>

const spw_command_row spw_commands[] = {
    {"trace", spw_command_trace,
     "generate, verify, import or slice a routing trace, or say what is in it (info)", spw_trace_parts},
    {"replay", spw_command_replay, "memory, all-to-all volumes and dropped tokens of schemes on a trace",
     NULL},
    {"plan", spw_command_plan,
     "what fits, what is fastest, what real routing costs: schemes x splits x batches", NULL},
    {"job", spw_command_job,
     "the job that a training framework's configuration is, and what of it has no counterpart", NULL},
    {"model", spw_command_model, "parameters, layers, weights and work of a model, from its config.json",
     NULL},
    {"report", spw_command_report, "one HTML page of what a replay wrote, for whoever books the GPUs", NULL},
    {"explain", spw_command_explain, "where every byte of one rank's peak comes from", NULL},
    {"verify", spw_command_verify, "simulator, executed reference and plain layer agree?", NULL},
    {"score", spw_command_score, "predictions beside published and compiled runs", NULL},
    {"calibrate", spw_command_calibrate, "fit memory or time to tables of runs", spw_calibrate_parts},
    {"ask-xla", spw_command_ask_xla, "the memory of a job's MaxText program as XLA compiles it, beside ours",
     NULL},
    {"bench", spw_command_bench, "speed, beside the machine's ceiling", spw_bench_parts},
    {"doctor", spw_command_doctor, "what is installed, what works here, and what does not", NULL},
    {0},
};

const spw_command_topic spw_command_topics[] = {
    {"job", "the keys of a job's file", spw_job_settings, NULL},
    {"cluster", "the keys of a cluster's file", spw_cluster_settings, NULL},
    {"schemes", "the execution schemes and their options", NULL, spw_help_schemes},
    {"models", "the models that are known by name", NULL, spw_help_models},
    {"clusters", "the clusters that are known by name", NULL, spw_help_clusters},
    {"routing", "the kinds of routing that are generated", NULL, spw_help_routing},
    {"words", "the words of the output, and what they mean", NULL, spw_help_words},
    {0},
};
