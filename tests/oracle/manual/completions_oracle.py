#!/usr/bin/env python3
"""What bash and zsh offer behind every option of every command, made anew from the help: the words that an option's value may be, the endings of
files, the options that take a value and those that take none; then what is offered to whole lines that are being typed.

completions_oracle.py SPILLWAY MADE SCRATCH ROOT    MADE holds what spillway-manual wrote"""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]  # what rooms share
from help_text import Help, commands_of, told
from oracle_run import Oracle

program, made, scratch, root = sys.argv[1], *(pathlib.Path(a).resolve() for a in sys.argv[2:5])
oracle = Oracle(program, "completions_oracle")
COMMANDS = commands_of(program)
WHOLE = {f"{name} {part}".strip(): Help(program, f"{name} {part}".strip()) for name, parts in COMMANDS.items() for part in parts or [""]}
TOPICS = dict(re.findall(r"^ {12}([a-z]+) +(\S.*)", told(program, "--help"), re.M))
KEYS = {key: " ".join(text.split()) for key, text in re.findall(r"^([\w.]+): ((?:.*\n)(?: +.*\n)*)", told(program, "help", "job"), re.M)}
SCHEMES = {name: re.findall(r"^ {4}(\w+)=", text, re.M) for name, text in re.findall(r"^  ([\w-]+): .*\n((?: {3,}.*\n)*)", told(program, "help", "schemes"), re.M)}


def stems(folder, ending="yaml"):
    return {path.stem for path in (root / "sim" / folder).glob(f"*.{ending}")}


STACKS, TIMES = stems("stacks"), stems("time_stacks")
ROUTINGS = set(re.findall(r"^  ([\w-]+): ", told(program, "help", "routing").split("\nGenerators")[1], re.M))
FORMATS = set(re.findall(r"^  ([\w-]+): ", "\n".join(WHOLE["trace import"].more), re.M))
LISTS = {"model": (stems("models", "json"), "json"), "cluster": (stems("clusters"), "yaml"), "stack": (STACKS | TIMES | stems("megatron_stacks"), "yaml"),
         "from": (STACKS, "yaml"), "time-stack": (TIMES, "yaml"), "scheme": (set(SCHEMES), ""), "routing": (ROUTINGS, ""), "distribution": (ROUTINGS, "")}


def choices(option):
    """The words of a key of the job."""
    text = KEYS.get(option) or KEYS.get(f"{option}.weights") or ""
    lists = re.findall(r"(?:one of: |, of: )([\w, ]+?)(?=, or several|$)", text)
    return {word for part in lists for word in part.split(", ")}


def without_brackets(text):
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    return text


def values_of(option, argument):
    """Words, and endings of files."""
    words, endings = set(), []
    for word in without_brackets(argument).split("|"):
        new, ending = set(), ""
        if word == "NAME" and option in LISTS:
            new, ending = LISTS[option]
        elif word == "NAME":
            new = choices(option)
        elif word == "PRESET":
            new = LISTS["model"][0]
        elif word == "FORMAT":
            new = FORMATS
        elif word == "FILE" and option == "job":
            ending = "yaml"
        elif word[:1].isupper() and "." in word:
            ending = word.rsplit(".", 1)[1]
        elif word in ("DIR", "FOLDER"):
            ending = "/"
        elif word in ("FILE", "INPUT"):
            ending = "" if endings else "*"
        elif word[:1].islower():
            new = {word[:word.index("=") + 1] if "=" in word else word}
        words |= new
        endings += [ending] if ending and ending not in endings else []
    return words, endings


def arguments_of(usage):
    """What stands in a usage beside options and what they take."""
    words = re.sub(r"[\[\]]", " ", " ".join(usage)).split()
    return "|".join(word.split("...")[0] for before, word in zip(["", *words], words) if word[0] != "-" and before[:1] != "-")


def wanted(name, option):
    """Of an option, or of the command's own arguments."""
    if option is None:
        return values_of("", arguments_of(WHOLE[name].usage))
    return values_of(option.name, option.argument)


def bash(script, *words):
    done = subprocess.run(["bash", "-c", script, "bash", *map(str, words)], capture_output=True, text=True, check=False, cwd=scratch)
    oracle.check(done.returncode == 0 and not done.stderr, f"bash: {done.stderr[:400]}")
    return done.stdout


def options(name):
    return [option for option in WHOLE[name].options if option.name not in ("help", "usage")]


