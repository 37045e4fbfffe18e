/* Tables of published training runs. argv[1]: a scratch folder. All rows are made up. */
#include "sim/score/runs/run_score.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER \
    "row_id,source,model,hardware,gpus,precision,dispatcher,tp,pp,cp,vp,ep,mbs,gbs,seq,remat,recipe,graph," \
    "ep_overlap," \
    "notes,published_tokens_s_gpu,published_memory_gib,published_status,command\n"

/* --- Commands --- */

static void test_command(void) {
    static const char *const wrong[] = {"plan --model",  "plan --set",      "plan --set key",
                                        "plan --set =1", "plan --set 'a=b", "plan --optimizer"};
    spw_run_command c;
    CHECK_OK(spw_run_command_read(
        "t",
        "plan  --cluster h100:8x2 --model 'a b.json' --set x=1=2 --tensor 4 --fsdp 2 --set "
        "'parallel.pipeline_model_parallel_layout=Et*4|(t*4|)*14tmL' --scheme s:k=1,l=2 ",
        &c));
    CHECK(strcmp(c.model, "a b.json") == 0 && strcmp(c.scheme, "s:k=1,l=2") == 0 && c.sets == 3);
    CHECK(strcmp(c.set[0].key, "x") == 0 && strcmp(c.set[0].value, "1=2") == 0);
    CHECK(strcmp(c.set[1].key, "parallel.fsdp") == 0 && strcmp(c.set[1].value, "2") == 0);
    CHECK(strcmp(c.set[2].value, "Et*4|(t*4|)*14tmL") == 0);
    spw_run_command_close(&c);
    CHECK_OK(spw_run_command_read("t", NULL, &c));
    CHECK(c.model == NULL && c.scheme == NULL && c.sets == 0);
    spw_run_command_close(&c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(spw_run_command_read("here:7", wrong[i], &c), SPW_ECONFIG);
        CHECK(strncmp(spw_last_error(), "here:7: command: ", 17) == 0);
    }
    char many[SPW_RUN_COMMAND_SETS * 16 + 64] = "plan";
    for (int i = 0; i <= SPW_RUN_COMMAND_SETS; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), " --set a=1");
    CHECK_STATUS(spw_run_command_read("t", many, &c), SPW_ECONFIG);
}

/* --- Models --- */

static void write_text(const char *folder, const char *name, const char *text) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_models(const char *folder) {
    static const struct {
        const char *said, *name, *found; /* found: the end of it; NULL: none */
    } cases[] = {{NULL, "Qwen3_30B_a3B", "qwen3-30b-a3b"},
                 {NULL, "Qwen3_30B_a3B (tokendrop)", "qwen3-30b-a3b"},
                 {NULL, "qwen3_30b", "qwen3-30b-a3b"}, /* no other preset begins so */
                 {NULL, "DeepSeekV3", "deepseek-v3"},
                 {NULL, "DeepSeek-V2-Lite BF16 +DeepEP", "deepseek-v2-lite"},
                 {NULL, "qwen3", NULL}, /* several do */
                 {NULL, "DeepSeekV3_proxy", NULL},
                 {NULL, "", NULL},
                 {NULL, "Small-Moe 3B none", "models/small-moe.json"},
                 {NULL, "Small-MoeX", NULL},
                 {NULL, "small_moe_2-x", "models/small-moe-2.json"},
                 {"small-moe.json", "whatever", "models/small-moe.json"},
                 {"models/small-moe.json", "whatever", "models/small-moe.json"},
                 {"mixtral-8x7b", "whatever", "mixtral-8x7b"},
                 {"../small-moe.json", "whatever", NULL}};
    char table[4096], found[SPW_RUN_MODEL_PATH];
    (void)snprintf(table, sizeof table, "%s/runs.csv", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_status status = spw_run_model_find(table, cases[i].said, cases[i].name, found);
        CHECK(status == (cases[i].found != NULL ? SPW_OK : SPW_ECONFIG));
        if (status != SPW_OK || cases[i].found == NULL) continue;
        const size_t all = strlen(found), end = strlen(cases[i].found);
        CHECK(all >= end && strcmp(found + all - end, cases[i].found) == 0);
    }
}

