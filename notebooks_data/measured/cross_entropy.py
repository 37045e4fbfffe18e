#!/usr/bin/env python3
"""Makes cross_entropy.csv: the bytes of every tensor that PyTorch's allocator holds (of a CPU as its profiler reports them, of a
GPU as it counts requested bytes) from the logits of a model's head to their gradient, with the loss of Megatron-Core and of torchtitan
executed as they come. PYTHONPATH=<checkouts of Megatron-LM and torchtitan> python3 cross_entropy.py TABLE.csv cpu|cuda [LOSS [FOLDER]]
(needs torch, einops, packaging, spmd_types, tyro; `native` a C++ compiler). LOSS `te` or `te_in_place`: TransformerEngine's, for a GPU;
FOLDER has cross_entropy.py of its pytorch/, pytorch/triton/ and common/triton/ at 2.18 (2.17); without LOSS all others.

A stand-in for the head makes logits [s, b, V / processes] of bf16 from one number a token and takes their gradient back to it. With
`predictions` Megatron-Core's process_mtp_loss comes before, which makes logits and a loss of each layer of multi-token prediction.
Labels and the head's input are there before and not counted."""
import csv
import os
import sys
import types
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

warnings.filterwarnings("ignore")
# sequences, their length, vocabulary
SHAPES = [(2, 64, 4096), (1, 96, 16384), (3, 32, 1000)]
GPU_SHAPES = [(2, 2048, 32768), (1, 4096, 129280), (1, 4096, 151936)]
# loss, processes (the tensor group), layers of multi-token prediction
RUNS = [("unfused", 1, 0), ("unfused", 2, 0), ("unfused", 1, 1), ("unfused", 1, 2), ("native", 1, 0), ("native", 2, 0), ("native", 1, 1),
        ("chunked", 1, 0), ("torchtitan_unfused", 1, 0), ("te", 1, 0), ("te", 1, 1), ("te_in_place", 1, 0), ("te_in_place", 1, 1)]
CHUNKS = 8
DEVICE, ONLY = sys.argv[2], sys.argv[3:]
torch.set_default_device(DEVICE)


class Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, vocab):
        return x.expand(*x.shape[:-1], vocab).contiguous()

    @staticmethod
    def backward(ctx, grad):
        return grad[..., :1].contiguous(), None


class HeadModule(torch.nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.vocab = vocab

    def forward(self, x):
        return Head.apply(x, self.vocab)


def allocations(prof):
    found, events = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(found, key=lambda f: f[0])]


def watched(call, now=0):
    """What the call returns, the most bytes that lived in it, and those that are there behind it."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"] - now
        result = call()
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        return result, stats["requested_bytes.all.peak"] - before, stats["requested_bytes.all.current"] - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        result = call()
    most = now
    for size in allocations(prof):
        now += size
        most = max(most, now)
    return result, most, now


def megatron(loss, sequences, length, vocab, predictions):
    from megatron.core import parallel_state
    from megatron.core.models.common.language_module import language_module
    from megatron.core.transformer import multi_token_prediction
    group = parallel_state.get_tensor_model_parallel_group()
    part = vocab // dist.get_world_size(group)
    if loss.startswith("te"):
        sys.path.insert(0, ONLY[1])
        from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy
        language_module.te_parallel_cross_entropy = lambda logits, labels, group, capture: parallel_cross_entropy(
            logits, labels, 0.0, False, group, -100, capture)
    config = types.SimpleNamespace(cross_entropy_loss_fusion=loss != "unfused",
                                   cross_entropy_fusion_impl="te" if loss.startswith("te") else loss, mtp_num_layers=predictions,
                                   mtp_detach_heads=False, calculate_per_token_loss=False, mtp_loss_scaling_factor=0.1)
    module = types.SimpleNamespace(config=config, tp_group=group, pg_collection=types.SimpleNamespace(tp=group))
    loss_of = lambda labels, logits: language_module.LanguageModule.compute_language_model_loss(module, labels, logits)
    head = lambda x, **_: (Head.apply(x, part), None)
    x = torch.randn(length * (1 + predictions), sequences, 1, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(vocab, (sequences, length))

    def forward():
        hidden = x
        if predictions > 0:  # is_training False: nothing is logged
            hidden = multi_token_prediction.process_mtp_loss(
                hidden_states=x, labels=labels, loss_mask=None, output_layer=head, output_weight=None, runtime_gather_output=None,
                is_training=False, compute_language_model_loss=loss_of, config=config)
        logits, _ = head(hidden)
        return loss_of(labels, logits)
    return x, forward, lambda losses: losses.view(-1).float().sum()


def torchtitan(sequences, length, vocab):
    from torchtitan.components.loss import ChunkedLossWrapper
    wrapper = ChunkedLossWrapper.Config(num_chunks=CHUNKS).build()
    wrapper.set_lm_head(HeadModule(vocab))
    x = torch.randn(sequences * length, 1, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(vocab, (sequences * length,))
    return x, lambda: wrapper(x, labels, torch.tensor(float(sequences * length)))[0], lambda loss: loss


def torchtitan_whole(sequences, length, vocab):
    from torchtitan.components.loss import CrossEntropyLoss
    loss, head = CrossEntropyLoss.Config(global_vocab_size=vocab).build(), HeadModule(vocab)
    x = torch.randn(sequences * length, 1, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(vocab, (sequences * length,))
    return x, lambda: loss(head(x), labels, torch.tensor(float(sequences * length)))[0], lambda value: value


def run(loss, sequences, length, vocab, predictions):
    for _ in range(3):  # what is compiled, and made once, comes first
        own = {"chunked": torchtitan, "torchtitan_unfused": torchtitan_whole}.get(loss)
        of = own(sequences, length, vocab) if own else megatron(loss, sequences, length, vocab, predictions)
        x, forward, scalar = of
        losses, forward_peak, kept = watched(forward)
        _, backward_peak, left = watched(lambda: scalar(losses).backward(), kept)
        del losses, x, forward, scalar, of
    return forward_peak, kept, backward_peak


def work(rank, ranks, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo" if DEVICE == "cpu" else "nccl", rank=rank, world_size=ranks)
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(ranks)
    for loss, processes, predictions in RUNS:
        shapes = SHAPES if DEVICE == "cpu" else GPU_SHAPES
        mine = loss == ONLY[0] if ONLY else not loss.startswith("te")
        for shape in shapes if processes == ranks and mine else []:
            torch.manual_seed(0)
            torch._dynamo.reset()
            row = run(loss, *shape, predictions)
            if rank == 0:
                queue.put((DEVICE, loss, processes, predictions, *shape, *row))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with open(sys.argv[1], "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["device", "loss", "processes", "predictions", "sequences", "sequence_length", "vocabulary",
                        "forward_peak_bytes", "kept_bytes", "backward_peak_bytes"])
        queue = mp.get_context("spawn").SimpleQueue()
        for ranks in (1, 2) if DEVICE == "cpu" else (1,):
            mp.spawn(work, (ranks, 29650 + ranks, queue), ranks)
            while not queue.empty():
                table.writerow(queue.get())
