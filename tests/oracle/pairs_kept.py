#!/usr/bin/env python3
"""Answers to questions in which every two features meet are as they were: one row a question, against pairs_kept/PART.tsv. A question takes one
value of every axis of a table (pair_tables.py, pair_more.py, pair_traces.py), and each two values of two axes stand together in one at least.
It proves nothing right; it shows which answers a change reaches.

pairs_kept.py SPILLWAY SCRATCH ROOT PART [--few]        --few: each eighth question
pairs_kept.py SPILLWAY SCRATCH ROOT PART --accept       writes the answers of the same questions anew
pairs_kept.py SPILLWAY SCRATCH ROOT PART --draw [TABLE...]    draws them anew, of these tables or all, as another axis or value needs
pairs_kept.py SPILLWAY SCRATCH ROOT PART --show TABLE:CODE    prints what is said to one question

A drawn question is one that is answered: where it is refused, what does not go together in it is looked for, and that alone is kept as a
question, a refusal."""
import collections
import dataclasses
import itertools
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import sys

import pair_more
import pair_tables
import pair_traces
import program as caller
from kept_sums import WITHIN, WORD, leaves, word_value

program, root, part = sys.argv[1], pathlib.Path(sys.argv[3]).resolve(), sys.argv[4]
folder = pathlib.Path(sys.argv[2]).resolve() / f"pairs_kept_{part}"
table_file = root / "tests/oracle/pairs_kept" / f"{part}.tsv"
TABLES = {table.name: table for table in (*pair_tables.TABLES, *pair_traces.TABLES, *pair_more.TABLES) if table.part == part}
PLACES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
os.environ["OMP_NUM_THREADS"] = "1"  # short questions, whose threads would wait for each other
os.environ["COLUMNS"] = "120"


def words_of(table, code):
    """The command of a question: of each axis the words of one value."""
    return shlex.split(" ".join(values[PLACES.index(letter)] for values, letter in zip(table.axes.values(), code)))


def figures(answer):
    """Of a JSON, each number and each word, sentences' too, with where it stands."""
    for path, value in leaves(answer):
        where = "".join(f".{part}" for part in path)
        if isinstance(value, str):
            yield from ((f"{where}.{place}", word) for place, word in enumerate(WORD.findall(scrubbed(value))))
        else:
            yield where, "null" if value is None else repr(float(value)) if math.isfinite(value) else str(value)


