from __future__ import annotations

import pickle
import weakref
from typing import Any

import pytest

import bowstring as bs

OBJECTS = {
    "array": bs.array([[1], None]),
    "chunked array": bs.chunked_array([[1], [2]]),
    "scalar": bs.scalar(5),
    "batch": bs.record_batch({"a": [1]}),
    "table": bs.table({"a": [1]}),
    "schema": bs.schema({"a": "int8"}),
    "field": bs.field("a", "int8"),
    "type": bs.struct({"a": "int8"}),
    "extension type": bs.uuid(),
    "buffer": bs.array([1]).buffers()[1],
}


@pytest.mark.parametrize("value", OBJECTS.values(), ids=list(OBJECTS))
def test_objects_are_values_of_weak_dictionaries_and_still_pickled(value: Any) -> None:
    copied = value if isinstance(value, bs.memory.Buffer) else pickle.loads(pickle.dumps(value))
    names = weakref.WeakValueDictionary({"name": copied})
    assert names["name"] == value
    weakref.finalize(copied, lambda: None).detach()
