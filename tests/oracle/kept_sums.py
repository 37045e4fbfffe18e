"""Answers kept as one sum a group, in which every number has a weight of its own: a change of any shows, and where. Tables of such sums are
short enough to stand beside their tests; --accept writes them."""
import math
import re
import sys
import zlib

WITHIN = 1e-9
WORD = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[^\W\d]+")
UNSTEADY = ("created", "version", "source_commit")


def leaves(value, path=()):
    """Of a JSON, what is neither an object nor a list, with where it stands."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in UNSTEADY:
                yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from leaves(part, (*path, str(place)))
    else:
        yield path, value


def numbers(answer):
    """Of a JSON, with where they stand; a word counts by its letters, a sentence not."""
    for path, value in leaves(answer):
        if not isinstance(value, str):
            yield path, 0.5 if value is None else float(value)
        elif " " not in value and "/" not in value:
            yield path, float(zlib.crc32(value.encode()) % 10007)


def sums(answer):
    """group -> its sum. A group is a part of a row, as memory, the rest of the rows, or a part beside them; asinh, as numbers are of all sizes."""
    groups = {}
    for path, value in numbers(answer):
        parts = [part for part in path if not part.isdigit()]
        group = ".".join(parts[:2]) if parts[:1] == ["rows"] and len(parts) > 2 else "".join(parts[:1]) if len(path) > 1 else ""
        weight = 1 + zlib.crc32(".".join(path).encode()) / 2**32
        groups[group] = groups.get(group, 0.0) + weight * math.asinh(value)
    return groups


def word_value(word, place):
    """What a number or word at that place adds to a sum."""
    value = float(word) if word[0] in "-0123456789" else 1.0 + zlib.crc32(word.encode()) % 1009
    return (1 + zlib.crc32(str(place).encode()) / 2**32) * math.asinh(value)


def word_sums(text, groups=4):
    """group -> its sum: a text's lines in so many parts of equal length."""
    lines, out = text.splitlines(), {}
    for number, line in enumerate(lines):
        for place, word in enumerate(WORD.findall(line)):
            group = f"part {number * groups // len(lines)}"
            out[group] = out.get(group, 0.0) + word_value(word, 1000 * number + place)
    return out


def compare(oracle, now, kept_at, least):
    """Writes the sums with --accept, else holds them against the table, and ends."""
    if "--accept" in sys.argv:
        kept_at.write_text(f"# of what, group, sum: {kept_at.stem}.py --accept\n" + "".join(f"{name}\t{value:.10g}\n" for name, value in now.items()))
        print(f"{len(now)} sums")
        return
    kept = {name: float(value) for line in kept_at.read_text().splitlines()[1:] for name, value in [line.rsplit("\t", 1)]}
    for name in sorted(kept.keys() | now.keys()):
        a, b = kept.get(name), now.get(name)
        oracle.check(a is not None and b is not None and abs(a - b) <= WITHIN * max(abs(a), 1.0), f"{name}: {b}, was {a}")
    oracle.finish(least)
