#!/usr/bin/env python3
"""What the readers of frameworks' files make of random texts, against Python's TOML and JSON, a YAML whose values are known as it is written, and
bash, which runs the scripts: names, values and lines, value by value. Texts that are none are refused with line and reason.
entries_oracle.py ENTRIES_DUMP SCRATCH CASES"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tomllib

DUMP, SCRATCH, CASES = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "entries_oracle", int(sys.argv[3])
draw, checks, failed, wanted = random.Random(33), 0, 0, []
LETTERS = "abcdefghijklmnopqrstuvwxyzABCXYZ_0123456789"


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        if failed < 20:
            print("FAIL", what[:1200])


def word(least=1, most=9):
    return draw.choice("abcdefghijkmnpqrst") + "".join(draw.choice(LETTERS) for _ in range(draw.randrange(least, most)))


def ask(name, text, want):
    """want: {name: (value, line or None, nothing, bare, unknown)} or words of a refusal."""
    path = SCRATCH / f"{len(wanted)}{name}"
    path.write_text(text)
    wanted.append((path, text, want))


# --- Trees: TOML, YAML, JSON ---

def scalar():
    return draw.choice([lambda: draw.randrange(-5, 100000), lambda: draw.choice([True, False]), lambda: draw.randrange(1, 999) / 8, lambda: word(),
                        lambda: draw.choice(["a, b", "x # y", "it's", 'say "so"', "back\\slash", "", " blank ", "[x]", "{y}", "k = v", "k: v"])])()


def tree(depth, null):
    made = {}
    for _ in range(draw.randrange(1, 5)):
        kind = draw.random()
        key = word()
        if kind < 0.25 and depth > 0:
            made[key] = tree(depth - 1, null)
        elif kind < 0.45:
            made[key] = [draw.choice([draw.randrange(1000), word(), "a b"]) for _ in range(draw.randrange(0, 4))]
        elif kind < 0.55 and null:
            made[key] = None
        else:
            made[key] = scalar()
    return made


def text_of(value):
    return "true" if value is True else "false" if value is False else "null" if value is None else "%.17g" % value if isinstance(value, float) else str(value)


def flat(value, name=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for at, item in enumerate(value):
            yield from flat(item, f"{name}.{at}")
    elif isinstance(value, list):
        yield name, ",".join(map(text_of, value)), False
    else:
        yield name, text_of(value), value is None


def toml_string(value):
    kind = draw.random()
    if kind < 0.3 and "'" not in value and value:
        return f"'{value}'"
    quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'""{quoted}""' if kind < 0.4 and not value.endswith('"') and value else quoted


def toml_value(value, inline):
    if isinstance(value, dict):
        return "{" + draw.choice(["", " "]) + ", ".join(f"{k} = {toml_value(v, True)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        items = [toml_value(item, True) for item in value]
        if inline or draw.random() < 0.5:
            return "[" + draw.choice([", ", ","]).join(items) + "]"
        return "[" + "".join(f"\n    {item},{draw.choice(['', '  # an item, 1'])}" for item in items) + "\n]"
    if isinstance(value, str):
        return toml_string(value)
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else text_of(value)


def toml_lines(table, path, out, lines):
    """Appends to `out`; lines[name] = where its value begins."""
    later = []
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict) and draw.random() < 0.7:
            later.append((name, value))
            continue
        if draw.random() < 0.2:
            out.extend(draw.choice([["# x = 1"], [""], ["", "  # [no.section]"]]))
        for inner, *_ in flat(value, name):
            lines[inner] = sum(part.count("\n") + 1 for part in out) + 1
        out.append(f"{draw.choice(['', '  '])}{key}{draw.choice([' = ', '=', ' ='])}{toml_value(value, False)}{draw.choice(['', '', '  # so', ' '])}")
    for name, value in later:
        out.append(f"[{name}]{draw.choice(['', ' # a section'])}")
        toml_lines(value, name, out, lines)


def yaml_scalar(value):
    if value is None:
        return draw.choice(["null", "~", "None", ""])
    if not isinstance(value, str):
        return text_of(value)
    if value.isidentifier() and draw.random() < 0.7 and value not in ("None", "null"):
        return value
    return "'" + value.replace("'", "''") + "'" if draw.random() < 0.5 else json.dumps(value)


def yaml_lines(table, indent, path, out, want):
    for key, value in table.items():
        name, here = f"{path}.{key}" if path else key, len(out) + 1
        if draw.random() < 0.15:
            out.append("  # key: value")
            here += 1
        if isinstance(value, dict):
            out.append(f"{indent}{key}:")
            yaml_lines(value, indent + "  ", name, out, want)
        elif isinstance(value, list) and value and draw.random() < 0.5:
            out.append(f"{indent}{key}:")
            out.extend(f"{indent}  - {yaml_scalar(item)}" for item in value)
            want[name] = (",".join(map(text_of, value)), here + 1, False, False, False)
        elif isinstance(value, list):
            out.append(f"{indent}{key}: [{', '.join(yaml_scalar(item) for item in value)}]")
            want[name] = (",".join(map(text_of, value)), here, False, False, False)
        else:
            shown = yaml_scalar(value)
            out.append(f"{indent}{key}: {shown}")
            want[name] = (shown if value is None else text_of(value), here if shown else None, value is None, False, False)


def trees():
    for _ in range(CASES):
        made = tree(3, False)
        out, lines = [], {}
        toml_lines(made, "", out, lines)
        text = "\n".join(out) + "\n"
        ask(".toml", text, {name: (value, lines[name], False, False, False) for name, value, _ in flat(tomllib.loads(text))})
        made = tree(3, True)
        ask(".json", json.dumps(made, indent=draw.choice([None, 2])), {name: (value, 0, nothing, False, False) for name, value, nothing in flat(made)})
        made["several"] = [{"a": 1, "b": ["x", "y"]}, "alone", [[1, 2], 3]]
        ask(".json", json.dumps(made), {name: (value, 0, nothing, False, False) for name, value, nothing in flat(made)})
        out, want = [], {}
        yaml_lines(tree(3, True), "", "", out, want)
        ask(".yaml", "\n".join(out) + "\n", want)


# --- Scripts ---

def shell_value(variables):
    """A word as it is written."""
    named = draw.choice(list(variables))
    number = draw.choice([name for name, value in variables.items() if value.isdigit()])
    return draw.choice([
        lambda: str(draw.randrange(100000)), word, lambda: f"${named}", lambda: f'"${{{named}}}"', lambda: f"$(({number} * {draw.randrange(1, 9)} + 7 / 2))",
        lambda: f"$((100 - {number} + {number}*3))", lambda: f"$(( ${{{number}}} / 3 ))", lambda: f"${{{named}:-other}}", lambda: f"${{UNSET_{draw.randrange(9)}:-{word()}}}",
        lambda: f'"${{UNSET:-${{{number}}}}}"', lambda: f"'${named}'", lambda: '"a b"', lambda: f"pre${{{named}}}post", lambda: '"say \\"so\\" \\$x"', lambda: "a\\ b",
        lambda: f"'it is'{word()}", lambda: f"${{UNSET-{word()}}}", lambda: '"one # two"', lambda: "p/q.r:s,t"])()


def shell_words(variables, names, pairs):
    """Options and pairs, one a line; and which name begins on which of them."""
    lines, begins = [], []
    for _ in range(draw.randrange(1, 6)):
        name = "x_" + word(3, 12)
        if name in names:
            continue
        names.add(name)
        spelled, kind = name.replace("_", "-") if draw.random() < 0.5 else name, 0.8 * draw.random() if not pairs else 1.0
        begins.append(name)
        if kind < 0.2:
            lines.append(f"--{spelled}")
        elif kind < 0.6:
            lines.append(f"--{spelled} " + " ".join(shell_value(variables) for _ in range(draw.choice([1, 1, 1, 3]))))
        elif kind < 0.8:
            lines.append(f"--{spelled}={shell_value(variables)}")
        else:
            lines.append(f"{draw.choice(['', '+', '++'])}{name}={shell_value(variables)}")
    return lines, begins


def script():
    out, variables, names, line_of = ["#!/bin/bash", "N=4"], {"N": "4"}, set(), {}
    for i in range(draw.randrange(1, 5)):
        value = draw.choice([str(draw.randrange(1, 500)), word()])
        variables[f"V{i}"] = value
        out.append(draw.choice([f"V{i}={value}", f'V{i}="{value}"  # a comment with --no-option 3', f"V{i}='{value}'", f"V{i}=${{V{i}:-{value}}}"]))
    shown, pairs = [], draw.random() < 0.2  # both together depend on who reads them
    if draw.random() < 0.6:
        lines, begins = shell_words(variables, names, pairs)
        for at, name in enumerate(begins):
            line_of[name] = len(out) + 2 + at
        out += ["ARGS=(", *(f"    {line}" + draw.choice(["", "  # why"]) for line in lines), ")"]
        shown.append('"${ARGS[@]}"')
    if draw.random() < 0.4 and not pairs:
        name = "text_" + word(2, 5)
        line_of[name], line_of[name + "b"] = len(out) + 1, len(out) + 1
        out.append(f'TEXT="--{name} $N 5 --{name}b"')
        shown.append(draw.choice(["$TEXT", "${TEXT}"]))
    lines, begins = shell_words(variables, names, pairs)
    out.append("show train.py \\")
    for at, (name, line) in enumerate(zip(begins, lines)):
        line_of[name] = len(out) + 1
        out.append(f"    {line} \\")
    out.append("    " + " ".join(shown or ["--end_of_it"]))
    if not shown:
        line_of["end_of_it"] = len(out)
    return "\n".join(out) + "\n", line_of


def arguments(words):
    """What a program's arguments say: "--name words...", "--name=value", "name=value"."""
    found, at = {}, 0
    while at < len(words):
        word_, name = words[at], words[at].lstrip("+")
        at += 1
        if word_.startswith("--") and "=" not in word_:
            begin = at
            while at < len(words) and not (words[at].startswith("--") and words[at][2:3].isalpha()):
                at += 1
            found[word_[2:].replace("-", "_")] = (",".join(words[begin:at]) if at > begin else "true", at == begin)
        elif "=" in word_:
            name = (word_[2:] if word_.startswith("--") else name)
            found[name.split("=", 1)[0].replace("-", "_")] = (name.split("=", 1)[1], False)
    return found