/* --- From columns to keys --- */

static spw_csv *parse(const char *text) {
    spw_csv *csv = NULL;
    CHECK_OK(spw_csv_parse("t.csv", text, strlen(text), &csv));
    return csv;
}

static const char *value_of(const spw_run_question *q, const char *key, spw_run_origin origin) {
    for (size_t i = 0; i < q->settings; i++)
        if (strcmp(q->setting[i].key, key) == 0)
            return q->setting[i].origin == origin ? q->setting[i].value : "?";
    return "";
}

typedef struct expected {
    const char *key, *value;
    spw_run_origin origin;
} expected;

/* `rows`: of a table with the header above. */
static void check_row(const char *rows, const expected *want, const char *scheme) {
    char text[4096], reason[SPW_RUN_REASON];
    spw_run_question q;
    (void)snprintf(text, sizeof text, HEADER "%s\n", rows);
    spw_csv *csv = parse(text);
    if (csv == NULL) return;
    CHECK_OK(spw_run_question_read(csv, 0, &q, reason));
    CHECK(reason[0] == '\0');
    for (; want->key != NULL; want++) {
        const char *got = value_of(&q, want->key, want->origin);
        if (strcmp(got, want->value) != 0)
            fprintf(stderr, "%s: '%s', not '%s'\n", want->key, got, want->value);
        CHECK(strcmp(got, want->value) == 0);
    }
    for (size_t i = 0; i < q.settings; i++)
        for (size_t j = 0; j < i; j++) CHECK(strcmp(q.setting[i].key, q.setting[j].key) != 0);
    CHECK(strcmp(q.scheme, scheme) == 0);
    spw_run_question_close(&q);
    spw_csv_close(csv);
}

