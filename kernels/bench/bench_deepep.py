"""DeepEP's dispatch and combine inside a node, at the shapes of spillway-bench-kernels dispatch and printed as it prints.

    build/kernels/spillway-bench-kernels dispatch > bench.csv
    python3 kernels/bench/bench_deepep.py [--ranks N] [--tokens 4096,1024,128] [--compare bench.csv] > deepep.csv

Needs torch, 2, 4 or 8 GPUs joined by NVLink, and deep_ep of github.com/deepseek-ai/DeepEP at v1.2.1: installed, or a folder that holds it
and its built deep_ep_cpp in PYTHONPATH. A build without NVSHMEM will do; the low-latency kernels, which need it, are left out.

One process a GPU. Every operation is tuned on its own over multiprocessors and the rows that DeepEP sends at once, then timed: the GPUs
meet, event, operation, event, over four sets of rows and routings in turn, launched ahead behind a pause; the median of the slowest GPU.
What is timed is what the operation of the same name does in spillway-bench-kernels:
    dispatch                           layout, notify and rows with their choices into a worst-case buffer; the host doesn't wait
    dispatch again                     rows alone, by the handle of a dispatch
    combine                            rows back, summed in fp32
    combine with gradients of choices  and a float a choice beside them
and has no counterpart there: the dispatch without its layout, and the dispatch into an exact buffer, for which the host waits.
Bytes are those of rows that leave a GPU, each once a destination. Before timing, on every number of multiprocessors: received rows are
the senders' in order, a cached and a worst-case dispatch bring the same, and their combine is x times the ranks that a token went to.

With --compare a last table sets the best time of spillway-bench-kernels, by name, tokens and type, beside DeepEP's.
"""
import argparse
import csv
import itertools
import os
import socket
import statistics

import torch
import torch.distributed as dist

HIDDEN, TOP_K, EXPERTS, SETS = 7168, 8, 256, 4
RUNS, WARM, TUNING_RUNS, TUNING_WARM, PAUSE_CYCLES = 24, 4, 7, 2, 1000000
MULTIPROCESSORS = (16, 24, 32, 48, 64, 96, 128)
ROOM, BUFFER_BYTES = 256, 2_000_000_000  # rows of a channel's queue; of all queues
FIELDS = ("what", "how", "ranks", "tokens", "hidden", "top_k", "experts", "dtype", "routing", "multiprocessors", "ms",
          "off_rank_megabytes", "gb_per_s", "of_all_pairs")
KEY = FIELDS[:1] + FIELDS[2:9]


class Input:
    """Rows, their fp8 form with a scale for 128 elements, and a routing; then what a dispatch of the rows brought."""

    def __init__(self, tokens, seed):
        draw = torch.Generator("cuda").manual_seed(seed)
        self.x = torch.randn(tokens, HIDDEN, dtype=torch.bfloat16, device="cuda", generator=draw)
        blocks = self.x.float().view(tokens, -1, 128)
        scale = blocks.abs().amax(2).clamp(1e-4) / 448
        self.fp8 = ((blocks / scale.unsqueeze(2)).to(torch.float8_e4m3fn).view(tokens, HIDDEN), scale)
        self.expert = torch.rand(tokens, EXPERTS, device="cuda", generator=draw).topk(TOP_K).indices
        self.weight = torch.rand(tokens, TOP_K, device="cuda", generator=draw)
        self.layout = self.handle = self.received = self.received_weight = None


def layout(buffer, one, _):
    return buffer.get_dispatch_layout(one.expert, EXPERTS)


def send(buffer, one, config, rows, placed, worst):
    to_rank, _, to_expert, in_rank, _ = placed
    return buffer.dispatch(rows, num_tokens_per_rank=to_rank, is_token_in_rank=in_rank, num_tokens_per_expert=to_expert,
                           topk_idx=one.expert, topk_weights=one.weight, config=config, num_worst_tokens=worst)


def dispatch(buffer, one, config, fp8=False):
    return send(buffer, one, config, one.fp8 if fp8 else one.x, layout(buffer, one, config), len(one.x) * buffer.group_size)


def dispatch_placed(buffer, one, config):
    return send(buffer, one, config, one.x, one.layout, len(one.x) * buffer.group_size)


def dispatch_exact(buffer, one, config):
    return send(buffer, one, config, one.x, layout(buffer, one, config), 0)


def again(buffer, one, config, fp8=False):
    return buffer.dispatch(one.fp8 if fp8 else one.x, handle=one.handle, config=config)[0]


