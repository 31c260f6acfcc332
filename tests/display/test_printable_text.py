from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len

from bowstring.display.printable_text import display_width, fit_to_width, terminal_width, to_printable

NARROW_IN_SOME_TERMINALS = {"Mc", "No", "Sk"}
"""Categories of characters about whose width terminals disagree."""


def test_the_width_of_each_letter_and_mark_is_that_of_rich() -> None:
    characters = [
        character
        for character in map(chr, range(32, 0x3000))
        if character.isprintable() and unicodedata.category(character) not in NARROW_IN_SOME_TERMINALS
    ]
    differing = [ascii(c) for c in characters if display_width(c) != cell_len(c) and unicodedata.category(c) != "So"]
    assert len(characters) > 8000
    assert differing == []


@pytest.mark.parametrize("text", ["日本語", "e\u0301a", "ｱｲｳ", "한국", "❤\ufe0f", "👍🏽", "🇩🇪", "naïve"])
def test_the_width_of_a_text_is_that_of_rich(text: str) -> None:
    assert display_width(text) == cell_len(text)


@pytest.mark.parametrize("text", ["日本語日本語", "abcdefghij", "e\u0301" * 9, "aé日" * 4])
def test_a_text_is_truncated_to_any_width(text: str) -> None:
    for width in range(1, 30):
        fitted = fit_to_width(text, width)
        assert display_width(fitted) <= width
        assert fitted == text or (fitted.endswith("…") and text.startswith(fitted[:-1]))
        assert (fitted == text) == (display_width(text) <= width)
        assert fitted == text or display_width(fitted) >= width - 1


def test_control_characters_and_directional_marks_are_escaped() -> None:
    assert to_printable("\x1b[2J\u202e\n") == r"\x1b[2J\u202e\n"


def test_the_width_of_the_terminal_has_a_lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in (("20", 40), ("41", 41), ("300", 300)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal_width() == width