/* 64 GPUs in tp 2 x pp 4 x cp 1: 8 data-parallel ranks; 256 sequences are 32 of each, in micro-batches of 2: 16. */
static void test_columns(void) {
    const expected plain[] = {{"model", "mixtral-8x7b", SPW_RUN_FROM_COLUMNS},
                              {"cluster", "h100:8x8", SPW_RUN_FROM_COLUMNS},
                              {"parallel.tensor", "2", SPW_RUN_FROM_COLUMNS},
                              {"parallel.pipeline", "4", SPW_RUN_FROM_COLUMNS},
                              {"parallel.context", "1", SPW_RUN_FROM_COLUMNS},
                              {"parallel.expert", "8", SPW_RUN_FROM_COLUMNS},
                              {"parallel.virtual_stages", "2", SPW_RUN_FROM_COLUMNS},
                              {"batch.sequence_length", "4096", SPW_RUN_FROM_COLUMNS},
                              {"batch.sequences_per_gpu", "32", SPW_RUN_FROM_COLUMNS},
                              {"batch.micro_batches", "16", SPW_RUN_FROM_COLUMNS},
                              {"remat", "moe_act+layernorm", SPW_RUN_FROM_COLUMNS},
                              {"precision.recipe", "", SPW_RUN_FROM_COLUMNS},
                              {"precision.fp8_param_gather", "", SPW_RUN_ASSUMED},
                              {"precision.gradients", "bf16", SPW_RUN_ASSUMED},
                              {"cross_entropy", "te_in_place", SPW_RUN_ASSUMED},
                              {"optimizer", "distributed", SPW_RUN_ASSUMED},
                              {"parallel.expert_tensor", "1", SPW_RUN_ASSUMED},
                              {NULL, NULL, SPW_RUN_ASSUMED}};
    check_row("a,megatron_bridge 26.02,Mixtral "
              "8x7B,h100,64,bf16,alltoall,2,4,1,2,8,2,256,4096,moe_act+layernorm,,none,"
              "False,,1,,OK,",
              plain, "megatron-alltoall");
    /* Racks of 72: 96 GPUs in two equal parts of 48. What the command says of a column's key does not count. */
    const expected rack[] = {{"cluster", "gb200:48x2", SPW_RUN_FROM_COLUMNS},
                             {"parallel.virtual_stages", "", SPW_RUN_FROM_COLUMNS},
                             {"precision.recipe", "mxfp8", SPW_RUN_FROM_COLUMNS},
                             {"precision.fp8_param_gather", "true", SPW_RUN_ASSUMED},
                             {"precision.optimizer", "bf16", SPW_RUN_FROM_COMMAND},
                             {"model", "qwen3-30b-a3b", SPW_RUN_FROM_COMMAND},
                             {"remat", "none", SPW_RUN_FROM_COLUMNS},
                             {"batch.micro_batches", "4", SPW_RUN_FROM_COLUMNS},
                             {NULL, NULL, SPW_RUN_ASSUMED}};
    check_row(
        "b,megatron_bridge "
        "26.04,anything,gb200,96,mxfp8,HybridEP,1,1,1,1,16,2,768,4096,none,,full_iteration,False,,1,,OK,"
        "\"plan --model qwen3-30b-a3b --set precision.optimizer=bf16 --set remat=full --scheme "
        "megatron-syncfree:rank_capacity=2,stash=1.2,align=16\"",
        rack, "megatron-syncfree:rank_capacity=1.5,graph=full,align=32,stash=1.2");
    const expected none[] = {{"precision.gradients", "", SPW_RUN_ASSUMED}, {NULL, NULL, SPW_RUN_ASSUMED}};
    check_row("c,somebody,Mixtral 8x7B,h100,8,tensorwise,DeepEP,1,1,1,0,8,1,8,4096,full,,,,,,,,", none,
              "megatron-flex:align=16");
    check_row("d,somebody,Mixtral 8x7B (tokendrop),h100,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,,,,,,,",
              none, "megatron-alltoall:capacity_factor=1,pad=true");
    /* Options of another scheme than the columns' are not its own. */
    check_row("e,somebody,Mixtral 8x7B,h100,8,bf16,DeepEP,1,1,1,1,8,1,8,4096,full,,,,,,,,plan --scheme "
              "megatron-alltoall:capacity_factor=2",
              none, "megatron-flex");
    /* That release's container has no DeepEP; its patch has. */
    const expected bridge[] = {{"precision.gradients", "bf16", SPW_RUN_ASSUMED},
                               {NULL, NULL, SPW_RUN_ASSUMED}};
    check_row(
        "f,megatron_bridge 26.02,Mixtral 8x7B,h100,8,tensorwise,DeepEP,1,1,1,1,8,1,8,4096,full,,,,,,,,plan "
        "--scheme megatron-flex:align=16",
        bridge, "megatron-alltoall:align=16");
    check_row("g,megatron_bridge 26.02.01,Mixtral 8x7B,h100,8,bf16,DeepEP,1,1,1,1,8,1,8,4096,full,,,,,,,,",
              bridge, "megatron-flex");
}

/* Rows without a job say why; rows that a job cannot say wholly say that. */
static void test_refusals(void) {
    static const struct {
        const char *row, *reason, *refused;
    } cases[] = {
        {"a,s,Nobody,h100,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,,,,,,,", "model 'Nobody'", NULL},
        {"a,s,DeepSeekV3,z900,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,,,,,,,", "z900", NULL},
        {"a,s,DeepSeekV3,h100,8,bf16,pigeon,1,1,1,1,8,1,8,4096,full,,,,,,,,", "dispatcher 'pigeon'", NULL},
        {"a,s,DeepSeekV3,h100,8,bf16,alltoall,3,1,1,1,8,1,8,4096,full,,,,,,,,", "no multiple of tp x pp x cp",
         NULL},
        {"a,s,DeepSeekV3,h100,8,bf16,alltoall,1,1,1,1,8,3,8,4096,full,,,,,,,,",
         "no multiple of micro-batches", NULL},
        {"a,s,DeepSeekV3,h100,,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,,,,,,,", "gpus is empty", NULL},
        {"a,s,DeepSeekV3,h100,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,knitted,,,,,,", "",
         "kind of CUDA graphs"},
        {"a,s,DeepSeekV3,h100,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,,perhaps,,,,,", "",
         "neither True nor False"},
        {"a,s,DeepSeekV3,h100,8,bf16,alltoall,1,1,1,1,8,1,8,4096,full,,full_iteration,,,,,,", "",
         "CUDA graph"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048], reason[SPW_RUN_REASON];
        spw_run_question q;
        (void)snprintf(text, sizeof text, HEADER "%s\n", cases[i].row);
        spw_csv *csv = parse(text);
        if (csv == NULL) continue;
        CHECK_OK(spw_run_question_read(csv, 0, &q, reason));
        CHECK(strstr(reason, cases[i].reason) != NULL && (reason[0] == '\0') == (cases[i].reason[0] == '\0'));
        CHECK((q.refused != NULL) == (cases[i].refused != NULL));
        CHECK(q.refused == NULL || cases[i].refused == NULL || strstr(q.refused, cases[i].refused) != NULL);
        spw_run_question_close(&q);
        spw_csv_close(csv);
    }
}

