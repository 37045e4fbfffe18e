#!/usr/bin/env python3
"""Fails on prose that is hard to read: sentences of more than 30 words, lines of more than 120 columns, private words; and on
code and the prose of exempt files with lines of more than 140.

    python3 .ci/check_text.py [ROOT] [--all]     --all: the exempt files, too, with the number of findings of each

Prose is what stands in Markdown outside of code, tables, headings and formulas that are indented. A link counts as its text, code between
backquotes as one word. A sentence ends with . : ; ? or !, or with its paragraph or bullet."""
import pathlib
import re
import sys

MOST_WORDS, MOST_COLUMNS, MOST_ANYWHERE = 30, 120, 140
PRIVATE = {  # what no newcomer knows -> what to write
    r"cannot be:": "skipped",
    r"of old\b": "earlier",
    r"nobody speaks of": "not set",
    r"surely good\b": "certain to fit",
    r"\bwhoever trains\b": "training jobs",
    r"\bcould be written to\b": "address",
    r"\bthose that\b": "name the thing",
    r"\bthat of\b": "name the thing",
    r"\bwhat it holds\b": "its content",
    r"\bgives way to\b": "overrides",
}
# Not mended yet but for MOST_ANYWHERE. A file leaves this list when it has no findings; none joins it.
EXEMPT = """
docs/schemes.md docs/validation.md docs/validation_gpu.md docs/validation_memory.md docs/validation_time_megatron.md
""".split()


def paragraphs(text):
    """(line number, text) of every paragraph and bullet of prose; long lines apart."""
    part, start, code, long_lines = [], 0, False, []
    found = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        code = code != fence
        bullet = re.match(r"\s*([-*]|\d+\.)\s", line)
        skip = code or fence or line.lstrip().startswith(("|", "#", "!", "<")) or (line.startswith("    ") and not part)
        if len(line) > (MOST_ANYWHERE if code else MOST_COLUMNS) and (code or not skip) and not re.search(r"\S{90,}", line):
            long_lines.append((number, len(line)))
        if (skip or bullet or not line.strip()) and part:
            found.append((start, " ".join(part)))
            part = []
        if not skip and line.strip():
            start = start if part else number
            part.append(line.strip())
    return found, long_lines


def sentences(text):
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"CODE(,? (?:and |or )?CODE)+", "CODE", text)  # a list of names
    text = re.sub(r"^([-*]|\d+\.)\s+", "", text).replace("**", "")
    return [s for s in re.split(r"(?<=[.:;?!])\)?\s+", text) if s]


def count(sentence):
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def columns(what):
    """Of a finding about a line's length; 0 of another."""
    said = re.fullmatch(r"a line of (\d+) columns", what)
    return int(said[1]) if said else 0


def findings(path):
    parts, long_lines = paragraphs(path.read_text())
    for number, length in long_lines:
        yield number, f"a line of {length} columns"
    for number, text in parts:
        for sentence in sentences(text):
            if count(sentence) > MOST_WORDS:
                yield number, f"a sentence of {count(sentence)} words: {' '.join(sentence.split()[:6])} ..."
        plain = re.sub(r"`[^`]*`", "CODE", text)
        for pattern, better in PRIVATE.items():
            for match in re.finditer(pattern, plain, re.I):
                yield number, f"'{match[0]}' is private; write: {better}"


def judge_itself():
    """Text that is wrong on purpose is found, and text that is right is not."""
    def found(text):
        parts, long_lines = paragraphs(text)
        return len(long_lines) + sum(count(s) > MOST_WORDS for _, part in parts for s in sentences(part))
    good = ["of " * 30 + ".", "```\n" + "x" * 130 + " y\n```\nword.", "```\n" + "of " * 46 + "\n```",
            "| " + "word " * 40 + "|", "- " + "a. " * 35, "a `" + "c " * 40 + "` b."]
    bad = ["```\n" + "of " * 50 + "\n```", "word " * 31 + ".", ("word " * 16 + "\n") * 2, "- " + "word " * 31, "eight by. " * 13]
    return all(found(text) == 0 for text in good) and all(found(text) > 0 for text in bad)


def main():
    words = [a for a in sys.argv[1:] if a != "--all"]
    root = pathlib.Path(words[0] if words else ".")
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "python/README.md", *sorted((root / "docs").glob("*.md"))]
    bad = 0
    if not judge_itself():
        print("the checker does not find what is wrong on purpose")
        return 1
    for path in pages:
        name, found = path.relative_to(root).as_posix(), list(findings(path))
        if name in EXEMPT:
            if "--all" in sys.argv:
                print(f"{name}: {len(found)} findings, exempt")
            if not found:
                print(f"{name} has no findings: take it from the exempt files")
                bad += 1
            found = [(number, what) for number, what in found if columns(what) > MOST_ANYWHERE]
        for number, what in found:
            print(f"{name}:{number}: {what}")
        bad += len(found)
    print(f"{len(pages)} files, {len(EXEMPT)} of them exempt, {bad} findings")
    return 1 if bad or len(pages) < 30 else 0


sys.exit(main())
