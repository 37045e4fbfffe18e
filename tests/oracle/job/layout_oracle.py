"""Layouts of pipeline stages: a parser of its own, written from docs/schemes.md, section 7.9, against the program's on random
strings, good and bad. Arguments: layout_dump, how many.
"""
import random
import subprocess
import sys


def repeated(text, group):
    """Writes repetitions out, from left to right, once: groups first, then single letters."""
    out = ""
    while text:
        inside = text[0]
        if group:
            close = text.find(")")
            inside = text[1:close] if text[0] == "(" and close > 1 else None
        rest = text[len(inside) + (2 if group else 0) :] if inside is not None else ""
        digits = len(rest[1:]) - len(rest[1:].lstrip("0123456789"))
        if inside is not None and rest.startswith("*") and digits:
            out += inside * int(rest[1 : 1 + digits])
            text = rest[1 + digits :]
        else:
            out += text[0]
            text = text[1:]
    return out


def layers_of(text):
    """[layers of each block], multi-token prediction and its block; or the word that a refusal must have."""
    flat = repeated(repeated(text.replace(",", ""), True), False)
    if set(flat) - set("EtmL|"):
        return "unknown letter"
    blocks = flat.split("|")
    order = flat.replace("|", "")
    if order.count("E") != 1 or not blocks[0].startswith("E"):
        return "times E"
    if order.count("L") != 1 or not blocks[-1].endswith("L"):
        return "times L"
    predicting = [i for i, block in enumerate(blocks) if "m" in block]
    if len(predicting) > 1 or "t" in order.partition("m")[2]:
        return "times m"
    return [len(order) - len(order.replace("m", "")), predicting[0] if predicting else 0] + [
        block.count("t") for block in blocks
    ]


def piece(draw, depth):
    kind = draw.random()
    if kind < 0.35:
        return "t"
    if kind < 0.5:
        return "|"
    if kind < 0.65:
        return draw.choice("t|") + "*" + str(draw.randrange(0, 6))
    if kind < 0.7:
        return ","
    if kind < 0.9 and depth < 2:
        inside = "".join(piece(draw, depth + 1) for _ in range(draw.randrange(0, 4)))
        return "(" + inside + ")*" + str(draw.randrange(0, 5))
    return draw.choice("ttttt|mxE*()")


def layout(draw):
    middle = "".join(piece(draw, 1) for _ in range(draw.randrange(0, 9)))
    tail = draw.choice(["L", "|L", "m|L", "|mmL", "mL", "L", "L", "", "L|"])
    return draw.choice(["E", "E", "E", "E", "Et*3|", "|E", ""]) + middle + tail


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    draw = random.Random(20)
    texts = ["Ettt|(tt|)*29,m|L", "E,t*3|,(tt|)*29L"] + [layout(draw) or "t" for _ in range(count)]
    lines = subprocess.run(
        [program], input="\n".join(texts) + "\n", capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(lines) == len(texts), (len(lines), len(texts))
    good = 0
    for text, line in zip(texts, lines):
        want = layers_of(text)
        if isinstance(want, str):
            assert line.startswith("no ") and want in line, (text, want, line)
        else:
            assert line == "ok " + " ".join(map(str, want)), (text, want, line)
            good += 1
    assert good > count // 5 and good < count, good
    print(f"{len(texts)} layouts, {good} of them good")


main()