/* What no table of runs has in a cell is an error with its place; so is a column that is missing. */
static void test_damage(void) {
    static const struct {
        const char *column, *cell;
    } cells[] = {{"gpus", "0"},     {"gpus", "-8"},
                 {"gpus", "8.5"},   {"gpus", "1e99"},
                 {"gpus", "0x8"},   {"tp", "nan"},
                 {"pp", "inf"},     {"cp", " 1"},
                 {"vp", "-1"},      {"ep", "8\x1b[2J"},
                 {"mbs", "1;DROP"}, {"gbs", "999999999"},
                 {"seq", "4096x"},  {"command", "plan --set 'a"}};
    static const char *const columns[] = {"row_id",    "source",     "model",      "hardware", "gpus",
                                          "precision", "dispatcher", "tp",         "pp",       "cp",
                                          "vp",        "ep",         "mbs",        "gbs",      "seq",
                                          "remat",     "graph",      "ep_overlap", "notes",    "command"};
    static const char *const values[] = {"a",    "s",    "DeepSeekV3", "h100", "8", "bf16", "alltoall",
                                         "1",    "1",    "1",          "1",    "8", "1",    "8",
                                         "4096", "full", "",           "",     "",  ""};
    enum { COLUMNS = sizeof columns / sizeof *columns, CELLS = sizeof cells / sizeof *cells };
    char reason[SPW_RUN_REASON];
    for (size_t i = 0; i < CELLS + COLUMNS - 1; i++) {
        char head[1024] = "", row[1024] = "";
        spw_run_question q;
        for (size_t c = COLUMNS; c-- > 0;) { /* the order of columns is free */
            const bool cell = i < CELLS && strcmp(columns[c], cells[i].column) == 0;
            if (i >= CELLS && c == i - CELLS) continue;
            (void)snprintf(head + strlen(head), sizeof head - strlen(head), "%s,", columns[c]);
            (void)snprintf(row + strlen(row), sizeof row - strlen(row), "%s,",
                           cell ? cells[i].cell : values[c]);
        }
        char text[2100];
        (void)snprintf(text, sizeof text, "%smore\n%sx\n", head, row);
        spw_csv *csv = parse(text);
        if (csv == NULL) continue;
        CHECK_STATUS(spw_run_question_read(csv, 0, &q, reason), i < CELLS ? SPW_ECONFIG : SPW_EFORMAT);
        CHECK(strstr(spw_last_error(), "t.csv") != NULL);
        CHECK(strstr(spw_last_error(), i < CELLS ? cells[i].column : columns[i - CELLS]) != NULL);
        CHECK(strchr(spw_last_error(), '\x1b') == NULL);
        spw_run_question_close(&q);
        spw_csv_close(csv);
    }
}