def scripts():
    made = [script() for _ in range(2 * CASES)]
    lone = SCRATCH / "all.sh"
    lone.write_text("show() { printf '%s\\0' \"$@\"; printf 'END\\0'; }\n" + "".join(f"(\n{text})\n" for text, _ in made))
    said = subprocess.run(["bash", "--norc", str(lone)], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    runs = said.split("END\0")[:-1]
    check(len(runs) == len(made), f"bash ran {len(runs)} of {len(made)} scripts")
    for (text, line_of), run in zip(made, runs):
        want = {name: (value, line_of.get(name), False, bare, False) for name, (value, bare) in arguments(run.split("\0")[:-1]).items()}
        ask(".sh", text, want)


REFUSED = [(".toml", "a = 1\n[b\nc = 2\n", ":2: not TOML (']' is missing)"), (".toml", "[[a]\nx = 1\n", "']' is missing"), (".toml", "a = [1, 2\n", "an array without an end"),
           (".toml", 'x = 1\na = "b\n', ":2: not TOML (a string without an end)"), (".toml", "a =\n", "a value is missing"), (".toml", "a 1\n", "'=' is missing"),
           (".toml", 'a = "b" c\n', "something behind the value"), (".toml", "a = " + 40 * "[" + "1" + 40 * "]" + "\n", "nested too deep"),
           (".toml", "a = " + 40 * "{a = " + "1" + 40 * "}" + "\n", "nested too deep"), (".json", 200 * '{"a":' + "1" + 200 * "}", "nested deeper than"),
           (".json", "[1]", "not a JSON object"), (".json", '{"a": 1,\n "a": 2}', "not JSON"), (".yaml", "a: [1, 2\n", ":"), (".yaml", "? [a, b]\n: 1\n", ":1: a key is no plain word"),
           (".sh", "train.py --" + 300 * "x" + " 1\n", ":1: a name or a value of more than"), (".sh", "train.py \\\n --a " + 33000 * "1" + "\n", ":2: a word of more than"),
           (".sh", "train.py --a " + 1500 * "1 " + "\n", "a command of more than")]


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    trees()
    scripts()
    for name, text, why in REFUSED:
        ask(name, text, why)
    said = subprocess.run([DUMP], input="".join(f"{path}\n" for path, *_ in wanted), capture_output=True, text=True, check=True).stdout.splitlines()
    check(len(said) == len(wanted), f"{len(said)} answers of {len(wanted)}")
    for (path, text, want), line in zip(wanted, said):
        got = json.loads(line)
        if isinstance(want, str) or isinstance(got, str):
            check(isinstance(want, str) and isinstance(got, str) and want in got and str(path) in got, f"{path.name}: {got}\nwanted {want} of\n{text[:600]}")
            continue
        entries = {name: tuple(rest) for name, *rest in got}
        check(len(entries) == len(got) and entries.keys() == want.keys(), f"{path.name}: names {entries.keys() ^ want.keys()} of\n{text}")
        for name in entries.keys() & want.keys():
            value, where, *flags = want[name]
            check((entries[name][0], list(map(bool, entries[name][2:]))) == (value, flags), f"{path.name}: {name}: {entries[name]}, not {want[name]} in\n{text}")
            check(where is None or entries[name][1] == where, f"{path.name}: {name} is in line {where}, not {entries[name][1]}, of\n{text}")
    print(f"entries_oracle: {checks} checks, {failed} failed")
    sys.exit(1 if failed or checks < 20 * CASES else 0)


main()
