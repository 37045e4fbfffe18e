/* TPUs: the schemes that XLA compiles for any device, without software and without times; DeepEP, Megatron-Core and fp8 recipes are of
 * GPUs. A job of the command line alone has the ring in DeepEP's place. */
#include "sim/job/job.h"
#include "sim/job/job_check.h"
#include "sim/job/software.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"

#include <string.h>

static void test_tpu(void) {
    static spw_job job;
    static spw_software software;
    spw_scheme scheme;
    const spw_job_override values[] = {{"model", "mixtral-8x7b", "--model"},
                                       {"cluster", "tpu-v5p", "--cluster"}};
    CHECK_OK(spw_job_read_with(NULL, values, 2, &job));
    CHECK(job.cluster.gpu_generation == SPW_GPU_NONE && spw_job_gpus(&job) == 64);
    CHECK(job.cluster.hbm_gib.value == 95.0 && strcmp(job.scheme[2], "ring") == 0);
    for (size_t i = 0; i < job.schemes; i++) {
        CHECK_OK(spw_scheme_parse(job.scheme[i], &scheme));
        CHECK_OK(spw_footprint_check(&job, &scheme));
    }
    CHECK_OK(spw_software_newest(&job, true, true, &software));
    CHECK(!software.compiled && !software.megatron);
    CHECK_STATUS(spw_software_suits("xla-cuda-0.10.2", &job.cluster), SPW_ECONFIG);
    CHECK_OK(spw_software_suits("none", &job.cluster));
    static const char *const of_gpus[] = {"gmm-deepep", "megatron-alltoall", "ragged"};
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(spw_scheme_parse(of_gpus[i], &scheme));
        CHECK_STATUS(spw_footprint_check(&job, &scheme), SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), "use one of dense, gmm, ring") != NULL);
    }
    job.precision = (spw_precision){2, 4, 4, 2, .recipe = SPW_FP8_TENSORWISE};
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "the cluster has no GPUs") != NULL);
}

int main(void) {
    test_tpu();
    return check_done();
}
