"""Arguments and results of pyarrow's functions: which objects, types and memory; not what the functions return."""

from __future__ import annotations

import copy
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
    assert issubclass(bs.compute.CountOptions, pc.CountOptions)
    assert bs.compute.CountOptions.__doc__ == pc.CountOptions.__doc__
    assert repr(bs.compute.CountOptions(mode="all")) == repr(pc.CountOptions(mode="all"))
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


def test_a_registered_function_has_types_and_arrays_of_bowstring() -> None:
    def add_one(_: object, values: bs.Array) -> bs.Array:
        assert values.type == bs.int64()
        return bs.compute.add(values, 1)  # type: ignore[no-any-return]

    bs.compute.register_scalar_function(
        add_one,
        "bowstring_add_one",
        {"summary": "Add one", "description": ""},
        {"values": bs.int64()},
        bs.int64(),
    )
    assert bs.compute.call_function("bowstring_add_one", [NUMBERS]).to_pylist() == [2, 3, None]


TABLE = bs.table({"n": [1, 2, 3], "s": ["x", "y", None]})


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        (bs.compute.field("n") > bs.compute.mean(TABLE["n"]), [3]),
        (bs.scalar(2) < bs.compute.field("n"), [3]),
        (2 * bs.compute.field("n") == bs.scalar(4), [2]),
        (bs.compute.field("n").cast(bs.float64()) > 1.5, [2, 3]),
        (bs.compute.field("n").isin(bs.array([1, 3])), [1, 3]),
        (bs.compute.is_in(bs.compute.field("n"), value_set=bs.array([1, 3])), [1, 3]),
        (bs.compute.scalar(bs.scalar(3)) == bs.compute.field("n"), [3]),
        (~(bs.compute.field("s") == "x") & bs.compute.field("s").is_valid(), [2]),
        (pc.field("n") > 2, [3]),
    ],
    ids=str,
)
def test_an_expression_takes_types_scalars_and_arrays(expression: Any, rows: list[int]) -> None:
    assert TABLE.filter(expression)["n"].to_pylist() == rows
    assert TABLE.to_batches()[0].filter(expression)["n"].to_pylist() == rows


def test_an_expression_is_pyarrow_s_in_all_but_its_arguments() -> None:
    expression, other = bs.compute.field("n") > 1, pc.field("n") > 1
    assert isinstance(expression, bs.compute.Expression)
    assert (str(expression), repr(expression)) == (str(other), repr(other))
    assert expression.pyarrow_expression.equals(other)
    assert expression.equals(other)
    assert expression.equals(pickle.loads(pickle.dumps(copy.copy(expression))))
    assert pa.table(TABLE).filter(expression.pyarrow_expression).num_rows == 2
    is_x = bs.compute.field("s") == "x"
    assert TABLE.join(bs.table({"n": [1, 2]}), "n", join_type="inner", filter_expression=is_x)["n"].to_pylist() == [1]
    with pytest.raises(TypeError, match="filter_expression"):
        TABLE.join(bs.table({"n": [1, 2]}), "n", filter_expression=("s", "=", "x"))
    with pytest.raises(ValueError, match="cannot be evaluated"):
        bool(expression)
    with pytest.raises(AttributeError, match="no_such_method"):
        expression.no_such_method()


def test_options_take_types_and_arrays() -> None:
    for options in (bs.compute.CastOptions(bs.int8()), bs.compute.CastOptions.safe(target_type=bs.int8())):
        assert bs.compute.cast(NUMBERS, options=options).type == bs.int8()
    options = bs.compute.SetLookupOptions(value_set=bs.array([2]))
    assert bs.compute.call_function("is_in", [NUMBERS], options).to_pylist() == [False, True, False]


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
