"""The operators of arrays and scalars, such as ``prices * 2``. pyarrow calculates, with the errors of its functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from bowstring.interop.pyarrow_arrays import import_pyarrow

_Operator: TypeAlias = Callable[[Any, Any], Any]


def _calculate(function: Callable[..., Any], *operands: Any) -> Any:
    pa = import_pyarrow()
    owner = next(each for each in operands if isinstance(each, Arithmetic))
    converted = [each._to_pyarrow() if isinstance(each, Arithmetic) else each for each in operands]
    if not isinstance(converted[0], pa.Array | pa.Scalar | pa.ChunkedArray):
        converted[0] = pa.scalar(converted[0])
    value = function(*converted)
    return owner._from_pyarrow(value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value)


def _operators(function: _Operator) -> tuple[_Operator, _Operator]:
    """Return the method for an operator, and the reflected one."""
    return (
        lambda left, right: _calculate(function, left, right),
        lambda right, left: _calculate(function, left, right),
    )


class Arithmetic:
    """The operators. The other operand can be a value of Python, or a scalar or array of pyarrow."""

    __slots__ = ()

    def _to_pyarrow(self) -> Any:
        raise NotImplementedError

    def _from_pyarrow(self, value: Any) -> Any:
        """Return pyarrow's array, or its scalar if this is a scalar, as one of Bowstring."""
        raise NotImplementedError

    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __pow__, __rpow__ = _operators(operator.pow)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __xor__, __rxor__ = _operators(operator.xor)
    __lshift__, __rlshift__ = _operators(operator.lshift)
    __rshift__, __rrshift__ = _operators(operator.rshift)

    def __neg__(self) -> Any:
        return _calculate(operator.neg, self)

    def __abs__(self) -> Any:
        return _calculate(abs, self)
