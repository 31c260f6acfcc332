"""Type parameters that JSON can express but no valid writer produces."""

from __future__ import annotations

import io

import numpy as np
import pytest

import bowstring as bs
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY, resolve_extension_type
from bowstring.errors import InvalidArgumentError, InvalidDataError

PAIR = bs.list_(bs.int8(), 2)


def extension_field(name: str, parameters: bytes, storage: bs.DataType) -> bs.Field:
    return bs.Field("x", storage, True, ((NAME_KEY, name.encode()), (METADATA_KEY, parameters)))


@pytest.mark.parametrize(
    ("name", "parameters", "storage"),
    [
        ("arrow.fixed_shape_tensor", rb'{"shape":[2],"dim_names":["\ud800"]}', PAIR),
        (
            "arrow.variable_shape_tensor",
            rb'{"dim_names":["a","\udfff"]}',
            bs.struct({"data": bs.list_(bs.int8()), "shape": bs.list_(bs.int32(), 2)}),
        ),
        ("arrow.opaque", rb'{"type_name":"\ud800","vendor_name":"x"}', bs.binary()),
        ("arrow.opaque", rb'{"type_name":"x","vendor_name":"\ud800"}', bs.binary()),
    ],
)
def test_a_name_that_utf8_cannot_encode_is_rejected_on_reading(
    name: str, parameters: bytes, storage: bs.DataType
) -> None:
    with pytest.raises(InvalidDataError, match="surrogates"):
        resolve_extension_type(extension_field(name, parameters, storage))


@pytest.mark.parametrize(
    "parameters", [b'{"shape":[2],"shape":[1,2]}', b'{"shape":[2],"other":{"a":1,"a":2}}', b'{"shape":[2],"shape":[2]}']
)
def test_duplicate_keys_are_rejected(parameters: bytes) -> None:
    with pytest.raises(InvalidDataError, match="duplicate key"):
        resolve_extension_type(extension_field("arrow.fixed_shape_tensor", parameters, PAIR))


def test_a_type_with_names_that_cannot_be_written_is_rejected() -> None:
    for make in (
        lambda: bs.timestamp("s", "\ud800"),
        lambda: bs.datatypes.opaque(bs.binary(), "\ud800", "x"),
        lambda: bs.datatypes.fixed_shape_tensor(bs.int8(), (2,), dim_names=["\ud800"]),
        lambda: bs.datatypes.variable_shape_tensor(bs.int8(), 1, ["\ud800"]),
        lambda: bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.zeros((2, 2)), ["a", "\ud800"]), io.BytesIO()),
    ):
        with pytest.raises(InvalidArgumentError, match="surrogates"):
            make()
