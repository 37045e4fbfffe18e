"""What `spillway COMMAND --help` says, taken apart: an independent source of what manual pages and completions must say."""
import collections
import re

import program as caller

Option = collections.namedtuple("Option", "letter name argument text heading")
OPTION = re.compile(r" {2,6}(?:-(\S),\s+)?--([a-z][\w-]*)(?:=(\S*))?(?: +(.*))?$")


def told(program, *words):
    done = caller.run(program, *words)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr}")
    return done.stdout


class Help:
    """Of a command without parts."""

    def __init__(self, program, name):
        head, _, examples = told(program, *name.split(), "--help").partition("\nExamples:\n")
        lines = head.splitlines()
        first = next((i for i, line in enumerate(lines) if OPTION.match(line)), len(lines))
        while first > 0 and re.fullmatch(r" [A-Z][a-z ]+:", lines[first - 1]):
            first -= 1
        self.usage, self.text = self.split_usage(lines[:first])
        last = next(i for i, line in enumerate(lines) if "--usage" in line) + 1
        self.options = list(self.options_of(lines[first:last]))
        self.more = [line for line in lines[last:] if not line.startswith("Mandatory or") and not line.startswith("for any corresponding")]
        broken = [line for line in examples.splitlines() if not line.startswith("  ") or len(line) > 79]
        if broken:
            raise RuntimeError(f"{name}: an example's line is broken: {broken}")
        rows = re.findall(r"^((?:  # .*\n)+)  (spillway .*(?:(?<=\\)\n.*)*)", examples, re.M)
        self.examples = [(" ".join(purpose.replace("  # ", "").split()).removesuffix(":"), re.sub(r" \\\n +", " ", line)) for purpose, line in rows]

    @staticmethod
    def split_usage(lines):
        """The ways to call it, each without what stands before its arguments; and what it is."""
        usage = []
        while lines and (line := re.match(r"(?:Usage:|  or: ) spillway ?(.*)", lines[0]) or re.match(r" {8,}(\S.*)", lines[0])):
            if lines[0].startswith(" " * 8):
                usage[-1] += " " + line[1]
            else:
                usage.append(line[1])
            lines = lines[1:]
        return [text.split("[OPTION...]")[-1].strip() for text in usage], lines

    @staticmethod
    def options_of(lines):
        found, heading = None, None
        for line in lines:
            head, option = re.fullmatch(r" ([A-Z][a-z ]+):", line), OPTION.match(line)
            if found and (option or head or not line):
                yield found
                found = None
            heading = head[1] if head else heading
            if option:
                found = Option(option[1], option[2], option[3], option[4] or "", heading)
            elif line and found:
                found = found._replace(text=f"{found.text} {line.strip()}".strip())
        if found:
            yield found


def commands_of(program):
    """Name -> its parts: [] of one without."""
    names = [name for name in re.findall(r"^  ([a-z-]+) ", told(program, "--help"), re.M) if name != "help"]
    return {name: re.findall(r"^  ([a-z-]+) ", told(program, name, "--help"), re.M) if name in ("trace", "calibrate", "bench") else [] for name in names}


def whole_names(program):
    return [f"{name} {part}".strip() for name, parts in commands_of(program).items() for part in parts or [""]]
