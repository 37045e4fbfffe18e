"""What the oracles of fits share: a stack's file as a dictionary, read and written, and a quantile."""
import math
import re


def read_stack(path):
    """key -> text of a plain key, or what a coefficient's block says."""
    out = {}
    for key, word, block in re.findall(r"^(\w+):(?: (.+))?\n((?:  .+\n)*)", path.read_text(), re.M):
        out[key] = dict(re.findall(r"^  (\w+): (.+)$", block, re.M)) if block else word
    return out


def write_stack(path, stack):
    lines = []
    for key, value in stack.items():
        lines += [f"{key}:", *(f"  {k}: {v}" for k, v in value.items())] if isinstance(value, dict) else [f"{key}: {value}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def quantile(values, share):
    """Between the two that are nearest in order; of no value none."""
    if not values:
        return math.nan
    values = sorted(values)
    at = share * (len(values) - 1)
    low = min(int(at), len(values) - 1)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])
