/* Measured links in a cluster file: written, read back, replaced, refused. */
#include "sim/command/bench/cluster_link.h"

#include "sim/machine/cluster.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static const spw_link_curve measured = {
    .points = 3,
    .gpus = 2,
    .value = {{1024, 65536, 1048576},
              {3000, 4000, 6000},
              {600, 30000, 216000},
              {100, 7500, 90000},
              {300, 19000, 217000},
              {601, 32000, 217001}},
    .source = "by hand",
};

static void check_read(const char *path, size_t latency) {
    spw_cluster c, plain;
    CHECK_OK(spw_cluster_read(path, NULL, &c));
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &plain));
    CHECK(c.link.points == 3 && c.link.gpus == 2 && c.link.evidence == SPW_EVIDENCE_MEASURED);
    CHECK(c.link.message_bytes[1] == 65536 && c.link.latency_ns[0] == latency &&
          c.link.out_mb_per_s[2] == 216000);
    CHECK(c.link.in_mb_per_s[1] == 7500 && c.link.exchange_mb_per_s[0] == 300 &&
          c.link.incast_mb_per_s[2] == 217001);
    CHECK(strcmp(c.link.source, "by hand") == 0);
    CHECK(c.gemm.points == plain.gemm.points && c.hbm_gib.value == plain.hbm_gib.value); /* the rest stays */
}

int main(int argc, char **argv) {
    char path[512], again[512];
    spw_link_curve curve = measured;
    if (argc != 2) return 2;
    (void)snprintf(path, sizeof path, "%s/link.yaml", argv[1]);
    (void)snprintf(again, sizeof again, "%s/link_again.yaml", argv[1]);
    CHECK_OK(spw_cluster_link_save("h200-8x8", &curve, path));
    check_read(path, 3000);
    curve.value[1][0] = 2999; /* in the place of the first */
    CHECK_OK(spw_cluster_link_save(path, &curve, again));
    check_read(again, 2999);
    curve.value[0][1] = 512; /* sizes that do not rise: no file */
    CHECK(remove(again) == 0);
    CHECK_STATUS(spw_cluster_link_save(path, &curve, again), SPW_ECONFIG);
    CHECK(fopen(again, "r") == NULL);
    CHECK_STATUS(spw_cluster_link_save("no-such-cluster", &measured, again), SPW_ECONFIG);
    CHECK_STATUS(spw_cluster_link_save("h200-8x8", &measured, "/no/such/folder/x.yaml"), SPW_EIO);
    return check_done();
}
