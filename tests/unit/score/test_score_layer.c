/* The bars of SonicMoE's figure 13 against the schemes: the scores that no change may make worse, two bars by hand, and
 * damaged tables. */
#include "sim/score/score_prints.h"
#include "sim/score/table_kind.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

#define HEADER "model_scale,tokens,hidden,n_intermediate,E,K,implementation,metric,value_digitised,unit\n"
#define METRIC "peak activation memory per layer"

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_scores(const char *path) {
    static const struct {
        const char *method;
        size_t bars, scored;
        double median, max;
    } held[] = {
        {"SonicMoE", 12, 12, 0.005, 0.02},
        {"ScatterMoE", 12, 12, 0.006, 0.013},
        {"MegaBlocks", 12, 10, 0.018, 0.13},
        {"Megatron", 12, 0, 0, 0},
        {"MoMoE", 12, 0, 0, 0},
        {"DeepGEMM-pt", 12, 0, 0, 0},
        {"DeepGEMM++", 12, 0, 0, 0},
        {NULL, 84, 34, 0.008, 0.13},
    };
    spw_layer_score score;
    spw_layer_errors e;
    CHECK(spw_table_kind_of(path) == SPW_TABLE_BARS);
    CHECK_OK(spw_layer_score_open(path, &score));
    CHECK(score.others == 168);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        CHECK_OK(spw_layer_score_errors(&score, held[i].method, &e));
        CHECK(e.bars == held[i].bars && e.scored == held[i].scored);
        if (e.scored > 0) CHECK(e.median < held[i].median && e.max < held[i].max);
        if (e.scored == 0) CHECK(isnan(e.median) && isnan(e.max));
    }
    size_t far = 0; /* one bar of MegaBlocks stands alone: 9.17 GiB where its neighbours say 8 */
    for (size_t i = 0; i < score.bars; i++) {
        const spw_layer_bar *b = &score.bar[i];
        if (!spw_layer_bar_is_scored(b)) continue;
        CHECK(spw_layer_bar_predicted(b) == (double)(b->saved_bytes + b->weight_bytes + b->router_bytes));
        far += fabs(spw_layer_bar_error(b)) > 0.03;
    }
    CHECK(far == 1);
    FILE *nowhere = fopen("/dev/null", "w");
    for (int f = SPW_FORMAT_TABLE; f <= SPW_FORMAT_CSV; f++)
        CHECK_OK(spw_layer_score_print(
            &(spw_score_request){.table = &path, .tables = 1, .format = (spw_format)f, .out = nowhere}));
    CHECK(fclose(nowhere) == 0);
    spw_layer_score_close(&score);
}

/* 8 tokens of 4, 2 of 4 experts of width 16, by hand. Weights 3 x 4 x 4 x 16 x 2 B = 1536; ScatterMoE 2 (32 + 16 (48 + 4));
 * MegaBlocks 2 (16 (4 + 32) + 64). */
static void test_by_hand(const char *path) {
    spw_layer_score score;
    write_file(path, HEADER "a,8,4,16,4,2,SonicMoE," METRIC ",1,GiB\n"
                            "a,8,4,16,4,2,ScatterMoE," METRIC ",,GiB\n"
                            "a,8,4,16,4,2,MegaBlocks," METRIC ",1,GiB\n"
                            "a,8,4,16,4,2,Other," METRIC ",1,GiB\n"
                            "a,8,4,16,4,2,SonicMoE,forward TFLOPS,1,TFLOP/s\n");
    CHECK_OK(spw_layer_score_open(path, &score));
    CHECK(score.bars == 4 && score.others == 1);
    CHECK(score.bar[0].saved_bytes == 64 + 1024 + 256 && score.bar[0].router_bytes == 64);
    CHECK(score.bar[1].saved_bytes == 1728u && score.bar[1].router_bytes == 0);
    CHECK(score.bar[2].saved_bytes == 1280u);
    for (size_t i = 0; i < 3; i++) CHECK(score.bar[i].weight_bytes == 1536);
    CHECK(fabs(spw_layer_bar_error(&score.bar[0]) - (1344.0 + 1536.0 + 64.0) / GIB + 1.0) < 1e-12);
    CHECK(!spw_layer_bar_is_scored(&score.bar[1]) && !spw_layer_bar_is_scored(&score.bar[3]));
    spw_layer_score_close(&score);
}

static void test_damage(const char *path) {
    static const char *const texts[] = {
        "implementation,value_digitised\nSonicMoE,1\n",
        HEADER "a,8,4,16,4,2,SonicMoE," METRIC ",x,GiB\n",
        HEADER "a,8,4,16,4,2,SonicMoE," METRIC ",-1,GiB\n",
        HEADER "a,8,4,16,4,2,SonicMoE," METRIC ",nan,GiB\n",
        HEADER "a,8,4,16,4,2,SonicMoE," METRIC ",1,MB\n",
        HEADER "a,0,4,16,4,2,SonicMoE," METRIC ",1,GiB\n",
        HEADER "a,8,-4,16,4,2,SonicMoE," METRIC ",1,GiB\n",
        HEADER "a,8,4,1e9,4,2,SonicMoE," METRIC ",1,GiB\n",
        HEADER "a,8,4,16,4,5,SonicMoE," METRIC ",1,GiB\n",
        HEADER "a,8,4,99999999999999999999,4,2,SonicMoE," METRIC ",1,GiB\n",
    };
    spw_layer_score score;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(path, texts[i]);
        CHECK_STATUS(spw_layer_score_open(path, &score), SPW_EFORMAT);
        CHECK(strstr(spw_last_error(), path) != NULL);
    }
    write_file(path, "id,model\n1,2\n");
    CHECK(spw_table_kind_of(path) == SPW_TABLE_OTHER);
    CHECK(spw_table_kind_of("/no/such/table.csv") == SPW_TABLE_OTHER);
    CHECK_STATUS(spw_layer_score_open("/no/such/table.csv", &score), SPW_EIO);
}

int main(int argc, char **argv) {
    char path[512];
    if (argc != 3) return 2;
    (void)snprintf(path, sizeof path, "%s/layer_bars.csv", argv[2]);
    test_scores(argv[1]);
    test_by_hand(path);
    test_damage(path);
    (void)remove(path);
    return check_done();
}
