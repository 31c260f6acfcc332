"""Text that may be shown on a terminal, whoever wrote it: escaped, cut, and sizes in units that people read."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def printable(text: str, max_characters: int | None = None) -> str:
    r"""The text with control characters, line ends and directional marks as escapes, and cut to `max_characters`.

    >>> printable("price \x1b[2J")
    'price \\x1b[2J'
    >>> printable("abcdefgh", 5)
    'abcd…'
    """
    if max_characters is not None and len(text) > max_characters:
        text = text[:max_characters] + "…"  # what is cut away need not be escaped
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if max_characters is not None and len(text) > max_characters:
        text = text[: max_characters - 1] + "…"
    return text


def shown_bytes(held: bytes, max_characters: int | None = None) -> str:
    r"""Bytes as printable text where they are UTF-8, else as Python writes them; what is cut is told by its size.

    >>> shown_bytes(b"\xff\x00")
    "b'\\xff\\x00'"
    >>> shown_bytes(b"a" * 2000, 4)
    'aaa… (2,000 bytes)'
    """
    is_long = max_characters is not None and len(held) > 4 * max_characters
    some = held[: 4 * max_characters] if is_long and max_characters is not None else held
    try:
        text = some.decode("utf-8", "ignore" if is_long else "strict")
    except UnicodeDecodeError:
        text = repr(some)
    cut = printable(text, max_characters)
    return f"{cut} ({len(held):,} bytes)" if is_long or (cut.endswith("…") and not text.endswith("…")) else cut


def human_bytes(size_bytes: int) -> str:
    """A size in bytes, from 1 KiB on in the smallest unit of which it is less than a thousand, with two decimals at
    the most.

    >>> [human_bytes(size) for size in (0, 1, 1023, 1536, 999 << 10, 1000 << 10, 10 << 20, 300 << 30)]
    ['0 bytes', '1 byte', '1023 bytes', '1.50 KiB', '999 KiB', '0.98 MiB', '10.0 MiB', '300 GiB']
    """
    if size_bytes < 1024:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{decimals}f} {_UNITS[unit]}"


def share_of(part: int, whole: int) -> float:
    """The part as a fraction of the whole; 0 where there is no whole."""
    return part / whole if whole else 0.0


def percent(share: float) -> str:
    """A fraction in percent, with one decimal; what is less than any shown so is told as that.

    >>> [percent(share) for share in (0, 0.0001, 0.0005, 0.25, 1)]
    ['0.0 %', '< 0.1 %', '0.1 %', '25.0 %', '100.0 %']
    """
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
