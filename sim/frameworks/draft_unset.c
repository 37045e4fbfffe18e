/* Settings whose value is a variable that the file does not set, as sbatch's exports are: what says them instead. */
#include "sim/frameworks/draft.h"

#include "sim/job/job.h"
#include "sim/read/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Facts that an option says otherwise than by a key of that name. NULL: whatever it is, the cluster or the sizes of the model say it. */
static const struct {
    const char *fact, *key;
} saying[] = {{"@gpus", NULL},
              {"@nodes", NULL},
              {"@gpus_per_node", NULL},
              {"@data_parallel", NULL},
              {"@model_name", NULL},
              {"@micro_batch", "batch.micro_batches"},
              {"@local_batch", "batch.sequences_per_gpu"},
              {"@per_device", "batch.sequences_per_gpu"},
              {"@global_batch", "batch.global_batch"},
              {"@dataset_length", "batch.sequence_length"},
              {"@accumulation", "batch.micro_batches"},
              {"@pipeline_micro_batches", "batch.micro_batches"},
              {"@layers_per_virtual", "parallel.virtual_stages"},
              {"@repeats", "parallel.virtual_stages"},
              {"@shard", "parallel.fsdp"},
              {"@ici_expert", "parallel.expert"},
              {"@dcn_expert", "parallel.expert"},
              {"@ici_fsdp", "parallel.fsdp"},
              {"@dcn_fsdp", "parallel.fsdp"},
              {"@ici_tensor", "parallel.tensor"},
              {"@dcn_tensor", "parallel.tensor"},
              {"@ici_context", "parallel.context"},
              {"@dcn_context", "parallel.context"},
              {"@ici_pipeline", "parallel.pipeline"},
              {"@dcn_pipeline", "parallel.pipeline"},
              {"@dispatcher", "schemes"},
              {"@backend", "schemes"},
              {"@recompute", "remat"},
              {"@remat", "remat"},
              {"@checkpoint", "remat"}};

static const char *const of_model[] = {
    "@layers",     "@hidden",   "@heads",       "@kv_heads",      "@head_dim",
    "@ffn",        "@experts",  "@top_k",       "@expert_ffn",    "@shared_ffn",
    "@query_rank", "@key_rank", "@key_dim",     "@rotary_dim",    "@value_dim",
    "@vocabulary", "@groups",   "@groups_kept", "@first_dense",   "@streams",
    "@moe_layers", "@flavor",   "@family",      "@grouped_query", NULL};

bool spw_draft_unset_counts(const spw_framework_row *row, const char **key) {
    *key = row->ours[0] != '@' ? row->ours : NULL;
    for (size_t i = 0; i < sizeof saying / sizeof *saying; i++)
        if (strcmp(saying[i].fact, row->ours) == 0) {
            *key = saying[i].key;
            return *key != NULL;
        }
    for (const char *const *fact = of_model; *fact != NULL; fact++)
        if (strcmp(*fact, row->ours) == 0) *key = "model";
    return true;
}

/* The job's key as one writes it on the command line: "--tensor-parallel N". */
static void write_option(const char *key, char *out, size_t size) {
    const char *point = strchr(key, '.');
    const size_t length = point != NULL ? (size_t)(point - key) : strlen(key);
    const spw_setting *found = NULL;
    for (const spw_setting *row = spw_job_settings(); row->key != NULL; row++) {
        if (strlen(row->key) != length || strncmp(row->key, key, length) != 0) continue;
        if (point == NULL) found = row;
        for (const spw_setting *inner = point != NULL ? row->fields : NULL;
             inner != NULL && inner->key != NULL; inner++)
            if (strcmp(inner->key, point + 1) == 0) found = inner;
    }
    const bool number =
        found != NULL && (found->kind == SPW_SETTING_COUNT || found->kind == SPW_SETTING_COUNTS);
    if (found != NULL && found->option != NULL)
        (void)snprintf(out, size, "--%s %s", found->option, number ? "N" : "NAME");
    else
        (void)snprintf(out, size, "--set %s=%s", key, number ? "N" : "...");
}

void spw_draft_unset_why(const spw_file_entry *e, spw_file_kind kind, const char *key,
                         char out[SPW_NOTE_WHY]) {
    char place[80] = "its value in its place", option[80] = "";
    const char *name = strchr(e->value, '$');
    if (name != NULL) name += 1 + (name[1] == '{');
    size_t length = 0;
    while (name != NULL && (isalnum((unsigned char)name[length]) || name[length] == '_')) length++;
    if (kind == SPW_FILE_SHELL && length > 0 && length < 48 && !isdigit((unsigned char)name[0]))
        (void)snprintf(place, sizeof place, "%.*s=... into it", (int)length, name);
    if (key != NULL) write_option(key, option, sizeof option);
    (void)snprintf(out, SPW_NOTE_WHY,
                   "a variable that the file does not set, and the environment is not read, so a default is "
                   "planned; write %s%s%s",
                   place, key != NULL ? ", or give " : "", option);
}
