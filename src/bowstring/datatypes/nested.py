"""The data types that contain other types («Data Types»): lists, structs, maps, unions, dictionaries, runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from bowstring.datatypes.field import DataType, Field, check_type
from bowstring.datatypes.non_nested import Int
from bowstring.datatypes.parameters import check_one_of, check_size, is_integer_within
from bowstring.errors import InvalidArgumentError, NotFoundError

DICTIONARY_ORDERED, MAP_KEYS_SORTED = 1, 4
"""ARROW_FLAG_DICTIONARY_ORDERED and ARROW_FLAG_MAP_KEYS_SORTED of the C data interface."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _UnnamedChildren(DataType):
    """A type that is equal to others whose children have other names, as in pyarrow: producers choose them freely."""

    def _identity(self) -> tuple[object, ...]:
        """What makes two types of this class equal."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return False
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.__class__, self._identity()))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaseList(_UnnamedChildren):
    """The base of the list types.

    >>> [isinstance(type, bs.datatypes.BaseList) for type in (bs.list_view("int8"), bs.map_("int8", "int8"))]
    [True, False]
    """

    value_field: Field

    def _identity(self) -> tuple[object, ...]:
        return self.value_field.type, self.value_field.nullable

    @property
    def value_type(self) -> DataType:
        """The data type of the elements."""
        return self.value_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The field of the elements."""
        return (self.value_field,)

    def __str__(self) -> str:
        return f"{self.NAME}<{self.value_field._to_string()}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class List(BaseList):
    """Lists with 32-bit offsets.

    >>> bs.list_("int8").value_type
    DataType(int8)
    """

    NAME: ClassVar[str] = "list"
    C_FORMAT: ClassVar[bytes] = b"+l"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeList(BaseList):
    """Lists with 64-bit offsets.

    >>> isinstance(bs.large_list("int8"), bs.datatypes.LargeList)
    True
    """

    NAME: ClassVar[str] = "large_list"
    C_FORMAT: ClassVar[bytes] = b"+L"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ListView(BaseList):
    """Lists with 32-bit offsets and sizes, in any order.

    >>> bs.list_view("int8").value_type
    DataType(int8)
    """

    NAME: ClassVar[str] = "list_view"
    C_FORMAT: ClassVar[bytes] = b"+vl"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeListView(BaseList):
    """Lists with 64-bit offsets and sizes, in any order.

    >>> isinstance(bs.large_list_view("int8"), bs.datatypes.LargeListView)
    True
    """

    NAME: ClassVar[str] = "large_list_view"
    C_FORMAT: ClassVar[bytes] = b"+vL"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FixedSizeList(BaseList):
    """Lists of exactly `list_size` elements.

    >>> bs.list_("float32", 3).list_size
    3
    """

    list_size: int

    def __post_init__(self) -> None:
        check_size("a fixed-size list's size", self.list_size)

    def _identity(self) -> tuple[object, ...]:
        return self.value_field.type, self.value_field.nullable, self.list_size

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"+w:%d" % self.list_size

    def __str__(self) -> str:
        return f"fixed_size_list<{self.value_field._to_string()}>[{self.list_size}]"


