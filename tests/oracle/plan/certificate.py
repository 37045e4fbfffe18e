"""Which points of a search keep to its budgets, and whether its certificate holds for every single one."""
DAY_S = 86400.0
COMPILED = ["dense:capacity_factor=1.25", "dense:capacity_factor=1", "dense:capacity_factor=4", "gmm", "gmm-deepep",
            "ring", "ragged"]


def speed(row):
    return row["time"]["tokens_per_s_per_gpu"] or 0.0


def is_timed(row):
    return row["time"]["step_s"] is not None


def step_tokens(case, point):
    """Of all GPUs. The batch is of the GPUs of one stage, but of every device where a pipeline of MaxText says no micro-batches; GPUs
    that cut a sequence share it."""
    _, value, row = point
    devices = row["scheme"] in COMPILED and value["micro-batches"] == 1
    shared = value["tensor"] * value["context"] * (1 if devices else value["pipeline"])
    return row["sequences_per_gpu"] * case["length"] * value["gpus"] // shared


def keeps(case, point):
    """To every budget."""
    _, value, row = point
    if case["step_tokens"] is not None and step_tokens(case, point) > case["step_tokens"]:
        return False
    if row["memory"]["max_bytes"] > row["memory"]["budget_bytes"] or row["memory"]["verdict"] == "oom":  # live, or what is reserved
        return False
    drops = row["drops"]
    some = drops["dropped"] > 0 or drops.get("at_least", False)  # at least: of a stated imbalance
    if drops["fraction"] > case["drops"] / 100 or (case["drops"] == 0 and some):
        return False
    return case["per_day"] is None or speed(row) * value["gpus"] * DAY_S >= case["per_day"]


def check_certificate(check, name, case, found, rows):
    """What the certificate says of the points that were left out, against every single point: as many as are said need so much memory, and
    as many of those that fit make no more than is said; none that keeps to the budgets is faster than all may be."""
    proof = found["certificate"]
    memory, beaten, slow = (proof[k] for k in ("left_out_for_memory", "beaten", "too_slow"))
    fates = found["fates"]
    check(proof["complete"] and proof["not_looked_at"]["points"] == 0, f"{name}: a whole search is not complete: {proof}")
    check(memory["points"] == fates["state_too_large"] + fates["memory_too_large"] and beaten["points"] == fates["beaten"] and
          slow["points"] == fates["too_slow"], f"{name}: {proof} beside {fates}")
    over = [row["memory"]["max_bytes"] for _, _, row in rows if row["memory"]["max_bytes"] > row["memory"]["budget_bytes"]]
    if memory["points"]:
        check(memory["least_bytes"] > memory["budget_bytes"], f"{name}: left out for memory that fits: {memory}")
        check(sum(b >= memory["least_bytes"] for b in over) >= memory["points"],
              f"{name}: {memory}, of {len(over)} that do not fit {sorted(over)[:3]} are the least")
    good = [p for p in rows if keeps(case, p) and is_timed(p[2])]
    most = proof["tokens_per_s_per_gpu_at_most"]
    if good and most:
        fastest = max(speed(p[2]) for p in good)
        check(fastest <= most * (1 + 1e-9), f"{name}: at most {most}, a point makes {fastest}")
        check(case["per_day"] or proof["gap"] is not None and abs(proof["gap"]) < 1e-6, f"{name}: a gap of {proof['gap']}")
    if most and beaten["tokens_per_s_per_gpu_at_most"]:
        limit = beaten["tokens_per_s_per_gpu_at_most"] * (1 + 1e-6)
        check(limit <= most * (1 + 2e-6), f"{name}: beaten {beaten} is faster than all: {most}")
        slower = [p for p in rows if is_timed(p[2]) and speed(p[2]) <= limit]
        check(len(slower) >= beaten["points"], f"{name}: {beaten}, and {len(slower)} are no faster")
    if slow["points"]:
        check(all(speed(p[2]) * p[1]["gpus"] * DAY_S < case["per_day"] for p in rows if not keeps(case, p) and keeps({**case, "per_day": None}, p)),
              f"{name}: too slow that is fast enough")
