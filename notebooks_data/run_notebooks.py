#!/usr/bin/env python3
"""Executes the notebooks and compares the numbers that they print with those stored in them; pictures are not compared, but the numbers
behind each are printed beside it.

run_notebooks.py [--accept] NOTEBOOK...    --accept stores what came out"""
import pathlib
import re
import sys

import nbclient
import nbformat

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def texts(cell):
    """What a cell prints and shows, as plain text."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.get("name") == "stderr":
            continue  # a warning names its process
        if output.output_type == "stream":
            yield output.text
        elif "text/plain" in output.get("data", {}) and "image/png" not in output.data:
            yield output.data["text/plain"]


def same_number(got, want):
    """Equal within 0.2 %, or within two units of the last place that is printed."""
    places = len(want.partition(".")[2]) if "e" not in want.lower() else 0
    return abs(float(got) - float(want)) <= max(0.002 * abs(float(want)), 2.0 * 10.0**-places if places else 0.0)


def same(got, want):
    """The same numbers; how they are laid out and worded may change."""
    numbers = NUMBER.findall(got), NUMBER.findall(want)
    return len(numbers[0]) == len(numbers[1]) and all(map(same_number, *numbers))


def tidy(notebook):
    """Without what differs from run to run and says nothing."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


accept, failures, compared = "--accept" in sys.argv, [], 0
for path in map(pathlib.Path, (word for word in sys.argv[1:] if not word.startswith("--"))):
    stored = nbformat.read(path, as_version=4)
    run = nbformat.from_dict(stored.copy())
    nbclient.NotebookClient(run, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    old = nbformat.read(path, as_version=4)
    pictures = sum("image/png" in output.get("data", {}) for cell in run.cells for output in cell.get("outputs", []))
    if pictures < 2:
        failures.append(f"{path.name}: {pictures} pictures")
    for number, (cell, before) in enumerate(zip(run.cells, old.cells)):
        got, want = "\n".join(texts(cell)), "\n".join(texts(before))
        compared += bool(want)
        if not accept and not same(got, want):
            failures.append(f"{path.name}, cell {number}:\n--- stored\n{want}\n--- now\n{got}")
    if accept:
        nbformat.write(tidy(run), path)
print("\n".join(failures))
print(f"{compared} texts compared, {len(failures)} differ")
sys.exit(1 if failures or not (compared or accept) else 0)