/* The same row with its columns the other way round, and others between them, is the same question. */
static void test_order(void) {
    char reason[SPW_RUN_REASON];
    spw_run_question a, b;
    spw_csv *one =
        parse(HEADER "a,Primus x,Mixtral 8x7B,mi355x,16,bf16,alltoall,1,2,1,1,8,1,64,4096,full,,,,,,,,\n");
    spw_csv *other = parse(
        "notes,ep_overlap,graph,remat,seq,gbs,colour,mbs,ep,vp,cp,pp,tp,dispatcher,precision,gpus,hardware,"
        "model,source,row_id\n,,,full,4096,64,blue,1,8,1,1,2,1,alltoall,bf16,16,mi355x,Mixtral 8x7B,Primus "
        "x,a\n");
    CHECK_OK(spw_run_question_read(one, 0, &a, reason));
    CHECK_OK(spw_run_question_read(other, 0, &b, reason));
    CHECK(a.settings == b.settings && a.settings > 10 && strcmp(a.scheme, b.scheme) == 0);
    for (size_t i = 0; i < a.settings && i < b.settings; i++)
        CHECK(strcmp(a.setting[i].key, b.setting[i].key) == 0 &&
              strcmp(a.setting[i].value, b.setting[i].value) == 0);
    spw_run_question_close(&a);
    spw_run_question_close(&b);
    spw_csv_close(one);
    spw_csv_close(other);
}

/* --- Scores --- */

static bool has_id(const spw_run_row *row, const void *id) { return strcmp(row->question.id, id) == 0; }

/* Published speeds are made of predicted ones: one was predicted 6 % too fast, one 5 % and one 90 % too slow. The interval is wider than
 * 6 % to either side and narrower than 10 times. */
static void test_summary(const char *folder) {
    static const char row[] =
        "somebody,OLMoE-1B-7B,h100,8,bf16,alltoall,1,1,1,1,8,1,64,4096,full,,none,False,";
    char text[4096], path[4096];
    spw_run_score score;
    spw_run_summary s;
    (void)snprintf(path, sizeof path, "%s/runs.csv", folder);
    const char *const table = path;
    (void)snprintf(text, sizeof text, HEADER "a,%s,,,,\n", row);
    write_text(folder, "runs.csv", text);
    CHECK_OK(spw_run_score_open(&table, 1, NULL, &score));
    CHECK(score.rows == 1 && spw_run_is_timed(&score.row[0]));
    CHECK(isnan(spw_run_throughput_error(&score.row[0])) && !spw_run_is_inside(&score.row[0]));
    const double speed = score.row[0].time.tokens_per_s_per_gpu,
                 gib = (double)score.row[0].peak_bytes / 1073741824.0;
    const double width = score.row[0].time.high_s / score.row[0].time.low_s;
    /* 64 sequences of 4096 tokens on 8 GPUs */
    CHECK(fabs(speed * score.row[0].time.step_s / (64.0 * 4096.0 / 8.0) - 1.0) < 1e-9);
    CHECK_OK(spw_run_summarise(&score, NULL, NULL, &s));
    CHECK(s.rows == 1 && s.skipped == 0 && s.throughput_cells == 0 && isnan(s.throughput_mape) &&
          isnan(s.width_median));
    CHECK(s.verdicts == 0 && s.memory_cells == 0 && isnan(s.memory_mean));
    spw_run_score_close(&score);

    (void)snprintf(
        text, sizeof text,
        HEADER
        "a,%s,%.9g,%.9g,OK,\nb,%s,%.9g,,OOM,\nc,%s,%.9g,,crashed,\nd,%s,,,OK,\ne,somebody,Nobody,h100,8,bf16,"
        "alltoall,1,1,1,1,8,1,64,4096,full,,none,False,,5,,OK,\nf,somebody,"
        "OLMoE-1B-7B,h100,8,bf16,alltoall,1,1,1,1,8,1,64,4096,full,,knitted,False,,5,,OK,\n",
        row, speed / 1.06, 2.0 * gib, row, speed / 0.95, row, 10.0 * speed, row);
    write_text(folder, "runs.csv", text);
    CHECK_OK(spw_run_score_open(&table, 1, NULL, &score));
    CHECK_OK(spw_run_summarise(&score, NULL, NULL, &s));
    CHECK(s.rows == 6 && s.skipped == 2 && s.untimed == 1 && s.throughput_cells == 3 && s.inside == 2);
    CHECK(fabs(s.throughput_mape - (0.06 + 0.05 + 0.9) / 3.0) < 1e-6);
    CHECK(fabs(s.throughput_bias - (0.06 - 0.05 - 0.9) / 3.0) < 1e-6);
    CHECK(fabs(s.throughput_median - 0.06) < 1e-6 && fabs(s.throughput_max - 0.9) < 1e-6);
    CHECK(fabs(s.width_median - width) < 1e-9 * width);
    CHECK(s.verdicts == 4 &&
          s.verdicts_wrong == 1); /* a, b, d and f have a job and a verdict; b ran out of memory */
    CHECK(s.memory_cells == 1 && fabs(s.memory_mean - 0.5) < 1e-6);
    CHECK(strstr(score.row[4].no_job, "Nobody") != NULL && score.row[5].no_job[0] == '\0');
    CHECK(strstr(score.row[5].no_time, "CUDA graphs") != NULL);
    CHECK_OK(spw_run_summarise(&score, has_id, "b", &s));
    CHECK(s.rows == 1 && s.throughput_cells == 1 && fabs(s.throughput_mape - 0.05) < 1e-6);
    spw_run_score_close(&score);

    (void)snprintf(text, sizeof text, HEADER "a,%s,fast,,OK,\n", row);
    write_text(folder, "runs.csv", text);
    CHECK_STATUS(spw_run_score_open(&table, 1, NULL, &score), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "published_tokens_s_gpu 'fast'") != NULL);
}

