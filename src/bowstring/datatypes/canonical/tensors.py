"""«Fixed shape tensor» and «Variable shape tensor» of the canonical extension types: an array in each row.

The elements lie in C order of the physical shape. With a `permutation`, dimension i of what is shown is dimension
`permutation[i]` of what is stored.

>>> import bowstring as bs
>>> import numpy as np
>>> images = bs.array(np.arange(12, dtype=np.int16).reshape(2, 2, 3), bs.fixed_shape_tensor(bs.int16(), (2, 3)))
>>> images.to_numpy().shape, images[1].tolist()
((2, 2, 3), [[6, 7, 8], [9, 10, 11]])
>>> ragged = bs.array([np.eye(2), np.ones((1, 3))], bs.variable_shape_tensor(bs.float64(), 2))
>>> [value.shape for value in ragged.to_pylist()]
[(2, 2), (1, 3)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bowstring.datatypes.base import TypeLike, check_size, check_text
from bowstring.datatypes.canonical.parameters import (
    MAX_DIMENSIONS,
    names,
    permutation as read_permutation,
    read_parameters,
    sizes,
    write_parameters,
)
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.field import field
from bowstring.datatypes.types import (
    Bool,
    DataType,
    FixedSizeList,
    FloatingPoint,
    Int,
    List,
    Struct,
    as_field,
    int32,
    list_,
)
from bowstring.errors import DataTypeError, InvalidDataError, UsageError

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, repr=False)
class TensorType(ExtensionType):
    """The base of both: what `dim_names` and `permutation` mean."""

    @property
    def _axes(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _shown(self, elements: Any, shape: Sequence[int], value_type: DataType) -> npt.NDArray[Any]:
        """One tensor from its elements in C order of the physical shape."""
        dtype = None if any(element is None for element in elements) else _dtype(value_type)
        flat = np.fromiter(elements, np.dtype(dtype or object), len(elements))
        return flat.reshape(shape).transpose(self._axes)

    def _stored(self, value: Any) -> npt.NDArray[Any]:
        """A tensor in its physical shape."""
        array = np.asarray(value)
        if array.ndim != len(self._axes):
            raise DataTypeError(f"a tensor of {array.ndim} dimensions is no value of {self}")
        return array.transpose(np.argsort(self._axes))


def _dtype(type_: DataType) -> np.dtype[Any] | None:
    if isinstance(type_, Int):
        return np.dtype(f"{'i' if type_.is_signed else 'u'}{type_.bit_width // 8}")
    if isinstance(type_, FloatingPoint):
        return np.dtype(f"f{type_.bit_width // 8}")
    return np.dtype(np.bool_) if isinstance(type_, Bool) else None


def _check_dimensions(
    name: str, count: int, dim_names: tuple[str, ...] | None, permutation: tuple[int, ...] | None
) -> None:
    if count > MAX_DIMENSIONS:
        raise UsageError(f"{name}: a tensor has up to {MAX_DIMENSIONS} dimensions, not {count}")
    if dim_names is not None and len(dim_names) != count:
        raise UsageError(f"{name}: 'dim_names' has {len(dim_names)} names for {count} dimensions")
    for each in dim_names or ():
        check_text(f"{name}: the name of a dimension", each)
    if permutation is not None and sorted(permutation) != list(range(count)):
        raise UsageError(f"{name}: 'permutation' {list(permutation)} is none of {count} dimensions")


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class FixedShapeTensorType(TensorType):
    """Tensors of one shape, as fixed-size lists. Values are NumPy arrays, and so is `Array.to_numpy` as a whole.

    `shape` and `dim_names` are those of what is stored; see `permutation` above.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.fixed_shape_tensor"

    shape: tuple[int, ...]
    dim_names: tuple[str, ...] | None = None
    permutation: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        storage = self.storage_type
        if not isinstance(storage, FixedSizeList):
            raise UsageError(f"{self.EXTENSION_NAME} is stored as a fixed-size list, not as {storage}")
        _check_dimensions(self.EXTENSION_NAME, len(self.shape), self.dim_names, self.permutation)
        if prod(self.shape) != storage.list_size:
            raise UsageError(
                f"{self.EXTENSION_NAME}: 'shape' {list(self.shape)} has {prod(self.shape)} elements, its storage "
                f"{storage.list_size}"
            )

    @property
    def value_type(self) -> DataType:
        """The data type of the elements."""
        assert isinstance(self.storage_type, FixedSizeList)
        return self.storage_type.value_type

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.permutation or tuple(range(len(self.shape)))

    def serialize(self) -> bytes:
        """Shape, names and permutation as a JSON object."""
        return write_parameters(shape=self.shape, permutation=self.permutation, dim_names=self.dim_names)

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """The type for a JSON object with the shape, and names and permutation if they are there."""
        name = cls.EXTENSION_NAME
        found = read_parameters(name, serialized, ("shape", "dim_names", "permutation"))
        if "shape" not in found:
            raise InvalidDataError(f"{name}: its metadata {serialized[:60]!r} lacks 'shape'")
        return cls(
            storage_type,
            sizes(name, "shape", found["shape"]),
            names(name, "dim_names", found.get("dim_names")),
            read_permutation(name, "permutation", found.get("permutation")),
        )

    def decode(self, value: Any) -> npt.NDArray[Any]:
        """The elements of one tensor as a NumPy array."""
        return self._shown(value, self.shape, self.value_type)

    def encode(self, value: Any) -> Any:
        """The elements of one tensor, in the order in which they are stored."""
        stored = self._stored(value)
        if stored.shape != self.shape:
            raise DataTypeError(f"a tensor of physical shape {stored.shape} is no value of {self}")
        return stored.reshape(-1).tolist()

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:  # noqa: ARG002
        """All tensors as one array, the rows first, without copying."""
        if values.ndim == 1:
            return values  # nulls, or elements that NumPy has no type for
        return values.reshape(len(values), *self.shape).transpose(0, *(axis + 1 for axis in self._axes))

    def to_storage_numpy(self, values: Any) -> Any:
        """One array of all tensors as lists of their elements; copied only where it lies otherwise."""
        if values.ndim != len(self.shape) + 1:
            return None
        stored = values.transpose(0, *(int(axis) + 1 for axis in np.argsort(self._axes)))
        if stored.shape[1:] != self.shape:
            raise DataTypeError(f"tensors of physical shape {stored.shape[1:]} are no values of {self}")
        return np.ascontiguousarray(stored).reshape(len(stored), prod(self.shape))

    def __str__(self) -> str:
        more = f", permutation {list(self.permutation)}" if self.permutation else ""
        named = f", dimensions {list(self.dim_names)}" if self.dim_names else ""
        return f"extension<{self.EXTENSION_NAME}[{self.value_type}, shape {list(self.shape)}{named}{more}]>"


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class VariableShapeTensorType(TensorType):
    """Tensors of any shape with one number of dimensions, as a struct of `data` and `shape`. Values are NumPy arrays.

    `uniform_shape` has the sizes of the dimensions that are the same in all rows, None for the others.
    """

    EXTENSION_NAME: ClassVar[str] = "arrow.variable_shape_tensor"

    dim_names: tuple[str, ...] | None = None
    permutation: tuple[int, ...] | None = None
    uniform_shape: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        name, storage = self.EXTENSION_NAME, self.storage_type
        found = {f.name: f.type for f in storage.fields} if isinstance(storage, Struct) else {}
        data, shape = found.get("data"), found.get("shape")
        sound = isinstance(data, List) and isinstance(shape, FixedSizeList) and shape.value_type == Int(32)
        if not sound or len(storage.fields) != 2:
            raise UsageError(
                f"{name} is stored as a struct of a list 'data' and a fixed-size list of int32 'shape', not {storage}"
            )
        _check_dimensions(name, self.ndim, self.dim_names, self.permutation)
        if self.uniform_shape is not None and len(self.uniform_shape) != self.ndim:
            raise UsageError(f"{name}: 'uniform_shape' {list(self.uniform_shape)} is none of {self.ndim} dimensions")

    def _child(self, name: str) -> Any:
        return next(f.type for f in self.storage_type.fields if f.name == name)

    @property
    def value_type(self) -> DataType:
        """The data type of the elements."""
        made: DataType = self._child("data").value_type
        return made

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        count: int = self._child("shape").list_size
        return count

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.permutation or tuple(range(self.ndim))

    def serialize(self) -> bytes:
        """What there is of names, permutation and uniform shape as a JSON object."""
        return write_parameters(
            permutation=self.permutation, dim_names=self.dim_names, uniform_shape=self.uniform_shape
        )

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """The type for a JSON object with names, permutation and uniform shape if they are there, or nothing."""
        name = cls.EXTENSION_NAME
        found = read_parameters(name, serialized, ("dim_names", "permutation", "uniform_shape"))
        uniform = found.get("uniform_shape")
        return cls(
            storage_type,
            names(name, "dim_names", found.get("dim_names")),
            read_permutation(name, "permutation", found.get("permutation")),
            None if uniform is None else sizes(name, "uniform_shape", uniform, nullable=True),
        )

    def decode(self, value: Any) -> npt.NDArray[Any]:
        """One tensor as a NumPy array; raises `InvalidDataError` where elements and shape do not agree."""
        self.check_value(value)
        return self._shown(value["data"], value["shape"], self.value_type)

    def check_value(self, value: Any) -> None:
        """Raise `InvalidDataError` where elements, shape and uniform shape do not agree."""
        data, shape = value["data"], value["shape"]
        if data is None or shape is None or any(size is None or size < 0 for size in shape):
            raise InvalidDataError(f"{self.EXTENSION_NAME}: a tensor of shape {shape!r:.60} is none")
        if prod(shape) != len(data):
            raise InvalidDataError(f"{self.EXTENSION_NAME}: a tensor of shape {shape} with {len(data)} elements")
        if not self._is_uniform(shape):
            raise InvalidDataError(
                f"{self.EXTENSION_NAME}: a tensor of shape {shape} among those of {list(self.uniform_shape or ())}"
            )

    def _is_uniform(self, shape: Sequence[int]) -> bool:
        wanted = self.uniform_shape or (None,) * self.ndim
        return all(one is None or one == size for one, size in zip(wanted, shape, strict=True))

    def encode(self, value: Any) -> Any:
        """The elements of one tensor, in the order in which they are stored, and its physical shape."""
        stored = self._stored(value)
        if not self._is_uniform(stored.shape):
            raise DataTypeError(f"a tensor of physical shape {stored.shape} is no value of {self}")
        return {"data": stored.reshape(-1).tolist(), "shape": list(stored.shape)}

    def __str__(self) -> str:
        more = f", permutation {list(self.permutation)}" if self.permutation else ""
        named = f", dimensions {list(self.dim_names)}" if self.dim_names else ""
        uniform = f", uniform shape {list(self.uniform_shape)}" if self.uniform_shape else ""
        return f"extension<{self.EXTENSION_NAME}[{self.value_type}, {self.ndim} dimensions{named}{more}{uniform}]>"