def check_tables():
    """What the functions of bash's file say of every command and option."""
    asked = [(name, option) for name in WHOLE for option in (*(o for o in options(name) if o.argument), None)]
    script = 'source "$1"; shift; while [ $# -gt 0 ]; do printf "%s\\n" "$(_spillway_values "$1" "$2")" "@"; shift 2; done'
    got = bash(script, made / "spillway", *(text for name, o in asked for text in (name, f"--{o.name}" if o else ""))).split("\n@\n")
    for (name, option), lines in zip(asked, got):
        words, endings = ([*lines.split("\n"), ""] if lines else ["", ""])[:2]
        want = wanted(name, option)
        oracle.check((set(words.split()), endings.split()) == want and (option is None or len(words.split()) == len(set(words.split()))),
                     f"bash, {name} {option.name if option else ''}: {words} {endings}, {want} would be right")
    for line in ("_spillway_options() { # COMMAND: its options that take a value", "_spillway_flags() { # COMMAND: its options that take none"):
        oracle.check(f"\n{line}\n" in (made / "spillway").read_text(), f"bash: no line {line}")
    script = 'source "$1"; shift; for name; do printf "%s\\n" "$(_spillway_options "$name")" "$(_spillway_flags "$name")"; done'
    got = bash(script, made / "spillway", *WHOLE).split("\n")
    for place, name in enumerate(WHOLE):
        for of, lines in ((True, got[2 * place]), (False, got[2 * place + 1])):
            want = {f"--{o.name}" for o in options(name) if bool(o.argument) == of}
            oracle.check(set(lines.split()) == want and len(lines.split()) == len(want), f"bash, {name}: {lines}, {want} would be right")
    script = 'source "$1"; shift; for name; do printf "%s\\n" "$(_spillway_scheme_keys "$name")"; done'
    for name, line in zip(SCHEMES, bash(script, made / "spillway", *SCHEMES).split("\n")):
        oracle.check(line.split() == [f"{key}=" for key in SCHEMES[name]], f"bash, {name}: {line}, {SCHEMES[name]} would be right")
    got = bash('source "$1"; for name in "" trace calibrate bench plan; do _spillway_parts "$name"; echo "@"; done; _spillway_topics', made / "spillway")
    want = [list(COMMANDS), *(COMMANDS[name] for name in ("trace", "calibrate", "bench")), [], list(TOPICS)]
    oracle.check([[w for w in part.split() if w != "help"] for part in got.split("@")] == want, f"bash, parts: {got}")


def files(endings, begins):
    """Of the folder that a line is typed in, those that end so, and folders."""
    there = [path for path in scratch.iterdir() if path.name.startswith(begins)]
    return {path.name + "/" for path in there if path.is_dir()} | {
        path.name for path in there if path.is_file() and ("*" in endings or any(path.name.endswith("." + ending) for ending in endings))}


def shown(want, begins=""):
    words, endings = want
    return {word for word in words if word.startswith(begins)} | (files(endings, begins) if endings else set())


def typed():
    """Lines, word by word as bash cuts them, and what must be offered to the last one."""
    for name, helped in WHOLE.items():
        start, own = name.split(), wanted(name, None)
        every = {f"--{o.name}" for o in helped.options}
        valued, flags = [o for o in options(name) if o.argument], [o for o in options(name) if not o.argument]
        yield [*start, ""], shown(own)
        yield [*start, "-"], every
        yield [*start, "--s"], {word for word in every if word.startswith("--s")}
        for o in flags[:2]:
            yield [*start, f"--{o.name}", ""], shown(own)
        for place, o in enumerate(valued):
            want, begins = wanted(name, o), "mcxd"[place % 4]
            line = [*start, f"--{o.name}"]
            yield [*line, begins], shown(want, begins)
            if place % 3 == 0:
                yield [*line, "="], shown(want)
                yield [*line, "=", begins], shown(want, begins)
                yield [*line, "1", ""], shown(own)
                yield [*line, "1", "--"], every
    for scheme, keys in list(SCHEMES.items())[::5]:
        yield ["plan", "--scheme", scheme, ":", ""], {f"{key}=" for key in keys}
        yield ["plan", "--scheme", "=", scheme, ":"], {f"{key}=" for key in keys}
        yield ["verify", "--random", "2", "--scheme", scheme, ":", keys[0] if keys else "x"], {f"{key}=" for key in keys if key.startswith(keys[0])}
        yield ["plan", "--scheme", scheme, ":", "a", "=", ""], set()
    yield ["help", "c"], {"calibrate", "cluster", "clusters"}
    yield ["b"], {"bench"}
    yield ["bench", ""], {*COMMANDS["bench"], "--help"}
    yield ["trace", "m"], {"merge"}
    yield ["--"], {"--help", "--version"}


def check_lines():
    lines = list(typed())
    script = ('source "$1"; compopt() { :; }; while IFS= read -r line; do eval "COMP_WORDS=($line)"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
              '_spillway; printf "%s\\n" "${COMPREPLY[@]}" "@"; done < "$2"')
    lines_file = scratch.parent / "completions_lines.txt"
    lines_file.write_text("".join(shlex.join(["spillway", *words]) + "\n" for words, _ in lines))
    got = bash(script, made / "spillway", lines_file).split("@\n")
    for (words, want), reply in zip(lines, got):
        there = [line for line in reply.split("\n") if line]
        oracle.check(set(there) == want and (words[0] == "model" or len(there) == len(set(there))), f"bash, {words}: {set(there) ^ want}")


# --- zsh ---

def quoted(text, special):
    return "".join("'\\''" if c == "'" else "\\" + c if c in special else c for c in text)


