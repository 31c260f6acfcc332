"""The meanings of the parts of a file, in short sentences, each with the headings of the specification.

The text is in `assets/glossary.toml`.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

_PAGE = "https://arrow.apache.org/docs/format/Columnar.html#"
_OTHER_PAGES = dict.fromkeys(
    ("Tensor (Multi-dimensional Array) Message Format", "SparseTensor Message Format"),
    "https://arrow.apache.org/docs/format/Other.html",
)


MEANINGS: dict[str, Any] = tomllib.loads(
    files(__package__).joinpath("assets", "glossary.toml").read_text(encoding="utf-8")
)
"""The `title` and `text` of each part, and the `headings` of the specification that define it."""


def to_json() -> dict[str, Any]:
    """Return the meanings for the page: title, text, and the name and URL of each heading."""
    return {
        key: [meaning["title"], meaning["text"], [[heading, heading_url(heading)] for heading in meaning["headings"]]]
        for key, meaning in MEANINGS.items()
    }


def heading_url(heading: str) -> str:
    """Return the URL of a heading in the specification."""
    if heading in _OTHER_PAGES:
        return _OTHER_PAGES[heading]
    anchor = "".join(c if c.isalnum() else "-" for c in heading.lower()).strip("-")
    return _PAGE + anchor
