"""Safe text for terminals: escaped, measured and truncated; and human-readable sizes."""

from __future__ import annotations

import shutil
from unicodedata import category, east_asian_width

from bowstring.errors import escape_unprintable

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def to_printable(text: str, max_characters: int | None = None) -> str:
    r"""Escape control characters, line ends and directional marks, and truncate to `max_characters`.

    >>> to_printable("price \x1b[2J")
    'price \\x1b[2J'
    >>> to_printable("abcdefgh", 5)
    'abcd…'
    """
    if max_characters is not None and len(text) > max_characters:
        text = text[:max_characters] + "…"  # truncate before escaping
    text = escape_unprintable(text)
    if max_characters is not None and len(text) > max_characters:
        text = text[: max_characters - 1] + "…"
    return text


def display_width(text: str) -> int:
    """Return the number of columns of a terminal that printable text occupies.

    >>> [display_width(text) for text in ("abc", "東京", "e\u0301", "❤\ufe0f", "👍🏽")]
    [3, 4, 1, 2, 2]
    """
    if text.isascii():
        return len(text)
    return sum(_character_widths(text))


def _character_widths(text: str) -> list[int]:
    """Return the width of each character in the context of the text.

    Terminals differ; this is the width in those that follow Unicode. Sequences of emoji joined by U+200D are too wide.
    """
    widths: list[int] = []
    for character in text:
        previous = widths[-1] if widths else 0
        if character == "\ufe0f":  # shows the previous character as an emoji
            widths.append(2 - previous if previous else 0)
        elif "\U0001f3fb" <= character <= "\U0001f3ff" and previous == 2:  # the skin tone of the previous one
            widths.append(0)
        elif category(character) in ("Mn", "Me", "Cf", "Cc") or "\u1160" <= character <= "\u11ff":
            widths.append(0)  # a mark, or the rest of a Korean syllable
        else:
            widths.append(2 if east_asian_width(character) in "WF" else 1)
    return widths


def fit_to_width(text: str, max_width: int) -> str:
    """Truncate printable text that is wider than `max_width` columns of a terminal, and end it with "…".

    >>> fit_to_width("東京特許", 6)
    '東京…'
    """
    if display_width(text) <= max_width:
        return text
    end, width = 0, 1  # the width of "…"
    # Some characters have no width, and text from files may have any number of them: at most four per column are shown.
    for character_width in _character_widths(text[: max_width * 4]):
        width += character_width
        if width > max_width:
            break
        end += 1
    return text[:end] + "…"


def terminal_width() -> int:
    """Return the width of the terminal in columns, 100 if there is none, but at least 40."""
    return max(shutil.get_terminal_size((100, 24)).columns, 40)


def bytes_to_printable(raw: bytes, max_characters: int | None = None) -> str:
    r"""Format bytes as text if they are valid UTF-8, else like `repr`; add the size if they are truncated.

    >>> bytes_to_printable(b"\xff\x00")
    "b'\\xff\\x00'"
    >>> bytes_to_printable(b"a" * 2000, 4)
    'aaa… (2,000 bytes)'
    """
    is_long = max_characters is not None and len(raw) > 4 * max_characters
    prefix = raw[: 4 * max_characters] if is_long and max_characters is not None else raw
    try:
        text = prefix.decode("utf-8", "ignore" if is_long else "strict")
    except UnicodeDecodeError:
        text = repr(prefix)
    shown = to_printable(text, max_characters)
    return f"{shown} ({len(raw):,} bytes)" if is_long or (shown.endswith("…") and not text.endswith("…")) else shown


def format_size(size_bytes: int) -> str:
    """Format a size in the smallest binary unit with a value below 1000, with at most two decimals.

    >>> [format_size(size) for size in (0, 1, 1023, 1536, 999 << 10, 1000 << 10, 10 << 20, 300 << 30)]
    ['0 bytes', '1 byte', '1023 bytes', '1.50 KiB', '999 KiB', '0.98 MiB', '10.0 MiB', '300 GiB']
    """
    if size_bytes < 1024:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{decimals}f} {_UNITS[unit]}"


def fraction(part: int, whole: int) -> float:
    """Return `part / whole`, or 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def format_percent(share: float) -> str:
    """Format a fraction in percent with one decimal.

    >>> [format_percent(share) for share in (0, 0.0001, 0.0005, 0.25, 1)]
    ['0.0 %', '< 0.1 %', '0.1 %', '25.0 %', '100.0 %']
    """
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def complete_year(text: str) -> str:
    """Return the text of a `datetime64` with a year of at least four digits, as in ISO 8601: NumPy's -5 is -005.

    >>> complete_year("-005-12-31")
    '-0005-12-31'
    """
    return f"-0{text[1:]}" if text[:1] == "-" and text[4:5] == "-" else text