def combine(buffer, one, config, weight=None):
    return buffer.combine(one.received, one.handle, topk_weights=weight, config=config)[0]


THERE, BACK = tuple(range(4, 33, 2)), tuple(range(1, 17))  # rows sent at once
OPERATIONS = (  # name, dtype, bytes of an element that moves, rows sent at once, call
    ("layout", "bf16", 0, (8,), layout),
    ("dispatch", "bf16", 2, THERE, dispatch),
    ("dispatch without layout", "bf16", 2, THERE, dispatch_placed),
    ("dispatch into exact buffer", "bf16", 2, THERE, dispatch_exact),
    ("dispatch again", "bf16", 2, THERE, again),
    ("dispatch", "fp8", 1, THERE, lambda b, one, config: dispatch(b, one, config, True)),
    ("dispatch again", "fp8", 1, THERE, lambda b, one, config: again(b, one, config, True)),
    ("combine", "bf16", 2, BACK, combine),
    ("combine with gradients of choices", "bf16", 2, BACK, lambda b, one, config: combine(b, one, config, one.received_weight)),
)


def prepare(buffer, inputs, config):
    """Handles hold a prefix sum a channel, so each number of multiprocessors needs its own."""
    for one in inputs:
        one.layout = layout(buffer, one, config)
        one.received, _, one.received_weight, _, one.handle, _ = dispatch_exact(buffer, one, config)


def require(good, what):
    if not good:
        raise RuntimeError(f"DeepEP's {what} on rank {dist.get_rank()}: wrong values")


def gather(tensor):
    flat = tensor.contiguous().view(torch.uint8)
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    return [part.view(tensor.dtype).view(tensor.shape) for part in parts]


def check(buffer, inputs, config):
    one, rank = inputs[0], dist.get_rank()
    last = one.handle[0][:, rank].tolist()  # behind the rows of every sender
    source = one.handle[3].long()
    to_here = [in_rank[:, rank] for in_rank in gather(one.layout[3])]
    parts = [slice(first, end) for first, end in zip([0] + last, last)]
    require(last == torch.stack([there.sum() for there in to_here]).cumsum(0).tolist(), "layout")
    require(len(one.received) == last[-1] and all(torch.equal(source[part], there.nonzero().flatten())
                                                  for part, there in zip(parts, to_here)), "order of rows")
    moved = [("dispatch", one.received, one.x), ("cached dispatch", again(buffer, one, config), one.x),
             ("worst-case dispatch", dispatch(buffer, one, config)[0], one.x)]
    for name, pair in (("fp8 dispatch", dispatch(buffer, one, config, True)[0]), ("cached fp8 dispatch", again(buffer, one, config, True))):
        moved += [(name, pair[0], one.fp8[0]), (f"scales of {name}", pair[1], one.fp8[1])]
    for name, rows, sent in moved:
        require(all(torch.equal(rows[part].float(), x[source[part]].float()) for part, x in zip(parts, gather(sent))), name)
    copies = one.layout[3].sum(1, keepdim=True)
    require(torch.equal(combine(buffer, one, config), (one.x.float() * copies).bfloat16()), "combine")


def median_ms(call, inputs, runs, warm):
    """All ranks get the same figure."""
    meeting = torch.zeros(1, device="cuda")
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(warm + runs)]
    for turn, (start, stop) in enumerate(events):
        torch.cuda._sleep(PAUSE_CYCLES)
        dist.all_reduce(meeting)
        start.record()
        call(inputs[turn % SETS])
        stop.record()
    torch.cuda.synchronize()
    times = torch.tensor([start.elapsed_time(stop) for start, stop in events[warm:]], device="cuda")
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def off_rank_rows(inputs):
    rows = sum(one.layout[3].sum() - one.layout[3][:, dist.get_rank()].sum() for one in inputs).float()
    dist.all_reduce(rows)
    return rows.item() / dist.get_world_size() / len(inputs)


