"""Arguments and results of pyarrow's functions: which objects, types and memory; not what the functions return."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.compute.bridge import from_pyarrow, to_pyarrow
from bowstring.errors import MissingExtraError, TypeMismatchError
from tests.cases import CASES, Case

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")

NUMBERS = bs.array([1, 2, None])
WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import bowstring as bs
"""


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_every_function_and_class_of_pyarrow_is_there() -> None:
    functions = {name for name in pc.list_functions() if hasattr(pc, name)}
    assert len(functions) > 250
    assert functions | {"field", "scalar", "cast", "CountOptions", "Expression"} <= set(dir(bs.compute))
    assert set(getattr(bs.compute, "__all__")) == set(dir(bs.compute))  # noqa: B009 -- not in the stub
    assert not {"pa", "inspect", "namedtuple", "dedent"} & set(dir(bs.compute))
    for name in dir(bs.compute):
        assert callable(getattr(bs.compute, name))


def test_functions_have_the_names_and_docstrings_of_pyarrow() -> None:
    assert bs.compute.add.__name__ == "add"
    assert bs.compute.add.__doc__ == pc.add.__doc__
    assert bs.compute.CountOptions is pc.CountOptions
    assert bs.compute.add is bs.compute.add
    assert pickle.loads(pickle.dumps(bs.compute.add)) is bs.compute.add


@pytest.mark.parametrize("name", ["no_such_function", "inspect", "__wrapped__", "_compute"])
def test_other_names_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'bowstring.compute' has no attribute '{name}'"):
        getattr(bs.compute, name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_arrays_of_every_type_go_there_and_back(case: Case) -> None:
    array = case.array()
    for part in (array, array[1:], array[:0]):
        if array.type in (bs.month_interval(), bs.day_time_interval()):
            with pytest.raises(TypeMismatchError, match=f"pyarrow {pa.__version__} has no arrays of {array.type}"):
                to_pyarrow(part)
            continue
        returned = from_pyarrow(to_pyarrow(part))
        assert isinstance(returned, bs.Array)
        assert returned.equals(part, nans_equal=True)
        returned.validate(full=True)


def test_a_result_is_the_object_that_corresponds_to_that_of_pyarrow() -> None:
    chunked = bs.chunked_array([[1, 2], [None]])
    batch = bs.record_batch({"n": NUMBERS})
    table = bs.table(batch)
    assert isinstance(bs.compute.add(NUMBERS, 1), bs.Array)
    assert isinstance(bs.compute.sum(NUMBERS), bs.Scalar)
    assert bs.compute.sum(chunked) == 3
    assert bs.compute.add(chunked, bs.scalar(1)).equals(bs.chunked_array([[2, 3], [None]]))
    assert bs.compute.drop_null(batch).equals(bs.record_batch({"n": [1, 2]}))
    assert bs.compute.drop_null(table).equals(bs.table({"n": [1, 2]}))
    assert isinstance(bs.compute.field("n"), bs.compute.Expression)
    assert bs.compute.min_max(NUMBERS).as_py() == {"min": 1, "max": 2}
    assert bs.compute.cast(bs.chunked_array([], "int8"), "int16").type == bs.int16()
    assert isinstance(bs.compute.value_counts(bs.array(["a", "a"])), bs.Array)


ARGUMENTS = {
    "a list": [1, 2, None],
    "a tuple": (1, 2, None),
    "pyarrow": pa.array([1, 2, None]),
    "polars": pl.Series([1, 2, None]),
    "pandas": pd.Series([1, 2, None], dtype="Int64"),
    "NumPy": np.array([1, 2]),
}


@pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_sequences_and_columns_of_other_libraries_are_arguments(argument: Any) -> None:
    assert bs.compute.sum(argument) == 3


def test_types_fields_and_containers_of_arrays_are_converted() -> None:
    assert bs.compute.cast(NUMBERS, bs.int8()).type == bs.int8()
    assert bs.compute.cast(NUMBERS, options=bs.compute.CastOptions.safe("int8")).type == bs.int8()
    assert bs.compute.call_function("add", [NUMBERS, NUMBERS]).to_pylist() == [2, 4, None]
    assert bs.compute.is_in(NUMBERS, value_set=bs.array([2])).to_pylist() == [False, True, False]
    structs = bs.compute.make_struct(NUMBERS, NUMBERS, field_names=["a", "b"])
    assert structs.to_pylist()[0] == {"a": 1, "b": 1}
    assert bs.compute.strptime(bs.array(["2024"]), "%Y", "s").type == bs.timestamp("s")


def test_a_registered_function_has_types_of_bowstring() -> None:
    bs.compute.register_scalar_function(
        lambda _, values: pc.add(values, 1),
        "bowstring_add_one",
        {"summary": "Add one", "description": ""},
        {"values": bs.int64()},
        bs.int64(),
    )
    assert bs.compute.call_function("bowstring_add_one", [NUMBERS]).to_pylist() == [2, 3, None]


def test_the_metadata_of_fields_in_structs_is_kept() -> None:
    for value in ("x", "y"):
        type_ = bs.struct([bs.field("a", "int8", metadata={"key": value})])
        returned = bs.compute.drop_null(bs.array([{"a": 1}], type_))
        assert returned.type.fields[0].metadata == {b"key": value.encode()}


def address_of_values(array: bs.Array) -> int:
    values = array.own_buffers[1]
    assert values is not None
    return values.address


def test_no_values_are_copied() -> None:
    array = bs.array(np.arange(1000))
    there = to_pyarrow(array)
    back = from_pyarrow(there)
    assert there.buffers()[1].address == address_of_values(array) == address_of_values(back)
    del there, array
    assert back[999] == 999


def test_errors_are_those_of_pyarrow() -> None:
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        bs.compute.divide(NUMBERS, 0)
    with pytest.raises(NotImplementedError, match="add"):
        bs.compute.add(NUMBERS, "a")


def test_pyarrow_is_imported_on_first_use() -> None:
    used = "import sys\nimport bowstring as bs\nbs.compute\nbs.table({'n': [1]}).filter([('n', '>', 0)])\n"
    assert run_python(f"{used}print('pyarrow' in sys.modules)") == "False\n"


@pytest.mark.parametrize(
    "use", ["bs.compute.sum([1])", "bs.table({'n': [1]}).group_by('n')", "bs.table({'n': [1]}).join(None, 'n')"]
)
def test_without_pyarrow_the_error_names_the_extra(use: str) -> None:
    program = f"{WITHOUT_PYARROW}\ntry:\n    {use}\nexcept bs.errors.MissingExtraError as error:\n    print(error)"
    assert (
        run_python(program)
        == "pyarrow is not installed: pip install 'bowstring[compute]', or in a clone '.[compute]'\n"
    )
    assert issubclass(MissingExtraError, ImportError)
