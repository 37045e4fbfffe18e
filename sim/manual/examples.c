#include "sim/manual/examples.h"

#include <stddef.h>

#define JOB "--model olmoe-1b-7b --cluster h200:1x8 --sequence-length 1024 --sequences-per-gpu 4"

const spw_example spw_examples[] = {
    {"trace generate",
     "Make a trace for 64 experts and 8 ranks whose popular experts get more than their share:",
     "spillway trace generate trace.h5 --experts 64 --layers 2 --steps 4 --ranks 8 --tokens-per-rank 4096 "
     "--distribution lognormal:sigma=0.5"},
    {"trace info", "See how balanced its routing is:", "spillway trace info trace.h5"},
    {"trace verify", "Check that its content can be true:", "spillway trace verify trace.h5"},
    {"trace slice", "Keep the last two of its steps:", "spillway trace slice trace.h5 late.h5 --steps 2:4"},
    {"replay", "Compare three schemes under that routing, and keep the numbers:",
     "spillway replay trace.h5 " JOB
     " --scheme dense:capacity_factor=1.25 --scheme gmm --scheme megatron-alltoall --output result.h5"},
    {"replay", "Find the largest batch that fits in every step:",
     "spillway replay trace.h5 " JOB " --scheme gmm --fits-at 100"},
    {"report", "Make a page of what the replay wrote, for whoever books the GPUs:",
     "spillway report result.h5 --output report.html"},
    {"plan", "Ask for the best split, pipeline, batch and scheme without a file:",
     "spillway plan --search --model olmoe-1b-7b --cluster h200:1x8 --sequence-length 4096"},
    {"plan", "See what fits, and what training on 300 billion tokens takes and costs:",
     "spillway plan --model deepseek-v3 --cluster mi355x-8x8 --sequence-length 4096 --sequences-per-gpu 1,2 "
     "--scheme gmm --scheme gmm-deepep --tokens 300B --price 2.5"},
    {"plan", "Plan what you have: a framework's own configuration, and back into one:",
     "spillway plan --from train.sh --cluster h100:8x16 --flags megatron"},
    {"job", "See what a framework's configuration becomes, and what of it has no counterpart:",
     "spillway job train.sh --cluster h100:8x16"},
    {"explain", "Take the peak of one GPU apart:", "spillway explain " JOB " --scheme gmm"},
    {"model", "See what a model is made of:", "spillway model deepseek-v3"},
    {"verify", "Hold the simulator against the reference that executes:", "spillway verify --random 4"},
    {NULL, NULL, NULL},
};
