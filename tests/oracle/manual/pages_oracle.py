#!/usr/bin/env python3
"""Manual pages, section by section, against the help of the program: what stands in each is made anew from the help, and must be the same text
with the same marks. The running text is compared by its words, as the help breaks its lines.

pages_oracle.py SPILLWAY MADE    MADE holds what spillway-manual wrote"""
import gzip
import pathlib
import re
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]  # what rooms share
from help_text import Help, commands_of, told, whole_names
from oracle_run import Oracle

program, made = sys.argv[1], pathlib.Path(sys.argv[2])
oracle = Oracle(program, "pages_oracle")
ESCAPED = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
EXITS = ["success", "result differs from the reference", "invalid argument, or job, model or cluster cannot be used",
         "file could not be read or written, or file has wrong content, or out of memory, or no GPU, or a GPU call failed"]
ALWAYS = ("\\fB\\-?\\fR, \\fB\\-\\-help\\fR\nprint the options and end\n.TP\n\\fB\\-\\-usage\\fR\nprint the names of the options and end\n")
TOPICS = {"job": 5, "cluster": 5, "schemes": 7, "models": 7, "clusters": 7, "routing": 7, "words": 7}
KINDS = {1: "User Commands", 5: "File Formats", 7: "Miscellanea"}


def escaped(text):
    bold = iter(["\\fB", "\\fR"] * text.count("`"))
    text = "".join(next(bold) if c == "`" else ESCAPED.get(c, c) for c in text)
    return ("\\&" if text.startswith(".") else "") + text


def page_of(name, section):
    text = gzip.decompress((made / f"{name}.{section}.gz").read_bytes()).decode()
    head, *parts = re.split(r"^\.SH (.*)\n", text, flags=re.M)
    expect(name, re.fullmatch(rf"'\\\" t\n\.\\\" Made from the program's own tables: do not edit\.\n\.TH {re.escape(escaped(name.upper()))} {section} "
                              rf'"20\d\d-\d\d-\d\d" "Spillway [\d.]+" "{KINDS[section]}"\n', head), f"begins with {head}")
    return dict(zip(parts[::2], parts[1::2])), parts[::2]


def expect(name, good, what):
    oracle.check(good, f"{name}: {what}")


def same(name, section, got, want):
    expect(name, got == want, f"{section}:\n{got}\n--- {want}\nwould be right" if got is None or got != want else "")


def words(lines):
    """Of a help's running text; an entry, two blanks and "name: what", has no colon in a page."""
    return " ".join(re.sub(r"^(  \S.*?):( |$)", r"\1 ", line) for line in lines).replace("`", "").split()


def said(text):
    """Words of running text without its marks."""
    text = re.sub(r"^\.(TP|PP|br)$", "", text, flags=re.M)
    for plain, mark in ESCAPED.items():
        text = text.replace(mark, plain)
    return re.sub(r"\\f[BRI]|\\&|`", "", text).split()


def options_text(options):
    out = []
    for o in options:
        letter = f"\\fB\\-{o.letter}\\fR, " if o.letter else ""
        out.append(f".TP\n{letter}\\fB\\-\\-{escaped(o.name)}\\fR" + (f"=\\fI{escaped(o.argument)}\\fR" if o.argument else "") + f"\n{escaped(o.text)}\n")
    return "".join(out)


def see_also(name, parts, takes_job):
    references = [("spillway", 1)] if name else []
    if name == "":
        references += [(f"spillway-{other}", 1) for other in parts]
    elif parts:
        references += [(f"spillway-{name}-{part}", 1) for part in parts]
    elif " " in name:
        references.append((f"spillway-{name.split()[0]}", 1))
    references += [(f"spillway-{topic}", section) for topic, section in TOPICS.items()] if takes_job else []
    return (".nh\n.ad l\n" + "".join(f"\\fB{escaped(of)}\\fR({section}),\n" for of, section in references) +
            "and the documents in\n.IR /usr/share/doc/spillway ,\nof which docs/README.md is the index.\n")


def examples_text(examples):
    return ".PP\n".join(f"{escaped(purpose)}:\n.PP\n.RS 4\n.nh\n.ad l\n\\fB{escaped(line)}\\fR\n.ad\n.hy\n.RE\n" for purpose, line in examples)


def entries(text):
    """Of a list of a help, name -> words behind it: what stands at two blanks, and below it deeper."""
    found = []
    for line in text.splitlines():
        if row := re.match(r"  ([a-z-]+) +(\S.*)", line):
            found.append((row[1], row[2]))
    return found


def check_exits(name, sections):
    same(name, "EXIT STATUS", sections.get("EXIT STATUS"), "".join(f".TP\n.B {value}\n{escaped(text)}.\n" for value, text in enumerate(EXITS)))


