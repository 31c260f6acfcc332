"""«Fixed shape tensor» and «Variable shape tensor» of the canonical extension types: one NumPy array per row.

Elements are in C order of the physical shape. With a `permutation`, logical dimension i is physical dimension
`permutation[i]`.

>>> import bowstring as bs
>>> import numpy as np
>>> type_ = bs.datatypes.fixed_shape_tensor(bs.int16(), (2, 3))
>>> images = bs.array(np.arange(12, dtype=np.int16).reshape(2, 2, 3), type_)
>>> images.to_numpy().shape, images[1].tolist()
((2, 2, 3), [[6, 7, 8], [9, 10, 11]])
>>> ragged = bs.array([np.eye(2), np.ones((1, 3))], bs.datatypes.variable_shape_tensor(bs.float64(), 2))
>>> [value.shape for value in ragged.to_pylist()]
[(2, 2), (1, 3)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bowstring.datatypes import factories, types as t
from bowstring.datatypes.canonical.parameters import (
    MAX_DIMENSIONS,
    parse_names,
    parse_parameters,
    parse_sizes,
    serialize_parameters,
)
from bowstring.datatypes.conversion import TypeLike, field
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.parameters import check_size, check_text
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError


@dataclass(frozen=True, slots=True, repr=False)
class TensorType(ExtensionType):
    """The base of both tensor types: conversion between physical and logical dimensions."""

    dim_names: tuple[str, ...] | None = None
    permutation: tuple[int, ...] | None = None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        raise NotImplementedError

    @property
    def _axis_order(self) -> tuple[int, ...]:
        return self.permutation or tuple(range(self.ndim))

    def _check_dimensions(self) -> None:
        name, ndim = self.EXTENSION_NAME, self.ndim
        if ndim > MAX_DIMENSIONS:
            raise InvalidArgumentError(f"{name}: expected up to {MAX_DIMENSIONS} dimensions, found {ndim}")
        if self.dim_names is not None and len(self.dim_names) != ndim:
            raise InvalidArgumentError(f"{name}: 'dim_names' has {len(self.dim_names)} names for {ndim} dimensions")
        for dim_name in self.dim_names or ():
            check_text(f"{name}: a dimension's name", dim_name)
        if self.permutation is not None and sorted(self.permutation) != list(range(ndim)):
            permutation = list(self.permutation)
            raise InvalidArgumentError(f"{name}: 'permutation' {permutation} is not a permutation of {ndim} dimensions")

    def _format_dimensions(self) -> str:
        dim_names = f", dimensions {list(self.dim_names)}" if self.dim_names else ""
        return dim_names + (f", permutation {list(self.permutation)}" if self.permutation else "")

    @classmethod
    def _parse_dimensions(cls, parameters: dict[str, Any]) -> tuple[Any, Any]:
        name = cls.EXTENSION_NAME
        return parse_names(name, parameters, "dim_names"), parse_sizes(name, parameters, "permutation")

    def _to_logical_shape(self, elements: Any, shape: Sequence[int], value_type: t.DataType) -> npt.NDArray[Any]:
        """Build a tensor in logical shape from its elements in C order of the physical shape."""
        # NumPy has no null: elements with one are Python objects, as are elements of types without a dtype.
        dtype = None if any(element is None for element in elements) else _numpy_dtype(value_type)
        flat = np.fromiter(elements, np.dtype(dtype or object), len(elements))
        return flat.reshape(shape).transpose(self._axis_order)

    def _to_physical_shape(self, value: Any) -> npt.NDArray[Any]:
        """Transpose a tensor to its physical shape, without copying."""
        array = np.asarray(value)
        if array.ndim != len(self._axis_order):
            raise TypeMismatchError(f"a tensor of {array.ndim} dimensions does not fit {self}")
        return array.transpose(np.argsort(self._axis_order))  # the inverse permutation


def _numpy_dtype(type_: t.DataType) -> np.dtype[Any] | None:
    if isinstance(type_, t.Int):
        return np.dtype(str(type_))
    if isinstance(type_, t.FloatingPoint):
        return np.dtype(f"f{type_.bit_width // 8}")
    return np.dtype(np.bool_) if isinstance(type_, t.Bool) else None


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class FixedShapeTensorType(TensorType):
    """Tensors of one shape, as fixed-size lists.

    Values are NumPy arrays; `Array.to_numpy` returns all of them as one. `shape` and `dim_names` are physical, in the
    order in which elements are stored.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.fixed_shape_tensor"

    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        storage = self.storage_type
        if not isinstance(storage, t.FixedSizeList):
            raise InvalidArgumentError(
                f"{self.EXTENSION_NAME}: expected a fixed-size list as storage type, found {storage}"
            )
        self._check_dimensions()
        if prod(self.shape) != storage.list_size:
            raise InvalidArgumentError(
                f"{self.EXTENSION_NAME}: 'shape' {list(self.shape)} has {prod(self.shape)} elements, the storage "
                f"type {storage.list_size}"
            )

    @property
    def value_type(self) -> t.DataType:
        """The data type of the elements."""
        assert isinstance(self.storage_type, t.FixedSizeList)
        return self.storage_type.value_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def serialize(self) -> bytes:
        """Return shape, dimension names and permutation as a JSON object."""
        return serialize_parameters(shape=self.shape, permutation=self.permutation, dim_names=self.dim_names)

    @classmethod
    def deserialize(cls, storage_type: t.DataType, serialized: bytes) -> Self:
        """Return the type for a JSON object with a shape and optional dimension names and permutation."""
        name = cls.EXTENSION_NAME
        parameters = parse_parameters(name, serialized, ("shape", "dim_names", "permutation"))
        if "shape" not in parameters:
            raise InvalidDataError(f"{name}: metadata {serialized[:60]!r} lacks 'shape'")
        shape = parse_sizes(name, parameters, "shape") or ()
        return cls(storage_type, *cls._parse_dimensions(parameters), shape)

    def decode(self, value: Any) -> npt.NDArray[Any]:
        """Return one tensor as a NumPy array."""
        return self._to_logical_shape(value, self.shape, self.value_type)

    def encode(self, value: Any) -> Any:
        """Return the elements of one tensor in physical order."""
        physical = self._to_physical_shape(value)
        if physical.shape != self.shape:
            raise TypeMismatchError(f"a tensor of physical shape {physical.shape} does not fit {self}")
        return physical.reshape(-1)

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:  # noqa: ARG002
        """Return all tensors as one array, rows first, without copying."""
        if values.ndim == 1:
            return values  # nulls, or elements without a NumPy type
        return values.reshape(len(values), *self.shape).transpose(0, *(axis + 1 for axis in self._axis_order))

    def to_storage_numpy(self, values: Any) -> Any:
        """Convert one array of all tensors to shape (rows, elements); copies only if it is not in physical order."""
        if values.ndim != len(self.shape) + 1:
            return None
        physical = values.transpose(0, *(int(axis) + 1 for axis in np.argsort(self._axis_order)))
        if physical.shape[1:] != self.shape:
            raise TypeMismatchError(f"tensors of physical shape {physical.shape[1:]} do not fit {self}")
        return np.ascontiguousarray(physical).reshape(len(physical), prod(self.shape))

    def __str__(self) -> str:
        parameters = f"{self.value_type}, shape {list(self.shape)}{self._format_dimensions()}"
        return f"extension<{self.EXTENSION_NAME}[{parameters}]>"


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class VariableShapeTensorType(TensorType):
    """Tensors of different shapes with the same number of dimensions, as a struct of `data` and `shape`.

    Values are NumPy arrays. `uniform_shape` gives the size of each dimension that is the same in all rows, None for the
    others.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.variable_shape_tensor"

    uniform_shape: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        name, storage = self.EXTENSION_NAME, self.storage_type
        types = {f.name: f.type for f in storage.fields} if isinstance(storage, t.Struct) else {}
        data, shape = types.get("data"), types.get("shape")
        is_valid = isinstance(data, t.List) and isinstance(shape, t.FixedSizeList) and shape.value_type == t.Int(32)
        if not is_valid or len(storage.fields) != 2:
            raise InvalidArgumentError(
                f"{name}: expected a struct of a list 'data' and a fixed-size list 'shape' of int32 as storage type, "
                f"found {storage}"
            )
        self._check_dimensions()
        if self.uniform_shape is not None and len(self.uniform_shape) != self.ndim:
            raise InvalidArgumentError(
                f"{name}: expected {self.ndim} sizes as 'uniform_shape', found {list(self.uniform_shape)}"
            )

    def _child_type(self, name: str) -> Any:
        return next(f.type for f in self.storage_type.fields if f.name == name)

    @property
    def value_type(self) -> t.DataType:
        """The data type of the elements."""
        value_type: t.DataType = self._child_type("data").value_type
        return value_type

    @property
    def ndim(self) -> int:
        ndim: int = self._child_type("shape").list_size
        return ndim

    def serialize(self) -> bytes:
        """Return dimension names, permutation and uniform shape, if any, as a JSON object."""
        return serialize_parameters(
            permutation=self.permutation, dim_names=self.dim_names, uniform_shape=self.uniform_shape
        )

    @classmethod
    def deserialize(cls, storage_type: t.DataType, serialized: bytes) -> Self:
        """Return the type for a JSON object with optional dimension names, permutation and uniform shape."""
        name = cls.EXTENSION_NAME
        parameters = parse_parameters(name, serialized, ("dim_names", "permutation", "uniform_shape"))
        uniform_shape = parse_sizes(name, parameters, "uniform_shape", nullable=True)
        return cls(storage_type, *cls._parse_dimensions(parameters), uniform_shape)

    def decode(self, value: Any) -> npt.NDArray[Any]:
        """Return one tensor as a NumPy array. Raises `InvalidDataError` if elements and shape disagree."""
        self.check_storage_value(value)  # the shape is data, too, and may not fit the elements
        return self._to_logical_shape(value["data"], value["shape"], self.value_type)

    def check_storage_value(self, value: Any) -> None:
        """Raise `InvalidDataError` if elements, shape and uniform shape disagree."""
        data, shape = value["data"], value["shape"]
        if data is None or shape is None or any(size is None or size < 0 for size in shape):
            raise InvalidDataError(f"{self.EXTENSION_NAME}: a tensor of shape {shape!r:.60} is not valid")
        if prod(shape) != len(data):
            raise InvalidDataError(f"{self.EXTENSION_NAME}: a tensor of shape {shape} has {len(data)} elements")
        if not self._fits_uniform_shape(shape):
            raise InvalidDataError(
                f"{self.EXTENSION_NAME}: a tensor of shape {shape} does not fit uniform shape "
                f"{list(self.uniform_shape or ())}"
            )

    def _fits_uniform_shape(self, shape: Sequence[int]) -> bool:
        uniform_shape = self.uniform_shape or (None,) * self.ndim
        return all(expected in (None, size) for expected, size in zip(uniform_shape, shape, strict=True))

    def encode(self, value: Any) -> Any:
        """Return the elements of one tensor in physical order, and its physical shape."""
        physical = self._to_physical_shape(value)
        if not self._fits_uniform_shape(physical.shape):
            raise TypeMismatchError(f"a tensor of physical shape {physical.shape} does not fit {self}")
        return {"data": physical.reshape(-1), "shape": list(physical.shape)}

    def __str__(self) -> str:
        uniform_shape = f", uniform shape {list(self.uniform_shape)}" if self.uniform_shape else ""
        parameters = f"{self.value_type}, {self.ndim} dimensions{self._format_dimensions()}{uniform_shape}"
        return f"extension<{self.EXTENSION_NAME}[{parameters}]>"


def fixed_shape_tensor(
    value_type: TypeLike,
    shape: Iterable[int],
    dim_names: Iterable[str] | None = None,
    permutation: Iterable[int] | None = None,
) -> FixedShapeTensorType:
    """Tensors of one physical shape, stored as fixed-size lists of `value_type`.

    >>> import numpy as np
    >>> image = bs.datatypes.fixed_shape_tensor("uint8", (2, 3), dim_names=["row", "column"])
    >>> bs.array(np.zeros((4, 2, 3), np.uint8), image).to_numpy().shape
    (4, 2, 3)
    """
    dimensions = tuple(shape)
    if len(dimensions) > MAX_DIMENSIONS:
        raise InvalidArgumentError(f"expected a tensor of up to {MAX_DIMENSIONS} dimensions, found {len(dimensions)}")
    for size in dimensions:
        check_size("the size of a tensor's dimension", size)
    storage = t.FixedSizeList(factories.as_child_field(value_type, "item"), prod(dimensions))
    return FixedShapeTensorType(storage, _as_tuple(dim_names), _as_tuple(permutation), dimensions)


def variable_shape_tensor(
    value_type: TypeLike,
    ndim: int,
    dim_names: Iterable[str] | None = None,
    permutation: Iterable[int] | None = None,
    uniform_shape: Iterable[int | None] | None = None,
) -> VariableShapeTensorType:
    """Tensors of `ndim` dimensions, stored as a struct of elements and shape.

    >>> bs.datatypes.variable_shape_tensor("float32", 2).ndim
    2
    """
    storage = t.Struct(
        (field("data", factories.list_(value_type)), field("shape", factories.list_(factories.int32(), ndim)))
    )
    return VariableShapeTensorType(storage, _as_tuple(dim_names), _as_tuple(permutation), _as_tuple(uniform_shape))


def _as_tuple(values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
