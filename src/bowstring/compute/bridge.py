"""Calls of pyarrow's functions: arguments become pyarrow's objects, results Bowstring's. No values are copied."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, singledispatch, wraps
from types import FunctionType, MethodType
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import ChunkedArray, as_chunked_array
from bowstring.arrays.record_batch import RecordBatch, record_batch
from bowstring.arrays.scalar import Scalar
from bowstring.arrays.table import Table, table
from bowstring.datatypes.field import DataType, Field
from bowstring.datatypes.schema import Schema
from bowstring.interop.c_data import has_c_array, has_c_stream
from bowstring.interop.pandas import is_pandas_object
from bowstring.interop.pyarrow_arrays import (
    array_from_pyarrow,
    array_to_pyarrow,
    import_pyarrow,
    layout_to_pyarrow,
    scalar_from_pyarrow,
)
from bowstring.layouts.registry import layout_of
from bowstring.pyarrow_names import missing_attribute_error

_PACKAGE = "bowstring.compute"
_CONSTRUCTORS = {RecordBatch: "record_batch", Table: "table", Field: "field", Schema: "schema"}
_PYTHON_TYPES = frozenset({bool, int, float, str, bytes, type(None)})


@cache  # not in the package's dictionary, where `doctest` would find pyarrow's examples
def get_attribute(name: str) -> Any:
    """Return the function, class of options or expression of this name. Raises `AttributeError` if pyarrow lacks it."""
    if name == "__all__":
        return list_names()
    # Tools look for names with underscores in any module, which must not import pyarrow.
    value: Any = None if name.startswith("_") else getattr(import_pyarrow().compute, name, None)
    if not _is_public(value):
        raise missing_attribute_error(_PACKAGE, name, f"module {_PACKAGE!r}")
    if not isinstance(value, type):
        return _convert_calls(value)
    if value is import_pyarrow().compute.Expression:
        return Expression
    return _convert_options(value) if issubclass(value, import_pyarrow().compute.FunctionOptions) else value


def list_names() -> list[str]:
    """Return the public names of ``pyarrow.compute``."""
    return sorted(
        name for name, value in vars(import_pyarrow().compute).items() if name[0] != "_" and _is_public(value)
    )


def _is_public(value: object) -> bool:
    """Whether a value in ``pyarrow.compute`` is one of its functions and classes, not something it imports."""
    return (getattr(value, "__module__", None) or "").startswith("pyarrow.")


def _convert_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return from_pyarrow(function(*map(to_pyarrow, args), **{key: to_pyarrow(arg) for key, arg in kwargs.items()}))

    call.__module__ = _PACKAGE  # so that it can be pickled
    return call


def _convert_options(options: type) -> type:
    """Return a subclass of a class of options whose constructors take Bowstring's types and arrays."""

    @wraps(options.__init__)  # type: ignore[misc]
    def create(self: Any, *args: Any, **kwargs: Any) -> None:
        options.__init__(self, *map(to_pyarrow, args), **to_pyarrow(kwargs))  # type: ignore[misc]

    constructors = {
        name: staticmethod(_convert_calls(getattr(options, name)))
        for name, member in vars(options).items()
        if isinstance(member, staticmethod)
    }
    members = {"__init__": create, "__doc__": options.__doc__, "__module__": _PACKAGE, **constructors}
    return type(options.__name__, (options,), members)


class Expression:
    """An expression of pyarrow whose operators and methods take Bowstring's types, scalars and arrays.

    `bowstring.compute.field` and `scalar` create one. `pyarrow_expression` is pyarrow's own, for its functions.
    """

    __slots__ = ("pyarrow_expression",)

    def __init__(self, pyarrow_expression: Any) -> None:
        self.pyarrow_expression = pyarrow_expression

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a protocol, for which a copy without the slot may look
            raise AttributeError(name)
        return _convert_calls(getattr(self.pyarrow_expression, name))

    def __repr__(self) -> str:
        return repr(self.pyarrow_expression)

    def __str__(self) -> str:
        return str(self.pyarrow_expression)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.pyarrow_expression,)

    def __bool__(self) -> bool:
        return bool(self.pyarrow_expression)  # raises

    def __hash__(self) -> int:
        return hash(self.pyarrow_expression)