def action(what, want, words):
    """Behind an option: what it is, and what is offered."""
    head, endings = f":{quoted(what, ':[]' + chr(92))}:", want[1]
    if not endings:
        return head + (f"({words})" if words else " ")
    inside = "_files" if endings[0] == "*" else "_files -/" if endings == ["/"] else f'_files -g "*.({"|".join(e for e in endings if e != "/")})(-.)"'
    return head + "{" + (f"compadd -- {words}; " if words else "") + inside + "}"


def same_action(got, what, want):
    """Whatever the order of the words: it is that of the tables."""
    for words in re.findall(r":\(([^()]*)\)$|compadd -- ([^;]*);", got) or [("", "")]:
        there = words[0] or words[1]
        if got == action(what, want, there) and set(there.split()) == want[0]:
            return True
    return False


def check_zsh():
    text = (made / "_spillway").read_text()
    tail = (root / "sim/manual/zsh.sh").read_text()
    oracle.check(text.startswith("#compdef spillway\n") and text.endswith(tail), "zsh: its first and last lines")
    for name, helped in WHOLE.items():
        part = text.split(f"    ('{name}') _arguments \\\n")[1].split(" ;;\n")[0].split(" \\\n")
        oracle.check("'--help[print the options and end]' '--usage[print the names of the options and end]'" in part[len(options(name))], f"zsh, {name}: {part[-2:]}")
        rows = {re.match(r" +'\*--([\w-]+)", row)[1]: row.strip() for row in part[:len(options(name))]}
        for o in options(name):
            row = rows.get(o.name, "")
            head = f"'*--{o.name}{'=' if o.argument else ''}[{quoted(o.text, ':[]' + chr(92))}]"
            oracle.check(row.startswith(head), f"zsh, {name}: {row}, {head} would be right")
            rest = row[len(head):-1]
            oracle.check(same_action(rest, o.argument, wanted(name, o)) if o.argument else rest == "", f"zsh, {name} {o.name}: {rest}")
        own, last = wanted(name, None), part[len(options(name)) + 1:]
        oracle.check(bool(last) == any(own) and (not last or same_action(last[0].strip()[2:-1], "argument", own)), f"zsh, {name}: {last}, {own} would be right")
    for name, rows in (("", told(program, "--help")), *((name, told(program, name, "--help")) for name, parts in COMMANDS.items() if parts)):
        listed = [row for row in re.findall(r"^  ([a-z-]+) +(\S.*)", rows, re.M) if row[0] != "help"]
        line = re.search(rf"^    \('{name}'\) rows=\((.*)\) ;;$", text, re.M)[1]
        want = "".join(f" '{quoted(of, ':' + chr(92))}:{quoted(what, chr(92))}'" for of, what in listed)
        oracle.check(re.sub(r" 'help:.*?'", "", line) == want, f"zsh, {name}: {line}, {want} would be right")
    oracle.check("".join(f" '{topic}:{quoted(what, chr(92))}'" for topic, what in TOPICS.items()) in text, "zsh: topics")
    oracle.check("\n    (" + "|".join(name for name, parts in COMMANDS.items() if parts) + ") return 0 ;;" in text, "zsh: who has parts")


def check_zsh_lines():
    """The last lines of zsh's file, which bash reads as well: a list of words begins with one more, and these say what zsh is asked."""
    script = ('shift_words() { words=("${words[0]}" "${words[@]:1+$1}"); }; shift() { shift_words "$1"; }; _values() { echo "values ${*:2}"; }; '
              '_spillway_describe() { echo "describe $1"; }; _spillway_topics() { echo topics; }; '
              '_spillway_has_parts() { case $1 in trace|bench) true ;; *) false ;; esac; }; _spillway_arguments() { echo "arguments $* at $CURRENT of ${words[*]:1}"; }; '
              f'run() {{ words=(0 "$@"); CURRENT=$#; source {shlex.quote(str(root / "sim/manual/zsh.sh"))}; echo @; }}; ')
    cases = {("spillway", ""): "describe |values help --help --version", ("spillway", "help", ""): "describe |topics", ("spillway", "trace", ""): "describe trace",
             ("spillway", "plan", "--mo"): "arguments plan at 2 of plan --mo", ("spillway", "trace", "info", ""): "arguments trace info at 2 of info ",
             ("spillway", "bench", "plan", "a", "b"): "arguments bench plan at 3 of plan a b", ("spillway", "plan", "trace", "", ""): "arguments plan at 4 of plan trace  "}
    got = bash(script + "; ".join("run " + " ".join(shlex.quote(word) for word in words) for words in cases)).split("@\n")
    for (words, want), said in zip(cases.items(), got):
        oracle.check(said.strip("\n").replace("\n", "|") == want, f"zsh, {words}: {said}, {want} would be right")


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
for file in ("m.h5", "c.json", "m.yaml", "x.csv", "d.html", "c.so", "x.txt", "cyaml"):
    (scratch / file).touch()
(scratch / "folder").mkdir()
(scratch / "more.yaml").mkdir()
check_tables()
check_lines()
check_zsh()
check_zsh_lines()
oracle.finish(900)
