#include "sim/command/words.h"

#include <stddef.h>

const spw_word spw_words[] = {
    {"plan, search, replay, until", "the first line of an answer: model, cluster, split, and how many points "
                                    "were planned. Below it stand the fastest point and whether it fits"},
    {"point", "one scheme at one split and one batch. A plan has many, and one line or cell each"},
    {"scheme", "how a framework computes MoE layers: which rows travel, what is dropped, which tensors live "
               "(`spillway help schemes`)"},
    {"GPU, GPUs",
     "a device with memory of its own; a GPU of two dies that a program sees as two counts as two"},
    {"EP, expert parallel", "how many GPUs share the experts of a layer. Each holds the experts of its part "
                            "and receives the tokens that chose them"},
    {"FSDP, fsdp", "how many GPUs share weights, gradients and optimizer state beside EP"},
    {"PP, VPP, micro, seq",
     "pipeline stages; blocks of layers of one stage; micro-batches; sequences of one GPU in a step"},
    {"remat", "what the backward pass computes again instead of keeping it; activation recomputation"},
    {"precision", "number formats of weights, gradients, activations and of the optimizer's moments"},
    {"Adam", "the optimizer; it keeps two moments for every parameter"},
    {"model", "what of the model is not in the figures"},
    {"batch", "what a step has, where nobody said it or few would mean it"},
    {"split", "the parallel sizes, where they were worked out and not given"},
    {"routing", "which experts the tokens choose: a trace, a generator, or a stated imbalance (`spillway "
                "help routing`)"},
    {"software", "the stack whose coefficients were used, where it was fitted to another GPU"},
    {"state", "what is sharded over which GPUs"},
    {"assumed", "what nobody said and the figures rest on"},
    {"no times", "why a point has no step time"},
    {"cannot be", "combinations that were left out, and why"},
    {"oom", "out of memory: the GPU needs more than it has; the number is what it needs, in GiB"},
    {"?", "the point may not fit: the larger end of what it may take is over the budget"},
    {"*", "what must be live, a lower bound; an allocator or a compiler adds to it"},
    {"r", "what PyTorch's allocator reserves, replayed"},
    {"lasts, surely", "how uneven routing may get before memory or time runs out: by the prediction, and by "
                      "the unfavourable end of its interval"},
    {"assignment", "one choice of one token: token x expert. A batch has tokens x top_k of them"},
    {"rows, held", "assignments that a rank's experts compute, padding included. `rows max` is the largest "
                   "of all ranks, steps and layers; `max/mean` compares it with the mean"},
    {"received", "rows that arrive at a rank over an exchange, its own included: one a token where a token "
                 "travels once to a rank"},
    {"sent", "rows that leave a rank, its own included"},
    {"dispatch, combine", "the exchange that takes rows to their experts, and the one that brings them back"},
    {"dropped", "assignments that no expert computes, because a capacity, a buffer or a budget was full"},
    {"capacity factor, buffer factor",
     "slots of an expert, or rows of a receive buffer, as a multiple of what balanced routing needs"},
    {"live", "bytes of tensors that the mathematics and the framework's code need at a moment. A lower bound "
             "for every allocator"},
    {"waits",
     "what a layer keeps from its forward to its backward pass: its input, residuals and rows. PyTorch frees "
     "it layer by layer; a program of MaxText keeps the stack of all layers to the end (schemes.md, 7.9)"},
    {"argument, temporary",
     "what a compiled program is given (weights, optimizer), and the rest of what it needs"},
    {"arena", "the one block in which XLA places all temporary values of a program; its size is known before "
              "the program runs"},
    {"allocated, reserved", "what PyTorch's tensors take, rounded; and what its caching allocator has taken "
                            "from the GPU, which is what runs out"},
    {"counted", "computed from shapes alone, with no fitted figure in it"},
    {"fitted", "found by least squares on runs that the source names"},
    {"seen, left out, never looked at", "rows of a table that a fit used; that it was tried without; that "
                                        "nobody looked at while the model was built"},
    {"exact",
     "the trace has the job's ranks, tokens and layers: rows, bytes and drops are those of the trace"},
    {"folded", "blocks of the trace's ranks stand for one rank of the job, or its layers for the job's "
               "layers in turn. Nothing is drawn"},
    {"resampled", "whole sequences of the trace were drawn anew to fit the job"},
    {"evidence", "where a number comes from: datasheet, published, measured, fitted or assumed. Of a result: "
                 "exact, folded or resampled"},
    {"live fits", "what must be live, a lower bound, leaves room in the budget; what a compiler or an "
                  "allocator adds may not. Where the newest stack of the cluster says otherwise it is named"},
    {"surely fits", "the most that it may take lies within the budget: the larger end of the interval of an "
                    "arena; for what must be live with what an allocator adds at most, where that was "
                    "measured; where PyTorch's allocator was replayed, no step had to give memory back"},
    {"outside the fit", "what a prediction has that no fitted run had; its interval is wider"},
    {"interval",
     "low and high of a predicted figure; which share of runs it holds stands on the page of its model"},
    {"fits, tight, may not fit",
     "the memory that a GPU needs beside the budget; tight: the figure is "
     "within it and the larger end of its interval is not (of a lower bound: above "
     "95 % of it); may not: what it may take at most is over the budget"},
    {"fastest", "the most tokens/s of the points that fit and drop no more than `--drop-at-most`; behind it "
                "the interval, in brackets"},
    {"uneven routing", "how long the step takes under the plan's routing, in units of the step in which "
                       "every expert is chosen alike"},
    {"reference routing",
     "what a plan assumes where no routing is named: as uneven as a model late in its training (routing.md)"},
    {"balanced, real", "the same step with every expert chosen alike, and with the routing of the trace"},
    {"overload factor",
     "rows of the fullest rank of an expert-parallel group over the mean of its ranks, of one layer and "
     "micro-batch. Of a step: `max` and `average` over layers, micro-batches and groups; `cumulative`: of "
     "the rows that forward passes have left for the backward pass, at their most; `slowest_by_layer`: every "
     "layer waits for its own fullest rank (the sum over layers of the largest, over the sum of the means); "
     "`slowest_rank`: the largest of the sums over layers. The first three are Megatron-LM's "
     "`moe/max_overload_factor`, `moe/avg_overload_factor` and `moe/max_cum_overload_factor` (its option "
     "`log_moe_overload_factor`); a `moe_expert_rank_capacity_factor` of at least `max` drops nothing. "
     "`slowest_by_layer` is the one that step time follows"},
    {"MaxVio",
     "of experts, not of ranks: the most loaded over the mean, less 1 (Wang et al. 2024, Auxiliary-Loss-Free "
     "Load Balancing; DeepSeek-V3). `trace info` prints it as `max/mean`, without taking off the 1"},
    {"tensor, context, data; expert tensor, expert, fsdp",
     "the two ways in which Megatron-Core splits the GPUs of a pipeline stage, for attention and for "
     "experts; fsdp is its expert data parallelism. A tensor group shares matrices, a context group the "
     "tokens of a sequence"},
    {"sequence parallelism", "between the cut matrices each GPU of a tensor group has its part of the "
                             "sequence, and the experts' rows are those of that part"},
    {"straddle", "an expert-parallel group straddles nodes when it does not begin and end with whole nodes"},
    {"MFU", "model FLOP utilization: FLOP of the model in training, a token, times tokens/s of a GPU, over "
            "its dense bf16 peak. What remat computes again does not count"},
    {"stack, software stack", "the software that runs the job, named by `--stack`: framework, compiler and "
                              "date. What was fitted to it is one of the next three"},
    {"memory coefficients", "of a software stack whose programs XLA compiles: what its arena holds beyond "
                            "the live tensors (`sim/stacks/`, the type `spw_stack`)"},
    {"time stack", "the speeds of the same software stack: kernels, exchanges, gathers (`sim/time_stacks/`, "
                   "`--time-stack`)"},
    {"Megatron coefficients",
     "of a software stack that runs Megatron-Core: the time of its layers (`sim/megatron_stacks/`)"},
    {"bare layers", "MoE layers alone, `x + MoE(norm(x))`, one after the other, without attention, shared "
                    "experts and optimizer (`model_part: expert_layers`)"},
    {"scan, turn", "XLA runs equal layers as a loop over weights that are joined in one array with a "
                   "dimension for the layer. A turn of the loop is one layer, or several"},
    {"relaid weights", "a copy of expert weights in the order of dimensions that a kernel reads, which XLA "
                       "keeps while the kernel runs"},
    {NULL, NULL},
};