def measure(buffer, config_of, tokens, all_pairs):
    ranks, best, there = dist.get_world_size(), {}, torch.cuda.get_device_properties(0).multi_processor_count
    inputs = [Input(tokens, one * 64 + dist.get_rank()) for one in range(SETS)]

    def timed(operation, processors, chunk, runs, warm):
        config = config_of(processors, chunk)
        return median_ms(lambda one: operation[4](buffer, one, config), inputs, runs, warm)

    for processors in (count for count in MULTIPROCESSORS if count <= there):
        prepare(buffer, inputs, config_of(processors, 8))
        check(buffer, inputs, config_of(processors, 8))
        for operation in OPERATIONS:
            for chunk in operation[3]:
                ms = timed(operation, processors, chunk, TUNING_RUNS, TUNING_WARM)
                best[operation] = min(best.get(operation, (ms, processors, chunk)), (ms, processors, chunk))
    for operation, (_, processors, chunk) in best.items():
        config = config_of(processors, chunk)
        prepare(buffer, inputs, config)
        check(buffer, inputs, config)
        name, dtype, element_bytes, _, _ = operation
        ms = timed(operation, processors, chunk, RUNS, WARM)
        megabytes = 1e-6 * off_rank_rows(inputs) * HIDDEN * element_bytes
        yield dict(zip(FIELDS, (name, f"deepep {chunk} rows at once", ranks, tokens, HIDDEN, TOP_K, EXPERTS, dtype, "uniform", processors,
                                f"{ms:.4f}", f"{megabytes:.2f}", f"{megabytes / ms:.1f}",
                                f"{megabytes / ms / all_pairs:.3f}" if all_pairs else "")))


def key_of(row):
    return tuple(str(row[field]) for field in KEY)


def compare(ours, theirs):
    print(f"{'operation':34} {'tokens':>6} {'dtype':5} {'MB':>7}  {'ours ms':>8} {'GB/s':>6} {'SMs':>4}  {'DeepEP ms':>9} {'GB/s':>6} "
          f"{'SMs':>4} {'at once':>7}  {'DeepEP / ours':>13}")
    for row in theirs:
        found = [mine for mine in ours if key_of(mine) == key_of(row)]
        mine = min(found, key=lambda one: float(one["ms"]), default=None)
        shown = f"{mine['ms']:>8} {mine['gb_per_s']:>6} {mine['multiprocessors']:>4}" if mine else f"{'-':>8} {'-':>6} {'-':>4}"
        ratio = f"{float(row['ms']) / float(mine['ms']):.2f}" if mine else "-"
        print(f"{row['what']:34} {row['tokens']:>6} {row['dtype']:5} {row['off_rank_megabytes']:>7}  {shown}  {row['ms']:>9} "
              f"{row['gb_per_s']:>6} {row['multiprocessors']:>4} {row['how'].split()[1]:>7}  {ratio:>13}")


def work(rank, ranks, port, token_counts, ours):
    from deep_ep import Buffer, Config

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", world_size=ranks, rank=rank,
                            device_id=torch.device("cuda", rank))
    buffer = Buffer(dist.group.WORLD, BUFFER_BYTES, 0, explicitly_destroy=True)
    all_pairs = max((float(row["gb_per_s"]) for row in ours if row["what"] == "all pairs of peer copies"), default=0)
    rows = []
    for tokens in token_counts:
        for row in measure(buffer, lambda processors, chunk: Config(processors, chunk, ROOM), tokens, all_pairs):
            rows.append(row)
            if rank == 0:
                print(",".join(str(value) for value in row.values()), flush=True)
    if rank == 0 and ours:
        compare(ours, rows)
    buffer.destroy()
    dist.barrier()
    dist.destroy_process_group()


def read_ours(path):
    with open(path, encoding="utf-8") as lines:
        rows = csv.DictReader(itertools.dropwhile(lambda line: line.rstrip() != ",".join(FIELDS), lines))  # NCCL may speak first
        if rows.fieldnames is None:
            raise ValueError(f"{path}: no header as 'spillway-bench-kernels dispatch' prints it: {','.join(FIELDS)}")
        return [row for row in rows if row["of_all_pairs"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count(), help="GPUs (default: all)")
    parser.add_argument("--tokens", default="4096,1024,128", help="tokens a rank (default: 4096,1024,128)")
    parser.add_argument("--compare", metavar="BENCH.csv", help="output of spillway-bench-kernels dispatch in the same run")
    arguments = parser.parse_args()
    if arguments.ranks not in (2, 4, 8) or arguments.ranks > torch.cuda.device_count():
        parser.error(f"{arguments.ranks} ranks on {torch.cuda.device_count()} GPUs: DeepEP runs on 2, 4 or 8, a rank each")
    try:
        import deep_ep  # noqa: F401
        tokens = [int(count) for count in arguments.tokens.split(",")]
        ours = read_ours(arguments.compare) if arguments.compare else []
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # only meetings pass through NCCL
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(",".join(FIELDS), flush=True)
    torch.multiprocessing.spawn(work, (arguments.ranks, port, tokens, ours), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
