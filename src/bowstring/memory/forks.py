"""Which process has created an object: a forked child inherits it, but not its threads and locks."""

from __future__ import annotations

import os

_token = object()


def process_token() -> object:
    """Return an object that only this process has, not its forked children.

    The ID of a process is not enough: a child may get the ID of an ancestor that has ended, and both are process 1 if
    they are the first ones of their namespaces.
    """
    return _token


def _replace_token() -> None:
    global _token  # noqa: PLW0603 -- of this process
    _token = object()


os.register_at_fork(after_in_child=_replace_token)