/* Routing that was not balanced takes longer, and is told from what was. */
static void test_routing(const char *folder) {
    static const char row[] =
        "somebody,OLMoE-1B-7B,h100,8,bf16,alltoall,1,1,1,1,8,1,64,4096,none,,none,False";
    char text[2048], path[4096];
    const char *const table = path;
    spw_run_score score;
    (void)snprintf(path, sizeof path, "%s/runs.csv", folder);
    (void)snprintf(text, sizeof text, HEADER "a,%s,,,,,\nb,%s,real routing of a CI run,,,,\n", row, row);
    write_text(folder, "runs.csv", text);
    CHECK_OK(spw_run_score_open(&table, 1, NULL, &score));
    CHECK(score.rows == 2 && spw_run_is_timed(&score.row[0]) && spw_run_is_timed(&score.row[1]));
    CHECK(score.row[0].question.routing == NULL && strcmp(score.row[1].question.routing, "reference") == 0);
    CHECK(score.row[1].time.step_s > 1.01 * score.row[0].time.step_s);
    CHECK(score.row[1].peak_bytes > score.row[0].peak_bytes);
    spw_run_score_close(&score);
}

/* The interval is of the step: what was published faster has the shorter one. */
static void test_inside(void) {
    spw_run_row row = {.true_tokens_per_s_per_gpu = 1000.0};
    row.time.components = 1;
    row.time.step_s = 2.0, row.time.low_s = 1.9, row.time.high_s = 3.0;
    row.time.tokens_per_s_per_gpu = 1000.0;
    CHECK(spw_run_is_inside(&row));
    row.true_tokens_per_s_per_gpu = 700.0; /* 2.86 s */
    CHECK(spw_run_is_inside(&row));
    row.true_tokens_per_s_per_gpu = 660.0; /* 3.03 s */
    CHECK(!spw_run_is_inside(&row));
    row.true_tokens_per_s_per_gpu = 1040.0; /* 1.92 s */
    CHECK(spw_run_is_inside(&row));
    row.true_tokens_per_s_per_gpu = 1070.0; /* 1.87 s */
    CHECK(!spw_run_is_inside(&row));
}

int main(int argc, char **argv) {
    char folder[4000], models[4096];
    if (argc != 2) return 2;
    (void)snprintf(folder, sizeof folder, "%s/training_runs", argv[1]);
    (void)snprintf(models, sizeof models, "%s/models", folder);
    (void)mkdir(folder, 0777);
    (void)mkdir(models, 0777);
    write_text(models, "small-moe.json", "{}");
    write_text(models, "small-moe-2.json", "{}");
    write_text(models, "notes.txt", "no model");
    test_command();
    test_models(folder);
    test_columns();
    test_refusals();
    test_damage();
    test_order();
    test_inside();
    test_summary(folder);
    test_routing(folder);
    return check_done();
}