def scrubbed(text):
    """Without what differs between machines and days."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "", text.replace(str(folder), "").replace(str(root), ""))


def ask(table, code):
    """How it ends, and the sums of what is said: of memory, of times, of the rest."""
    for made in table.makes:
        (folder / made).unlink(missing_ok=True)
    done = caller.run(program, *words_of(table, code), cwd=folder)
    sums = [0.0, 0.0, 0.0]
    try:
        said = list(figures(json.loads(done.stdout)))
    except ValueError:
        said = list(enumerate(WORD.findall(scrubbed(done.stdout))))
    said += [(f"error {place}", word) for place, word in enumerate(WORD.findall(scrubbed(done.stderr)))]
    for place, word in said:
        group = 0 if re.search("memory|bytes", str(place)) else 1 if re.search("time|second|_s|per_s", str(place)) else 2
        sums[group] += word_value(word, place)
    for made in table.makes:
        if (folder / made).exists():
            sums[0] += pair_traces.sum_of_file(folder / made)
    return done.returncode, sums, done


class Draw:
    """Questions of a table in which each pair of values stands that can stand together."""

    def __init__(self, table):
        self.rng = random.Random(table.name)
        self.quick = dataclasses.replace(table, axes={axis: [table.quick[axis]] * len(values) if axis in table.quick else values
                                                      for axis, values in table.axes.items()})
        self.sizes, self.asked, self.conflicts, self.helpers = [len(values) for values in table.axes.values()], {}, [], {}
        for _ in range(2):  # what helps may need help itself
            self.find_helpers()

    def find_helpers(self):
        """For each value that is refused beside the first ones of all others, another one with which it is answered."""
        singles = [(axis, value) for axis, size in enumerate(self.sizes) for value in range(1, size)]
        for one in singles:
            if one not in self.helpers and not self.answered(dict([one])):
                found = next((other for other in singles if other[0] != one[0] and self.answered(dict([one, other]))), None)
                if found:
                    self.helpers[one] = found

    def whole(self, chosen):
        """With what these need; the others have their first."""
        row, todo = dict(chosen), list(chosen.items())
        for item in todo:
            helper = self.helpers.get(item)
            if helper and helper[0] not in row:
                row[helper[0]] = helper[1]
                todo.append(helper)
        return tuple(row.get(axis, 0) for axis in range(len(self.sizes)))

    def answered(self, chosen):
        """chosen: axis -> value."""
        row = self.whole(chosen)
        if row not in self.asked:
            self.asked[row] = ask(self.quick, "".join(PLACES[value] for value in row))[0] <= 1
        return self.asked[row]

    def clashes(self, chosen):
        return any(conflict.items() <= chosen.items() for conflict in self.conflicts)

    def conflict_of(self, items):
        """The fewest of these that are refused together, by halving: what is refused stays so beside more."""
        core = {}
        while self.answered(core):
            low, high = 0, len(items)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if not self.answered({**core, **dict(items[:middle])}) else (middle, high)
            if dict([items[high - 1]]).items() <= core.items():
                return None
            core.update([items[high - 1]])
            items = items[:high - 1]
            if not items and self.answered(core):
                return None
        return core

    def filled(self, chosen, open_pairs):
        """With a value of every axis: those with which most open pairs are met."""
        chosen, axes = dict(chosen), [axis for axis in range(len(self.sizes)) if axis not in chosen]
        self.rng.shuffle(axes)
        for axis in axes:
            def gain(value, axis=axis):
                return sum(pair_of((axis, value), item) in open_pairs for item in chosen.items())
            values = sorted(range(self.sizes[axis]), key=lambda value: (-gain(value), self.rng.random()))
            chosen[axis] = next((value for value in values if not self.clashes({**chosen, axis: value})), 0)
        return chosen

    def mended(self, pair, chosen):
        """With other values in the place of those that are refused beside the pair; the pair alone where there is no end of it."""
        for _ in range(40):
            if self.answered(chosen):
                return chosen
            core = self.conflict_of([*pair, *(item for item in chosen.items() if item not in pair)])
            loose = [axis for axis in core or () if axis not in dict(pair)]
            if core and not self.clashes(core):
                self.conflicts.append(core)
            if not loose:
                break
            axis = loose[0]
            chosen[axis] = next((value for value in range(self.sizes[axis]) if not self.clashes({**chosen, axis: value})), 0)
        return dict(enumerate(self.whole(dict(pair))))

    def rows(self):
        axes = range(len(self.sizes))
        open_pairs = {((a, x), (b, y)) for a, b in itertools.combinations(axes, 2) for x in range(self.sizes[a]) for y in range(self.sizes[b])}
        good = []
        for pair in sorted(open_pairs, key=lambda pair: self.rng.random()):
            if pair not in open_pairs:
                continue
            if self.clashes(dict(pair)) or not self.answered(dict(pair)):
                if not self.clashes(dict(pair)):
                    self.conflicts.append(self.conflict_of(list(pair)) or dict(pair))
                open_pairs.discard(pair)
                continue
            chosen = self.mended(pair, self.filled(dict(pair), open_pairs))
            good.append(tuple(chosen[axis] for axis in axes))
            open_pairs -= set(itertools.combinations(enumerate(good[-1]), 2))
        refused = [self.whole(conflict) for conflict in self.conflicts]
        self.rng.shuffle(refused)
        for row in dict.fromkeys((*good, *refused[:len(good) // 3])):
            yield "".join(PLACES[value] for value in row)


def pair_of(one, other):
    return (one, other) if one < other else (other, one)


def main():
    shutil.rmtree(folder, ignore_errors=True)  # traces that another program made
    folder.mkdir(parents=True)
    (folder / "root").symlink_to(root)
    for table in TABLES.values():
        table.prepare(program, folder, root)
    if "--show" in sys.argv:
        name, code = sys.argv[sys.argv.index("--show") + 1].split(":")
        done = ask(TABLES[name], code)[2]
        sys.exit(f"{shlex.join(done.args)}\n{done.stdout}{done.stderr}")
    rows = {}
    if table_file.exists():
        for name, code, *kept in [line.split("\t") for line in table_file.read_text().splitlines()[1:]]:
            rows[name, code] = list(map(float, kept))
    if "--draw" in sys.argv:
        anew = sys.argv[sys.argv.index("--draw") + 1:] or list(TABLES)
        rows = {key: kept for key, kept in rows.items() if key[0] in TABLES and key[0] not in anew}
        for name in anew:
            draw = Draw(TABLES[name])
            rows.update(((name, code), None) for code in draw.rows())
            table = TABLES[name]
            print(name, sum(key[0] == name for key in rows), "rows,", len(draw.asked), "asked; alone refused:",
                  [list(table.axes.values())[a][v] for c in draw.conflicts if len(c) == 1 for a, v in c.items()], flush=True)
    if "--few" in sys.argv:
        rows = dict(itertools.islice(rows.items(), None, None, 8))
    now = {key: (status, *sums) for key in rows for status, sums, _ in [ask(TABLES[key[0]], key[1])]}
    ends = collections.Counter(status for status, *_ in now.values())
    print(f"pairs_kept {part}: {len(now)} questions; they end with {dict(sorted(ends.items()))}")
    if "--accept" in sys.argv or "--draw" in sys.argv:
        table_file.parent.mkdir(exist_ok=True)
        table_file.write_text(f"# table, question, how it ends, sums: pairs_kept.py {part} --accept\n" + "".join(
            "\t".join([*key, *(f"{value:.12g}" for value in answer)]) + "\n" for key, answer in now.items()))
        return
    off = [key for key, kept in rows.items() if any(abs(a - b) > WITHIN * max(abs(a), 1.0) for a, b in zip(kept, now[key]))]
    for name, code in off[:12]:
        print(f"pairs_kept {part} {name}:{code}: {now[name, code]}, was {rows[name, code]}:\n"
              f"  cd {folder} && {shlex.join([os.path.abspath(program), *words_of(TABLES[name], code)])}")
    print(f"pairs_kept {part}: {len(off)} of {len(rows)} differ")
    sys.exit(1 if off or sum(ends[code] for code in (0, 1)) < 0.6 * len(rows) else 0)


main()
