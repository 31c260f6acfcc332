"""Globs in paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from bowstring.errors import InvalidArgumentError
from bowstring.io.store_path import find_relative_name
from bowstring.spark.path_globs import MAX_ALTERNATIVES, compile_glob, expand_glob

MATCHES = {
    "*.arrow": (["a.arrow", ".arrow"], ["a.arrows", "a/b.arrow"]),
    "part-?": (["part-1"], ["part-", "part-12"]),
    "[a-c]x": (["ax", "cx"], ["dx", "-x"]),
    "[^a-c]x": (["dx"], ["ax"]),
    "{a,b{1,2},}.x": (["a.x", "b1.x", "b2.x", ".x"], ["b.x"]),
    r"\{a\,\*": (["{a,*"], ["{a,b"]),
    "a.b": (["a.b"], ["aXb"]),
    "[]a]x": (["ax", "]x"], ["bx"]),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_glob_matches_names(pattern: str) -> None:
    names, others = MATCHES[pattern]
    assert [name for name in (*names, *others) if compile_glob(pattern).fullmatch(name)] == names


@pytest.mark.parametrize("pattern", ["{a", "[a", "[]", "[z-a]", "[!]x", "[b{c,d}"])
def test_a_malformed_glob_is_named(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="of the glob is not"):
        compile_glob(pattern)


def test_braces_stand_for_a_limited_number_of_patterns() -> None:
    inside = "{" + ",".join(map(str, range(MAX_ALTERNATIVES))) + "}"
    assert compile_glob(inside).fullmatch("999")
    with pytest.raises(InvalidArgumentError, match=f"more than {MAX_ALTERNATIVES} patterns"):
        compile_glob("{a,b}" * 60)


def test_paths_are_expanded_by_folder(tmp_path: Path) -> None:
    names = ["a/x/1", "a/x/y/2", "a/_hidden/3", "b/x/4", "b/_k=1/5", ".c/x/6"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path)

    def expand(pattern: str) -> list[str]:
        return [str(find_relative_name(path, tmp_path)) for path in expand_glob(tmp_path / pattern)]

    assert expand("*/x/[0-9]") == ["a/x/1", "b/x/4"]
    assert expand("{a/x,b/_k=1}/?") == ["a/x/1", "a/x/y", "b/_k=1/5"]
    assert expand("**/[0-9]") == ["a/x/1", "a/x/y/2", "b/_k=1/5", "b/x/4"]
    assert expand("a/**") == ["a", "a/x", "a/x/y"]
    assert expand("a/x/1/*") == expand("none/*") == []