def _define_operator(name: str) -> None:
    """Define an operator of expressions, and its reflection. Any operand but an expression is a literal."""
    function = getattr(operator, f"__{name}__")

    def operate(*operands: Any) -> Expression:
        pc = import_pyarrow().compute
        converted = map(to_pyarrow, operands)
        return Expression(
            function(*(each if isinstance(each, pc.Expression) else pc.scalar(each) for each in converted))
        )

    setattr(Expression, f"__{name}__", operate)
    setattr(Expression, f"__r{name}__", lambda self, other: operate(other, self))


for _name in ("add", "sub", "mul", "truediv", "and", "or", "eq", "ne", "lt", "le", "gt", "ge", "invert"):
    _define_operator(_name)


@singledispatch
def to_pyarrow(value: Any) -> Any:
    """Return an argument as pyarrow's functions expect it. Raises `TypeMismatchError` for types that pyarrow lacks."""
    if type(value).__module__.startswith("pyarrow."):
        return value
    if has_c_array(value) or has_c_stream(value) or is_pandas_object(value):  # a column of another library
        return to_pyarrow(as_chunked_array(value))
    return value


@to_pyarrow.register
def _(value: Array | Scalar) -> Any:
    return value._to_pyarrow()


@to_pyarrow.register
def _(value: ChunkedArray) -> Any:
    chunks = [array_to_pyarrow(chunk) for chunk in value.chunks]
    return import_pyarrow().chunked_array(chunks, layout_to_pyarrow(layout_of(value.type)))


@to_pyarrow.register
def _(value: DataType) -> Any:
    return layout_to_pyarrow(layout_of(value))


@to_pyarrow.register
def _(value: RecordBatch | Table | Field | Schema) -> Any:
    constructor = next(name for kind, name in _CONSTRUCTORS.items() if isinstance(value, kind))
    return getattr(import_pyarrow(), constructor)(value)


@to_pyarrow.register(list)
@to_pyarrow.register(tuple)
def _(value: Any) -> Any:  # such as the arguments of `call_function`
    if _PYTHON_TYPES.issuperset(map(type, value)):
        return value  # the values of a column, maybe millions
    return [to_pyarrow(item) for item in value]


@to_pyarrow.register
def _(value: Expression) -> Any:
    return value.pyarrow_expression


@to_pyarrow.register(FunctionType)
@to_pyarrow.register(MethodType)
def _(value: Any) -> Any:  # such as the function of `register_scalar_function`, which gets Bowstring's arrays
    return lambda *args: to_pyarrow(value(*map(from_pyarrow, args)))


@to_pyarrow.register(dict)
def _(value: Any) -> Any:  # such as the types of `register_scalar_function`
    return {key: to_pyarrow(item) for key, item in value.items()}


def from_pyarrow(value: Any) -> Any:
    """Return a result as a Bowstring object. Objects without a counterpart, such as options, stay as they are."""
    pa = import_pyarrow()
    if isinstance(value, pa.compute.Expression):
        return Expression(value)
    if isinstance(value, pa.Array):
        return Array.from_array_data(array_from_pyarrow(value))
    if isinstance(value, pa.Scalar):
        return Scalar(Array.from_array_data(scalar_from_pyarrow(value)))
    if isinstance(value, pa.ChunkedArray):
        # An empty array has the type if there are no chunks.
        chunks = [from_pyarrow(chunk) for chunk in value.chunks]
        return ChunkedArray(chunks, chunks[0].type if chunks else from_pyarrow(pa.array([], value.type)).type)
    if isinstance(value, pa.RecordBatch):
        return record_batch(value)
    if isinstance(value, pa.Table):
        return table(value)
    return value
