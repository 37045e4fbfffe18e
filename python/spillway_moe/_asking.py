"""What the functions of questions.py and planning.py do with their keywords."""
from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from ._library import Error, _word
from .keywords import KEYS, OPTIONS

ARGUMENT = 2  # SPW_CODE_ARGUMENT of spillway.h


def given(names: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that were given: locals() of a function whose last parameter is **others."""
    names = dict(names)
    others = names.pop("others")
    known = {*KEYS, *names}
    for name in others:
        near = [] if name in known else difflib.get_close_matches(name, known, 1, 0.8)
        if near:
            raise Error(f"{name}: there is no such keyword; {near[0]} would be right", ARGUMENT)
    names.update(others)
    return {name: value for name, value in names.items() if value is not None and value is not False or name in KEYS and value is False}


def options(names: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as options of the command line: keys of a job that have no option of their own become --set."""
    keys = {KEYS[name][0]: value for name, value in names.items() if name in KEYS}
    rest = {{"peer": "as", "from_": "from"}.get(name, name): value for name, value in names.items() if name not in KEYS}
    if not keys:
        return rest
    own = rest.pop("set", {})
    words = [own] if isinstance(own, str) else [f"{key}={_word(value)}" for key, value in own.items()] if isinstance(own, Mapping) else [*own]
    return {**rest, "set": [*words, *(f"{key}={_word(value)}" for key, value in keys.items())]}


def documented(command: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds to the text of a function what each of its keywords means."""
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        names = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
        lines = [f"{name}: {OPTIONS[command][name] if name in OPTIONS[command] else '{}; {}'.format(*KEYS[name])}" for name in names]
        function.__doc__ = (function.__doc__ or "") + "\n    Keywords:\n" + "".join(f"    {line}\n" for line in lines)
        return function
    return add
