"""What tests need of Spark, so that the same tests run with each version: `make test-spark VERSION=3.5.9`."""

from __future__ import annotations

import re

import pytest

from bowstring.spark.versions import SPARK_VERSION

_NEW_SQL = {
    r"\btime[ (]": (4, 1),
    r"\btime\(9\)": (4, 3),
    r"\bparse_json\b": (4, 0),
    r"\bcollate\b": (4, 0),
    r"\bst_geo[mg]": (4, 2),
}
"""Patterns of SQL, and the first version of Spark that has it."""


def needs_spark(major: int, minor: int) -> pytest.MarkDecorator:
    """Skip a test with older versions of Spark."""
    is_older = (major, minor) > SPARK_VERSION
    return pytest.mark.skipif(is_older, reason=f"what it tests needs Spark {major}.{minor}")


def available_columns(text: str) -> str:
    """Return the lines of a list of SQL columns that this version of Spark has."""
    missing = [pattern for pattern, since in _NEW_SQL.items() if since > SPARK_VERSION]
    lines = [line for line in text.splitlines() if not any(re.search(pattern, line) for pattern in missing)]
    return "\n".join(lines).rstrip().removesuffix(",") + "\n"