@dataclass(frozen=True, slots=True, repr=False)
class Struct(DataType):
    """A value for each of several named fields.

    >>> [field.name for field in bs.struct({"x": "int8", "y": "string"}).fields]
    ['x', 'y']
    """

    C_FORMAT: ClassVar[bytes] = b"+s"

    children: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        return [f.name for f in self.children]

    def get_all_field_indices(self, name: str) -> list[int]:
        """Return the indices of all fields of that name."""
        return [index for index, f in enumerate(self.children) if f.name == name]

    def get_field_index(self, name: str) -> int:
        """Return the index of a field by name; -1 if there is none, or several have that name."""
        indices = self.get_all_field_indices(name)
        return indices[0] if len(indices) == 1 else -1

    def field(self, key: str | int) -> Field:
        """Return a field by name or index. Raises `NotFoundError` unless there is exactly one."""
        # -1 is the last field, but for a name it means that there is no such field, or several.
        index = self.get_field_index(key) if isinstance(key, str) else key
        if not is_integer_within(index, -len(self.children), len(self.children) - 1) or (index < 0 and index != key):
            raise NotFoundError(f"expected the name or the index of one field of {self}, found {key!r}")
        return self.children[index]

    def __getitem__(self, key: str | int) -> Field:
        return self.field(key)

    def __len__(self) -> int:
        return len(self.children)

    def __bool__(self) -> bool:
        return True  # also without fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.children)

    def __str__(self) -> str:
        return f"struct<{', '.join(f._to_string() for f in self.children)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Map(_UnnamedChildren):
    """Lists of key-value pairs: lists of structs of a key and a value.

    Entries and keys are not nullable, even if their fields were: files that declare it are valid for some writers, but
    other readers reject them.

    >>> type_ = bs.map_("string", "int64")
    >>> type_.key_field.type, type_.item_field.type
    (DataType(string), DataType(int64))
    """

    C_FORMAT: ClassVar[bytes] = b"+m"

    entries_field: Field
    keys_sorted: bool = False

    def __post_init__(self) -> None:
        if len(self.entries_field.type.fields) != 2 or not isinstance(self.entries_field.type, Struct):
            raise InvalidArgumentError(
                f"a map's entries are a struct of a key and a value, not {self.entries_field.type}"
            )
        if self.entries_field.nullable or self.key_field.nullable:
            entries = Struct((self.key_field.with_nullable(False), self.item_field))
            object.__setattr__(self, "entries_field", self.entries_field.with_type(entries).with_nullable(False))

    def _identity(self) -> tuple[object, ...]:
        return (
            *((f.type, f.nullable) for f in self.entries_field.type.fields),
            self.entries_field.nullable,
            self.keys_sorted,
        )

    @property
    def key_field(self) -> Field:
        """The field of the keys."""
        return self.entries_field.type.fields[0]

    @property
    def item_field(self) -> Field:
        """The field of the values."""
        return self.entries_field.type.fields[1]

    @property
    def key_type(self) -> DataType:
        """The data type of the keys."""
        return self.key_field.type

    @property
    def item_type(self) -> DataType:
        """The data type of the values."""
        return self.item_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The field of the entries."""
        return (self.entries_field,)

    @property
    def c_flags(self) -> int:
        """Return MAP_KEYS_SORTED, or 0."""
        return MAP_KEYS_SORTED if self.keys_sorted else 0

    def __str__(self) -> str:
        mark = ", keys_sorted" if self.keys_sorted else ""
        return f"map<{self.key_field.type}, {self.item_field.type}{mark}>"


@dataclass(frozen=True, slots=True, repr=False)
class Union(DataType):
    """Values of one of several types each; `type_ids[i]` identifies child i.

    >>> bs.dense_union({"n": "int64", "s": "string"}).mode
    'dense'
    """

    mode: Literal["sparse", "dense"]
    children: tuple[Field, ...]
    type_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        check_one_of("a union's mode", self.mode, ("sparse", "dense"))
        if len(self.type_ids) != len(self.children):
            raise InvalidArgumentError(
                f"a union of {len(self.children)} fields needs as many type ids, not {self.type_ids}"
            )
        if len(set(self.type_ids)) != len(self.type_ids) or not all(
            is_integer_within(i, 0, 127) for i in self.type_ids
        ):
            raise InvalidArgumentError(f"a union's type ids are distinct integers from 0 to 127, not {self.type_ids}")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    @property
    def type_codes(self) -> list[int]:
        """The type ids, in order."""
        return list(self.type_ids)

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"+u%c:%s" % (self.mode[0].encode(), ",".join(map(str, self.type_ids)).encode())

    def __str__(self) -> str:
        inside = ", ".join(f"{f._to_string()}={i}" for f, i in zip(self.children, self.type_ids, strict=True))
        return f"{self.mode}_union<{inside}>"


@dataclass(frozen=True, slots=True, repr=False)
class Dictionary(DataType):
    """Indices into a dictionary of values.

    >>> type_ = bs.dictionary("int8", "string")
    >>> type_.index_type, type_.value_type, type_.ordered
    (DataType(int8), DataType(string), False)
    """

    index_type: Int
    value_type: DataType
    ordered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.index_type, Int):
            raise InvalidArgumentError(f"dictionary indices are integers, not {self.index_type}")
        check_type("a dictionary's values", self.value_type)

    def child_field_metadata(self) -> tuple[object, ...]:
        """The custom metadata of the fields in the dictionary's type."""
        return self.value_type.child_field_metadata()

    def c_format(self) -> bytes:
        """Return the format string of the indices."""
        return self.index_type.c_format()

    @property
    def c_flags(self) -> int:
        """Return DICTIONARY_ORDERED, or 0."""
        return DICTIONARY_ORDERED if self.ordered else 0

    @property
    def c_dictionary_type(self) -> DataType:
        """The type of the dictionary's values."""
        return self.value_type

    def __str__(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RunEndEncoded(_UnnamedChildren):
    """Runs of equal values: the end and the value of each run.

    >>> bs.run_end_encoded("int32", "string").value_type
    DataType(string)
    """

    C_FORMAT: ClassVar[bytes] = b"+r"

    run_ends_field: Field
    values_field: Field

    def __post_init__(self) -> None:
        ends = self.run_ends_field.type
        if not isinstance(ends, Int) or not ends.is_signed or ends.bit_width == 8:
            raise InvalidArgumentError(f"run ends are int16, int32 or int64, not {ends}")

    def _identity(self) -> tuple[object, ...]:
        return self.run_ends_field.type, self.values_field.type, self.values_field.nullable

    @property
    def run_end_type(self) -> DataType:
        """The data type of the run ends."""
        return self.run_ends_field.type

    @property
    def value_type(self) -> DataType:
        """The data type of the values."""
        return self.values_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The run ends and the values."""
        return (self.run_ends_field, self.values_field)

    def __str__(self) -> str:
        return f"run_end_encoded<run_ends: {self.run_end_type}, values: {self.value_type}>"
