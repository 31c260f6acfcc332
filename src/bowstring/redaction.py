"""Secrets in texts: the signatures of tickets, and user information and query strings of URLs.

Errors apply it to their messages; logs, names of sources, `repr` and the command line to what they show.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)

# In a URI, another program may have percent-encoded a character; twice in a URI that is a parameter.
_TILDE = r"(?:~|%(?:25)?7[Ee])"
_CHARACTER = "[A-Za-z0-9_%-]"
# After `~EXPIRY~`, or after `~` if as long as a signature: an expiry may be malformed, and a text truncated.
_SIGNATURE = re.compile(rf"({_TILDE}(?:[0-9]{{0,20}}{_TILDE}|(?={_CHARACTER}{{24}}))){_CHARACTER}+")
# "/" is percent-encoded in a valid password. After a port, "@" belongs to the path.
_USER = re.compile(r"(:/{1,2})(?:(?<=//)[^\s/?#]*|[^\s/?#@:[]*:(?![0-9]*(?:[/?#\s]|$))(?:(?!:/)\S)*)@")
_QUERY = re.compile(r"((?:https?)?:/{1,2}(?:(?!:/)[^\s?\"<>])*\?)([^\s\"<>]+)")
# Libraries print parts of URLs: without their scheme, or percent-encoded.
_PASSWORD = re.compile(r":[^\s/:@'\"]+@")
_PARAMETER = re.compile(
    r"((?:[?&]|%3F|%26)[\w.-]{0,40}(?:credential|key|password|secret|sig|token)[\w.-]{0,40}(?:=|%3D))"
    r"(?:[^\s&%'\"<>:]|:(?!\s)|%(?!26))+",
    re.IGNORECASE,
)
_PUNCTUATION = "'`.,:;)]}"
"""What follows a URL in a sentence."""
_MIN_VALUE_LENGTH = 6
# Each pattern needs one of these characters, which most texts lack: names of files are redacted when they are opened.
_SECRET_CHARACTER = re.compile("[@?&~%]")


def redact(text: str) -> str:
    """Return a text for people: without secrets, in which scheme, host, path and the name of a data set remain.

    >>> redact("http://user:password@host:80/a.arrow?X-Amz-Signature=0f: not found")
    'http://…@host:80/a.arrow?…: not found'
    >>> redact("tcp://host:80?want_data=1&ticket=visits~1800000000~" + "x" * 43)
    'tcp://host:80?want_data=1&ticket=visits~1800000000~…'
    """
    if not _SECRET_CHARACTER.search(text):
        return text
    # Functions and not templates, for which `re` imports a module: finalizers create errors while Python exits.
    text = _QUERY.sub(_redact_query, _USER.sub(lambda match: f"{match[1]}…@", text))
    return _SIGNATURE.sub(_keep_beginning, _PARAMETER.sub(_keep_beginning, _PASSWORD.sub(":…@", text)))


def _keep_beginning(match: re.Match[str]) -> str:
    return f"{match[1]}…"


def _redact_query(match: re.Match[str]) -> str:
    """The URL of a match with "…" as its query; unchanged if that is our own, or a pattern of names in a store."""
    address, query = match.groups()
    is_secret = "http" in address or ("=" in query and "want_data=" not in query)
    return f"{address}…{query[len(query.rstrip(_PUNCTUATION)) :]}" if is_secret else match[0]


@contextmanager
def translated_errors(translate: Callable[[Exception], _Error], options: object = None) -> Iterator[None]:
    """Raise the translation of an error of the block, without values of `options`, which are those of a store.

    The error is the cause of the translation, unless it or one of its causes contains a secret.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- another one is raised
        text = "".join(traceback.format_exception(error, limit=0))  # without lines of code, which are slow to find
        values = [value for value in _list_texts(options) if value in text]
        translated = translate(error)
        for value in values:
            translated.args = tuple(str(arg).replace(value, "…") for arg in translated.args)
        raise translated from (None if values or redact(text) != text else error)


def _list_texts(value: object) -> list[str]:
    """The texts in nested dictionaries and lists, except short ones, which are no secrets."""
    if isinstance(value, str):
        return [value] if len(value) >= _MIN_VALUE_LENGTH else []
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for each in values for text in _list_texts(each)]
