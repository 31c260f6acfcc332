"""The stub of `bowstring.compute`, for type checkers and editors: the names and signatures of pyarrow's functions.

`python -m tests.compute.stub` writes it.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import bowstring as bs

STUB = Path(bs.compute.__file__ or "").with_suffix(".pyi")
HEADER = f"""\
# Generated from pyarrow {pa.__version__} by `python -m tests.compute.stub`.
# fmt: off
"""
_ARRAY_RESULT = "tdigest"
"""The aggregation whose result is an array, not a scalar."""


def create_stub() -> str:
    """Return the text of the stub for the installed version of pyarrow."""
    return "\n".join([HEADER, *_create_lines()]) + "\n"


def _create_lines() -> Iterator[str]:
    names = [name for name in dir(bs.compute) if not keyword.iskeyword(name)]
    classes = [name for name in names if isinstance(getattr(pc, name), type) and name != "Expression"]
    yield "from typing import Any"
    yield ""
    yield f"from pyarrow.compute import {', '.join(f'{name} as {name}' for name in classes)}"
    yield ""
    yield "from bowstring.arrays.scalar import Scalar"
    yield "from bowstring.compute.bridge import Expression as Expression"
    for name in names:
        if name not in (*classes, "Expression"):
            function = getattr(pc, name)
            paragraphs = (inspect.getdoc(function) or "").strip().split("\n\n")
            # That of a function in C begins with its signature, which may be all.
            text = next((text for text in paragraphs if not text.startswith(f"{name}(")), "Of pyarrow.")
            summary = text.replace("\n", " ").replace("\\", "\\\\").removesuffix(".") + "."
            yield ""
            yield f"def {name}{_annotate(inspect.signature(function))} -> {_result_type(name)}:"
            yield f'    """{summary}"""'


def _annotate(signature: inspect.Signature) -> str:
    parameters = [
        each.replace(annotation=bool if isinstance(each.default, bool) else Any, default=_default(each))
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters)).replace("typing.Any", "Any").replace("'...'", "...")


def _default(parameter: inspect.Parameter) -> Any:
    is_literal = isinstance(parameter.default, str | int | float | None) or parameter.default is parameter.empty
    return parameter.default if is_literal else "..."


def _result_type(name: str) -> str:
    described = getattr(getattr(pc, name), "__arrow_compute_function__", None)
    is_aggregation = described is not None and pc.get_function(described["name"]).kind == "scalar_aggregate"
    return "Scalar" if is_aggregation and name != _ARRAY_RESULT else "Any"


if __name__ == "__main__":
    STUB.write_text(create_stub())
