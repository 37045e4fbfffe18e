#!/usr/bin/env python3
"""The documents against the program and the tree: every scheme with its options in docs/schemes.md, every key in docs/keys.md, every
section that the program names, every relative link, every path in backticks, every table of notebooks_data.

docs_are_true.py SPILLWAY ROOT [--accept]; --accept writes the rows of docs/keys.md."""
import fnmatch
import pathlib
import re
import sys

import program as caller

program, root, accept = sys.argv[1], pathlib.Path(sys.argv[2]), "--accept" in sys.argv
bad = checks = 0


def check(holds, message):
    global bad, checks
    checks += 1
    if not holds:
        bad += 1
        print(message)


def refusal(scheme):
    """What the program says of a scheme or an option that it does not know: it names those that it does."""
    job = root / "sim/jobs/deepseek-v3-mi355x.yaml"
    run = caller.call([program, "explain", "--job", job, "--scheme", scheme], capture_output=True, text=True)
    check(run.returncode == 2, f"explain --scheme {scheme}: exit status {run.returncode}")
    return run.stderr


def after(text, words):
    return text.split(words, 1)[1].strip().split(", ") if words in text else []


texts = {path: path.read_text() for path in sorted([*root.glob("*.md"), *(root / "docs").glob("*.md"),
                                                    *(root / "notebooks_data").rglob("*.md")])}
catalogue = texts[root / "docs/schemes.md"]
glance = catalogue.split("## The schemes and their options")[1].split("\n## ")[0]

# Schemes: a row at the top of docs/schemes.md with all options, a section and a row of section 10.
rows = {match[1]: match[0] for match in re.finditer(r"^\| `([\w-]+)[^\n]*", glance, re.M)}
sections = {match[1]: match[0].lower() for match in
            re.finditer(r"^(?:##+ |- \*\*)(\d+(?:\.\d+)?)[. ][^\n]*", catalogue, re.M)}
page = catalogue.split("## 10. Every scheme on one page")[1].split("\n\n| scheme | exchanges")[0]
schemes = after(refusal("no-such-scheme"), "known schemes: ")
check(len(schemes) > 1, "the program names no schemes")
for scheme in schemes:
    check(scheme in rows, f"docs/schemes.md: no row for the scheme {scheme}")
    check(any(re.search(rf"(?<![\w-]){scheme}(?![\w-])", line) for line in sections.values()),
          f"docs/schemes.md: no section for the scheme {scheme}")
    check(re.search(rf"^\| ([\w-]+, )*{scheme}(, [\w-]+)* \|", page, re.M), f"docs/schemes.md: {scheme} is not in section 10")
    for option in after(refusal(f"{scheme}:no_such_option=1"), "with one of: "):
        check(option + "=" in rows.get(scheme, ""), f"docs/schemes.md: the row of {scheme} lacks its option {option}")
for scheme in rows:
    check(scheme in schemes, f"docs/schemes.md: {scheme} is no scheme")

# Keys: docs/keys.md has the rows of the tables by which jobs and clusters are read, in their order, with their words, and no other.
keys = texts[root / "docs/keys.md"]
listed, tables_of_keys = set(), re.findall(r"(?<=\|---\|---\|---\|---\|\n)(?:\| `.*\n)+", keys)
check(len(tables_of_keys) == 2, "docs/keys.md has not two tables")
for topic, table in zip(("job", "cluster"), tables_of_keys):
    wanted = ""
    told = caller.call([program, "help", topic], capture_output=True, text=True).stdout
    check(max(map(len, told.splitlines())) <= 100, f"spillway help {topic}: a line of more than 100 characters")
    for line in re.sub(r"\n +", " ", told).splitlines():
        key, what, default, takes = re.fullmatch(r"([\w.]+): (.*); (required|default: [^;]*); ([^;]*)", line).groups()
        wanted += f"| `{key}` | {what} | {takes} | {default.removeprefix('default: ')} |\n"
        listed.add(key)
    if accept:
        keys = keys.replace(table, wanted)
    apart = set(table.splitlines()) ^ set(wanted.splitlines())
    check(accept or table == wanted, f"docs/keys.md has not the rows of help {topic}, in their order; apart: {sorted(apart)}; --accept writes them")
if accept:
    (root / "docs/keys.md").write_text(keys)
check(len(listed) > 40, "the program lists its keys")
for preset in (*(root / "sim/models").glob("*.json"), *(root / "sim/clusters").glob("*.yaml")):
    check(f"`{preset.stem}`" in keys, f"docs/keys.md: the preset {preset.stem} is not named")

# Lists of the help: every name of the tree, once. The glossary is `help words` as a table.
def entries(topic):
    told = caller.call([program, "help", topic], capture_output=True, text=True)
    check(told.returncode == 0 and not told.stderr, f"help {topic}: {told.returncode} {told.stderr}")
    return re.findall(r"^  ([^ :][^:\n]*): (.*(?:\n    .*)*)", told.stdout, re.M)


for topic, wanted in (("models", sorted(path.stem for path in (root / "sim/models").glob("*.json"))), ("schemes", schemes),
                      ("clusters", sorted(path.stem for path in (root / "sim/clusters").glob("*.yaml")))):
    check(sorted(name for name, _ in entries(topic)) == sorted(wanted), f"help {topic} lists {[name for name, _ in entries(topic)]}, not {wanted}")
told = caller.call([program, "trace", "generate", "x.h5", "--distribution", "none-such"], capture_output=True, text=True).stderr
named = set(re.split(", | or ", told.split("must be ")[-1].split(" or megatron-w0")[0]))
made = {name for name, _ in entries("routing") if not name.startswith("--")}
check(named == {name for name in made if not name.startswith("megatron-")} and len(named) > 10 and
      {f"megatron-w{i}" for i in (0, 7)} <= made, f"help routing lists {sorted(made)}, the refusal {told}")