def fixed_shape_tensor(
    value_type: TypeLike,
    shape: Iterable[int],
    dim_names: Iterable[str] | None = None,
    permutation: Iterable[int] | None = None,
) -> FixedShapeTensorType:
    """Tensors of one physical shape, stored as fixed-size lists of `value_type`."""
    made = tuple(shape)
    if len(made) > MAX_DIMENSIONS:
        raise UsageError(f"a tensor has up to {MAX_DIMENSIONS} dimensions, not {len(made)}")
    for size in made:
        check_size("the size of a tensor's dimension", size)
    storage = FixedSizeList(as_field(value_type, "item"), prod(made))
    return FixedShapeTensorType(storage, made, _tuple(dim_names), _tuple(permutation))


def variable_shape_tensor(
    value_type: TypeLike,
    ndim: int,
    dim_names: Iterable[str] | None = None,
    permutation: Iterable[int] | None = None,
    uniform_shape: Iterable[int | None] | None = None,
) -> VariableShapeTensorType:
    """Tensors of `ndim` dimensions, each of its own shape, stored as a struct of elements and shape."""
    storage = Struct((field("data", list_(value_type)), field("shape", list_(int32(), ndim))))
    return VariableShapeTensorType(storage, _tuple(dim_names), _tuple(permutation), _tuple(uniform_shape))


def _tuple(values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
