"""Show the examples of docstrings as code: an extension of Griffe, which reads the docstrings for the site."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^>>> .*?(?=\n[ ]*\n|\Z)", re.MULTILINE | re.DOTALL)


class DocstringExamples(griffe.Extension):
    """Encloses each doctest in a fence: Markdown would read its lines as quotations and links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            text = inspect.cleandoc(obj.docstring.value)
            obj.docstring.value = _DOCTEST.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
