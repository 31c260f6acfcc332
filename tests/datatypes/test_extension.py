"""Extension types: a registered class converts values to and from its storage type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

import bowstring as bs
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY, resolve_extension_type, to_storage_field
from bowstring.errors import InvalidDataError


@dataclass(frozen=True, slots=True, repr=False)
class UuidType(bs.datatypes.ExtensionType):
    EXTENSION_NAME: ClassVar[str] = "test.uuid"

    def decode(self, value: Any) -> UUID:
        return UUID(bytes=value)

    def encode(self, value: Any) -> Any:
        return value.bytes


@dataclass(frozen=True, slots=True, repr=False)
class UnitType(bs.datatypes.ExtensionType):
    EXTENSION_NAME: ClassVar[str] = "test.unit"

    unit: str

    def serialize(self) -> bytes:
        return self.unit.encode()

    @classmethod
    def deserialize(cls, storage_type: bs.DataType, serialized: bytes) -> UnitType:
        return cls(storage_type, serialized.decode())


UUIDS = UuidType(bs.binary(16))


@pytest.fixture
def registered() -> Iterator[None]:
    bs.datatypes.register_extension_type(UuidType)
    bs.datatypes.register_extension_type(UnitType)
    yield
    bs.datatypes.unregister_extension_type("test.uuid")
    bs.datatypes.unregister_extension_type("test.unit")


def test_values_are_converted_by_the_type_in_both_directions() -> None:
    values = [uuid4(), None, uuid4()]
    array = bs.array(values, UUIDS)
    array.validate(full=True)
    assert array.type == UUIDS
    assert array.to_pylist() == values
    assert array[0] == values[0]
    assert array.null_count == 1
    assert array.storage.type == bs.binary(16)
    assert array.storage.own_buffers is array.own_buffers
    assert array.slice(1).compact().to_pylist() == values[1:]
    assert bs.concat_arrays([array, array]).take([5, 0]).to_pylist() == [values[2], values[0]]
    assert array.equals(bs.array(values, UUIDS))
    assert not array.equals(array.storage)
    assert str(UUIDS) == "extension<test.uuid[fixed_size_binary[16]]>"


@pytest.mark.parametrize(
    "storage",
    [
        bs.list_(bs.int8()),
        bs.dictionary(bs.int8(), bs.string()),
        bs.string_view(),
        bs.struct({"a": bs.int8()}),
        bs.null(),
    ],
    ids=str,
)
def test_every_storage_type_keeps_its_layout(storage: bs.DataType) -> None:
    type_ = UnitType(storage, "m")
    values = {"list": [[1], None], "struct": [{"a": 1}, None], "null": [None, None]}.get(str(storage).split("<")[0])
    values = values or ["x", None]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert array.to_pylist() == values
    assert array.null_count == values.count(None)
    assert bs.concat_arrays([array, array.slice(1)]).to_pylist() == [*values, None]
    assert array.layout.VARIADIC == array.storage.layout.VARIADIC
    nested = bs.array([values, None], bs.list_(type_))
    assert nested.to_pylist() == [values, None]


@pytest.mark.usefixtures("registered")
def test_fields_are_restored_from_metadata() -> None:
    field = bs.field("id", UnitType(bs.float64(), "m/s"), metadata={"k": "v"})
    plain = to_storage_field(field)
    assert plain.type == bs.float64()
    assert plain.metadata == {b"k": b"v", NAME_KEY: b"test.unit", METADATA_KEY: b"m/s"}
    assert resolve_extension_type(plain).equals(field, check_metadata=True)
    assert to_storage_field(bs.field("x", bs.int8())) == bs.field("x", bs.int8())


def test_unknown_extensions_are_unchanged() -> None:
    field = bs.field("x", bs.int8(), metadata={NAME_KEY: b"nobody.knows\xff", METADATA_KEY: b"?"})
    assert resolve_extension_type(field) is field


@pytest.mark.usefixtures("registered")
def test_parameters_are_validated() -> None:
    field = bs.field("x", bs.binary(16), metadata={NAME_KEY: b"test.uuid", METADATA_KEY: b"unexpected"})
    with pytest.raises(InvalidDataError, match="UuidType has no parameters"):
        resolve_extension_type(field)


@pytest.mark.usefixtures("registered")
def test_parameters_that_raise_in_the_class_are_invalid_data() -> None:
    field = bs.field("x", bs.int8(), metadata={NAME_KEY: b"test.unit", METADATA_KEY: b"\xff\xfe"})
    with pytest.raises(InvalidDataError, match=r"not valid metadata of UnitType.*UnicodeDecodeError"):
        resolve_extension_type(field)


@pytest.mark.parametrize("what", [int, UUIDS, "test.uuid", None])
def test_only_extension_types_can_be_registered(what: Any) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match="ExtensionType"):
        bs.datatypes.register_extension_type(what)


@pytest.mark.usefixtures("registered")
def test_a_name_can_be_registered_once() -> None:
    class Other(UuidType):
        pass

    with pytest.raises(bs.errors.InvalidArgumentError, match="taken by UuidType"):
        bs.datatypes.register_extension_type(Other)
    assert bs.datatypes.register_extension_type(UuidType) is UuidType
    with pytest.raises(bs.errors.InvalidArgumentError, match="no EXTENSION_NAME"):
        bs.datatypes.register_extension_type(bs.datatypes.ExtensionType)
    with pytest.raises(bs.errors.InvalidArgumentError, match="no extension type is called"):
        bs.datatypes.unregister_extension_type("test.nobody")


def test_the_repr_survives_a_failing_decoder() -> None:
    array = bs.array([b"short"], bs.binary()).with_layout(bs.array([], UuidType(bs.binary())).layout)
    with pytest.raises(ValueError, match="16"):
        array.to_pylist()
    assert repr(array).startswith("<bowstring.Array extension<test.uuid[binary]>[1]>\n[<")
