#include "sim/peers/peer.h"

#include "sim/job/job.h"
#include "sim/model/matrices.h"

#include <stdio.h>
#include <string.h>

#define PART_TEXT(name, text) text,
const char *spw_peer_part_name(spw_peer_part part) {
    static const char *const names[] = {SPW_PEER_PART_LIST(PART_TEXT)};
    return names[part];
}

#define NO_COPIES "each weight once; ours adds the layers that are gathered"
#define NO_MOMENTS "fp32 moments and master weights, shared by the replicas unless replicated"

const spw_peer spw_peers[] = {
    {.name = "simumax",
     .title = "SimuMax",
     .source = "MooreThreads/SimuMax simumax/core (perf_llm, transformer/*) at 4dcaae51",
     .predict = spw_peer_simumax,
     .why = {NO_COPIES, "fp32 gradient buffers", NO_MOMENTS,
             "T K rows in every layer and on every rank, whatever the routing; receive buffers and exchanges "
             "hold "
             "nothing; logits in fp32"},
     .why_split =
         {"the vocabulary is a multiple of 128 x tensor there", "likewise",
          "the rest is shared by the data-parallel ranks, experts by their replicas, as here",
          "inputs of column-parallel products are gathered while they run, as here at the dense layer and "
          "the "
          "loss; experts that are shared keep expert_tensor times the rows, without fp32 on the way back"}},
    {.name = "primus",
     .title = "Primus projection, memory, simulate",
     .source = "AMD-AGI/Primus primus/core/projection at fd1eeabb",
     .predict = spw_peer_primus,
     .why = {NO_COPIES, "bf16 gradients",
             "10 bytes a parameter, all of them shared by the replicas of the experts alone",
             "T K rows without their input and output; full recompute forgets the layer at work; logits in "
             "bf16 and "
             "fp32"}},
    {.name = "megatron",
     .title = "Megatron-LM theoretical memory usage",
     .source = "NVIDIA/Megatron-LM megatron/training/theoretical_memory_usage.py at d98e8a64",
     .predict = spw_peer_megatron,
     .why = {NO_COPIES, "fp32 gradient buffers", NO_MOMENTS,
             "34 T H bytes a layer for dense layers with FFN 4 H; experts, top-k, routing and recompute are "
             "not in "
             "it; 5 % are added"},
     .why_split = {"both down projections of MLA are cut over tensor there, whole here; its vocabulary is a "
                   "multiple of 128 "
                   "x tensor",
                   "likewise", "the rest is shared by data-parallel ranks there, by data x context here",
                   "context is not in it; sequence parallelism is, with remat selective alone, when it says "
                   "18 + 4 FFN / H "
                   "over tensor without the 5 %"}},
    {.name = NULL}};

spw_status spw_peer_find(const char *name, const spw_peer **out) {
    char known[128] = "";
    for (const spw_peer *peer = spw_peers; peer->name != NULL; peer++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", peer == spw_peers ? "" : ", ", peer->name);
        *out = peer;
        if (strcmp(peer->name, name) == 0) return SPW_OK;
    }
    return spw_fail(SPW_EARG, "--as '%.40s' is unknown; use one of: %s", name, known);
}
