/* torchtitan's selective activation checkpointing by operations (`remat: selective_op`, docs/schemes.md, section 7.3): a layer is a
 * checkpoint that keeps the outputs of a list of operations until it runs again, and computes the rest anew. Read in
 * pytorch/torchtitan b5bcd76c torchtitan/distributed/activation_checkpoint.py (SelectiveAC) and models/common, and in torch 2.11
 * torch/_functorch/partitioners.py (get_default_op_list) and torch/utils/checkpoint.py. */
#ifndef SPW_SIM_MEMORY_KEPT_SELECTIVE_OPS_H
#define SPW_SIM_MEMORY_KEPT_SELECTIVE_OPS_H

#include "sim/model/model.h"
#include "sim/schemes/scheme.h"

/* Bytes that a layer keeps beside its input while it waits: every second product of one row of weights a token, from the first on,
 * in the order attention, dense FFN or shared expert (w1, w3, w2); every product with a bias; attention's output and its log-sum-exp;
 * values and indices of each choice of experts. Not the router's product, the experts' grouped ones, nor, as torchtitan sends rows
 * (spmd_types), what arrives. */
double spw_selective_ops_kept(const spw_job *job, const spw_layer_shape *shape, bool experts);

/* A model of which torchtitan has the like, and whose operations were read. */
bool spw_selective_ops_are_read(const spw_model *model);

#endif
