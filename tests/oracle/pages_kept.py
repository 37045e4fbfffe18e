#!/usr/bin/env python3
"""Pages of six answers that stand in pages_kept/, so that only what makes pages changes them: a sum a kind of mark in a section, and of its
texts, in which every number and word has a weight by its place, against pages_kept.tsv. What the numbers mean is held by report_oracle.

pages_kept.py SPILLWAY SCRATCH ROOT [--accept]"""
import gzip
import html.parser
import pathlib
import re
import sys

from kept_sums import WORD, compare, word_value
from oracle_run import Oracle

program, folder, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "pages_kept", pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "pages_kept")
PAGES = {"plan": ["plan.json"], "plan drops": ["plan.json", "--drop-at-most", "60"], "megatron": ["megatron.json"], "search": ["search.json"],
         "replay": ["replay.h5"], "allocator": ["allocator.h5"], "stages": ["stages.h5"], "plan beside": ["megatron.json", "--replay", "stages.h5"],
         "two plans": ["plan.json", "megatron.json"], "two searches": ["search.json", "plan.json"], "two replays": ["replay.h5", "allocator.h5"]}


class Sums(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.sums, self.counts, self.head, self.open, self.in_head = {}, {}, "", [], False
        self.feed(text)

    def add(self, group, text):
        for word in WORD.findall(text):
            place = self.counts[group] = self.counts.get(group, 0) + 1
            self.sums[group] = self.sums.get(group, 0.0) + word_value(word, place)

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.in_head = self.in_head or tag == "h2"
        if tag == "h2":
            self.head = ""
        for _, value in attributes:
            self.add(f"{self.head}\t{tag}", value or "")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        self.in_head = self.in_head and tag != "h2"
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        tag = self.open[-1] if self.open else ""
        if tag == "style":
            return
        if self.in_head:
            self.head += data.strip()[:40]
        self.add(f"{self.head}\ttexts", data)


def main():
    now = {}
    for path in (root / "tests/oracle/pages_kept").glob("*.gz"):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for name, words in PAGES.items():
        page = folder / "page.html"
        oracle.must("report", *[folder / word if "." in word else word for word in words], "--output", page)
        text = re.sub(r"spillway \d+\.\d+\.\d+", "", page.read_text().replace(str(folder) + "/", ""))
        now.update((f"{name}\t{group}", value) for group, value in Sums(text).sums.items())
    compare(oracle, now, root / "tests/oracle/pages_kept.tsv", 300)


main()