def check_command(name, summary):
    helped = Help(program, name)
    page = f"spillway-{name.replace(' ', '-')}"
    sections, order = page_of(page, 1)
    wanted = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", *(["NOTES"] if words(helped.more) else []), *(["EXAMPLES"] if helped.examples else []), "EXIT STATUS", "SEE ALSO"]
    expect(name, order == wanted, f"sections {order}, {wanted} would be right")
    same(name, "NAME", sections["NAME"], f"{escaped(page)} \\- {escaped(summary)}\n")
    same(name, "SYNOPSIS", sections["SYNOPSIS"], ".br\n".join(f".B spillway {name}\n[\\fIOPTION\\fR]... {escaped(usage)}\n" for usage in helped.usage))
    options, heads = sections["OPTIONS"], re.findall(r'^\.SS "(.*)"\n', sections["OPTIONS"], re.M)
    expect(name, len(heads) == len(set(heads)) and (not heads or heads[-1] == "Help"), f"headings {heads}")
    groups = list(dict.fromkeys(o.heading for o in helped.options if o.heading))
    expect(name, not groups or [head for head in heads if head != "Help"] == groups, f"headings {heads}, {groups} in the help")
    blocks = re.sub(r'^\.SS ".*"\n', "", options, flags=re.M)
    want = options_text([o for o in helped.options if o.name not in ("help", "usage")]) + ".TP\n" + ALWAYS
    same(name, "OPTIONS", "\n".join(sorted(blocks.split(".TP\n"))), "\n".join(sorted(want.split(".TP\n"))))
    expect(name, options.endswith(ALWAYS), "ends with help and usage")
    for part in re.split(r'^\.SS ".*"\n', options, flags=re.M):
        there = re.findall(r"^\S*\\-\\-([a-z].*?)\\fR", part, re.M)
        expect(name, part.endswith(ALWAYS) or there == sorted(there, key=said), f"options in the order {there}")
    for section, lines in (("DESCRIPTION", helped.text), ("NOTES", helped.more)):
        expect(name, said(sections.get(section, "")) == words(lines), f"{section}: {said(sections.get(section, ''))}, {words(lines)} would be right")
        depth = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
        expect(name, section != "NOTES" or sections.get(section, "").count(".TP\n") == sum(d == 2 for d in depth), f"{section}: entries: {sections.get(section)}")
    if helped.examples:
        same(name, "EXAMPLES", sections["EXAMPLES"], examples_text(helped.examples))
    expect(name, sections.get("EXAMPLES", "").count(".RS 4\n") == len(helped.examples), "EXAMPLES: as many as the help has")
    check_exits(name, sections)
    same(name, "SEE ALSO", sections["SEE ALSO"], see_also(name, [], any(o.name == "job" for o in helped.options)))


def check_parts(name, rows, parts):
    """A command that has parts, or the program."""
    page = f"spillway-{name}" if name else "spillway"
    sections, _ = page_of(page, 1)
    word = "PART" if name else "COMMAND"
    same(page, "SYNOPSIS", sections["SYNOPSIS"], f".B spillway {name}\n\\fI{word}\\fR [\\fIOPTION\\fR]... \n")
    same(page, word + "S", sections[word + "S"], "".join(f".TP\n\\fB{escaped(of)}\\fR\n{escaped(what)}\n" for of, what in rows))
    expect(page, ("OPTIONS" in sections, "ENVIRONMENT" in sections) == (False, not name), f"sections {list(sections)}")
    check_exits(page, sections)
    same(page, "SEE ALSO", sections["SEE ALSO"], see_also(name, parts, not name))


def check_topic(topic, section, summary):
    page = f"spillway-{topic}"
    sections, _ = page_of(page, section)
    same(page, "NAME", sections["NAME"], f"{escaped(page)} \\- {escaped(summary)}\n")
    helped = told(program, "help", topic)
    if section == 7:
        got, want = said(sections["DESCRIPTION"]), words(helped.splitlines())
        expect(page, got == want, f"DESCRIPTION: {next((pair for pair in zip(got, want) if pair[0] != pair[1]), None)}, {len(got)} words of {len(want)}")
        return
    rows = re.findall(r"^([\w.\[\]]+): ((?:.*\n)(?: +.*\n)*)", helped, re.M)
    want = [(key, " ".join(text.split()).replace("`", "")) for key, text in rows]
    got = [(key, " ".join(said(text))) for key, text in re.findall(r"^\.TP\n\.B (\S+)\n(.*)\n", sections["KEYS"], re.M)]
    expect(page, len(want) > 8 and got == want, f"KEYS: {[pair for pair in zip(got, want) if pair[0] != pair[1]][:2]} {len(got)} {len(want)}")


def main():
    listed = told(program, "--help")
    summaries = dict(entries(listed))
    commands = commands_of(program)
    check_parts("", [(name, summaries[name]) for name in commands], list(commands))
    for name, parts in commands.items():
        rows = dict(entries(told(program, name, "--help"))) if parts else {"": summaries[name]}
        if parts:
            check_parts(name, [(part, rows[part]) for part in parts], parts)
        for part in parts or [""]:
            check_command(f"{name} {part}".strip(), rows[part])
    of_topics = dict(re.findall(r"^ {12}([a-z]+) +(\S.*)", listed, re.M))
    expect("topics", set(of_topics) == set(TOPICS), f"{of_topics}")
    for topic, section in TOPICS.items():
        check_topic(topic, section, of_topics[topic])
    expect("all", len(whole_names(program)) > 20, "commands")
    oracle.finish(300)


main()