glossary = texts[root / "docs/glossary.md"]
words = [(word, " ".join(meaning.split())) for word, meaning in entries("words")]
table = re.findall(r"^\| (.*?) \| (.*) \|$", glossary.split("|---|---|\n")[-1], re.M)
plain_table = [(word, re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).replace("`", "").replace("\\|", "|")) for word, meaning in table]
if accept:
    rows = "".join(f"| {word} | {meaning} |\n" for word, meaning in re.findall(
        r'^ +\{"((?:[^"\\]|\\.)*)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\},', (root / "sim/command/words.c").read_text(), re.M)
        for meaning in ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', meaning)).replace('\\"', '"').replace("|", "\\|")])
    (root / "docs/glossary.md").write_text(glossary.split("|---|---|\n")[0] + "|---|---|\n" + rows)
check(accept or plain_table == words, f"docs/glossary.md is not help words; apart: {sorted(set(plain_table) ^ set(words))[:2]}; --accept writes it")
check(len(words) > 30, f"help words has {len(words)} words")

# The index names every document; README.md is short.
for page in (root / "docs").glob("*.md"):
    check(page.name == "README.md" or f"]({page.name})" in texts[root / "docs/README.md"], f"docs/README.md: {page.name} is not in the index")
check(texts[root / "README.md"].count("\n") <= 100, "README.md has more than 100 lines")
# Its decision is what the program says now, but for lines that are left out.
asked, told = re.search(r"## A decision.*?```sh\n\./run spillway (.*?)```\n```\n(.*?)```", texts[root / "README.md"], re.S).groups()
run = caller.call([program, *asked.replace("\\\n", " ").split()], capture_output=True, text=True)
for line in told.splitlines():
    check(line in run.stdout.splitlines(), f"README.md: spillway {asked.split()[0]} does not print {line!r}")
# The first answer of docs/plan.md is whole; --accept writes it.
page = root / "docs/plan.md"
answer = re.search(r"```sh\n\./run spillway (plan .*?)\n```\n```\n(.*?)```", page.read_text(), re.S)
run = caller.call([program, *(str(root / word) if "/" in word else word for word in answer[1].split())], capture_output=True, text=True)
if accept and run.returncode == 0:
    page.write_text(page.read_text()[:answer.start(2)] + run.stdout + page.read_text()[answer.end(2):])
check(accept or run.stdout == answer[2], f"docs/plan.md: spillway {answer[1]} prints another answer; --accept writes it")
# The README's commands can be pasted: each begins with what is run, and names only files that are there or that are written into build/.
shown = "".join(re.findall(r"```sh\n(.*?)```", texts[root / "README.md"], re.S)).replace("\\\n", " ")
named = dict(re.findall(r"^(\w+)=(\S+)$", shown, re.M))
for line in shown.splitlines():
    check(re.match(r"\./run |\w+=\S+$", line), f"README.md: {line!r} is no command that can be pasted")
    for word in re.sub(r"\$(\w+)", lambda m: named.get(m[1], ""), line.split("#")[0]).replace("=", " ").split():
        if "/" in word and not word.startswith("build/"):
            check((root / word).is_file(), f"README.md: {word} of {line!r} is not there")

# Sections that the program prints.
numbers = re.findall(r"^(?:##+ |- \*\*)(\d+(?:\.\d+)?)[. ]", catalogue, re.M)
check(len(numbers) == len(set(numbers)), "docs/schemes.md: two sections have one number")
check(numbers == sorted(numbers, key=lambda n: [int(part) for part in n.split(".")]), "docs/schemes.md: sections out of order")
for path in sorted((root / "sim").rglob("*.c")):
    for text in re.findall(r'"[^"\n]*\(\d+(?:\.\d+)?\)[^"\n]*"', path.read_text()):
        for number in re.findall(r"\((\d+(?:\.\d+)?)\)", text):
            check(number in numbers, f"{path}: {text} names no section of docs/schemes.md")
    named = re.search(r'\.name = "([\w-]+)",.*?\.section_source = "[^"]*\(([\d.]+)\)"', path.read_text(), re.S)
    if named:
        check(named[1] in sections.get(named[2], ""), f"{path}: section {named[2]} is not about {named[1]}")

# Links, paths, tables.
folders = "base|docs|kernels|notebooks_data|reference|sim|tests|traces|\\.ci"
for path, text in texts.items():
    for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        check((path.parent / link).exists(), f"{path}: the link {link} leads nowhere")
    for name in re.findall(rf"`((?:{folders})/[\w./-]*)`", text):
        check("NAME" in name or (root / name).exists(), f"{path}: there is no {name}")
tables = texts[root / "notebooks_data/README.md"]
for path in sorted((root / "notebooks_data").rglob("*.csv")):
    check(str(path.relative_to(root / "notebooks_data")) in tables, f"notebooks_data/README.md: {path.name} is not named")
licences = [name for line in (root / "NOTICE").read_text().splitlines() if re.match(r"\w+/", line) for name in line.split(", ")]
for pattern in ("notebooks_data/*/*.csv", "sim/*/*.yaml", "sim/*/*.json", "traces/data/*"):
    for path in sorted(root.glob(pattern)):
        name = str(path.relative_to(root))
        check(any(fnmatch.fnmatch(name, licence) for licence in licences), f"NOTICE: {name} is not named")

print(f"{checks} checks, {bad} failed")
sys.exit(bad != 0 or checks < 100)
