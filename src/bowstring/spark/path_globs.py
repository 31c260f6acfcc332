r"""Globs in paths, as in Spark: ``*``, ``?``, ``[a-z]``, ``[^a]``, ``{a,b}``, ``\`` before a character; and ``**``.

Hadoop, and therefore Spark, reads ``**`` as ``*``. Here it matches any number of folders, as in most other tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bowstring.errors import InvalidArgumentError, translate_os_error
from bowstring.io.store_path import FolderPath

MAX_ALTERNATIVES = 1000
"""How many patterns the braces of one may stand for."""

_SPECIAL = re.compile(r"[*?\[{\\]")
_TOKEN = re.compile(r"\\(?P<escaped>.)|\[(?P<sign>[!^]?+)(?P<members>.[^]]*)\]|.", re.DOTALL)
_WILDCARDS = {"*": "[^/]*", "?": "[^/]"}
# A backslash and the character after it are taken together, so that escaped braces and commas do not count.
_OPENING_BRACE = re.compile(r"(?P<before>(?:\\.|[^\\])*?)\{", re.DOTALL)
_INNERMOST_BRACES = re.compile(_OPENING_BRACE.pattern + r"(?P<choices>(?:\\.|[^\\{}])*)\}", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob for names, for `fullmatch`. Raises `InvalidArgumentError`."""
    return re.compile("|".join(map(_translate, _expand_braces(pattern))), re.DOTALL)


def is_hidden(name: str) -> bool:
    """Whether a file or folder is not data by its name: Spark skips it, too."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def expand_glob(pattern: FolderPath) -> list[FolderPath]:
    """Return the files and folders that match an absolute pattern, by name, except hidden ones.

    Raises:
        InvalidArgumentError: the pattern is malformed.
    """
    matches: dict[str, FolderPath] = {}
    root: FolderPath = [pattern, *pattern.parents][-1]
    text = "/".join(pattern.parts[len(root.parts) :])
    for alternative in _expand_braces(text):
        paths = [root]
        for component in Path(alternative).parts:
            paths = [match for path in paths for match in _match_component(path, component)]
        matches.update((str(path), path) for path in paths)
    return [matches[name] for name in sorted(matches)]


def _match_component(folder: FolderPath, component: str) -> Iterator[FolderPath]:
    if component == "**":
        yield from _iter_folders(folder)
        return
    if not _SPECIAL.search(component):  # a name that is spelled out may be hidden, and its folder need not be listed
        path = folder / component
        if os.path.lexists(path) if isinstance(path, Path) else path.exists():
            yield path
        return
    expression = re.compile(_translate(component), re.DOTALL)
    for name in _list_names(folder):
        if expression.fullmatch(name) and not is_hidden(name):
            yield folder / name


def _iter_folders(folder: FolderPath) -> Iterator[FolderPath]:
    """Yield a folder and the folders in it at any depth; links are not followed, since they could form a cycle."""
    yield folder
    for name in _list_names(folder):
        path = folder / name
        if not is_hidden(name) and path.is_dir() and not path.is_symlink():
            yield from _iter_folders(path)


def _list_names(folder: FolderPath) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        raise translate_os_error(problem, f"{folder}: cannot be read: {problem.strerror}") from problem


def _expand_braces(pattern: str) -> list[str]:
    """Return the equivalent patterns without braces."""
    pending, patterns = [pattern], dict[str, None]()
    while pending:
        text = pending.pop()
        braces = _INNERMOST_BRACES.match(text)
        if braces is not None:
            choices = _COMMA.split(braces["choices"])
            pending += [braces["before"] + choice + text[braces.end() :] for choice in choices]
        elif _OPENING_BRACE.match(text):
            raise InvalidArgumentError(f"{pattern}: a brace of the glob is not closed")
        else:
            patterns[text] = None
        if len(pending) + len(patterns) > MAX_ALTERNATIVES:
            raise InvalidArgumentError(f"{pattern}: the braces stand for more than {MAX_ALTERNATIVES} patterns")
    return list(patterns)


def _translate(pattern: str) -> str:
    """Return the regular expression of a glob without braces."""
    expression = ""
    for token in _TOKEN.finditer(pattern):
        if token["members"] is not None:
            expression += f"[{'^' if token['sign'] else ''}{_translate_members(token['members'], pattern)}]"
        elif token[0] == "[":
            raise InvalidArgumentError(f"{pattern}: a bracket of the glob is not closed")
        else:
            expression += _WILDCARDS.get(token[0]) or re.escape(token["escaped"] or token[0])
    return expression


def _translate_members(members: str, pattern: str) -> str:
    if any(left > right for left, right in re.findall("(.)-(.)", members)):
        raise InvalidArgumentError(f"{pattern}: [{members}] of the glob is not a set of characters")
    return "".join(char if char == "-" else re.escape(char) for char in members)
