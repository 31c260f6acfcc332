"""The hierarchy of errors: built-in classes, attributes of the operating system, pickling."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from bowstring import errors
from bowstring.datasets.column_arrays import RowError
from bowstring.errors import BowstringError, add_location, translate_os_error
from bowstring.kernels.ml_vectors import MalformedRowError

_BUILTIN_CLASSES = [
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    PermissionError,
    ConnectionRefusedError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    BlockingIOError,
    TimeoutError,
]
_NUMBERS = [
    errno.ENOENT,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EPERM,
    errno.EACCES,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.EADDRINUSE,
    errno.EADDRNOTAVAIL,
    errno.ENOSPC,
    errno.EMFILE,
]


@pytest.mark.parametrize("number", _NUMBERS, ids=errno.errorcode.__getitem__)
def test_a_system_error_keeps_its_built_in_class_and_attributes(number: int) -> None:
    cause = OSError(number, os.strerror(number), "x.arrow")
    error = translate_os_error(cause, "x.arrow: the message")
    assert isinstance(error, type(cause))
    assert isinstance(error, BowstringError)
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror, error.filename) == (number, os.strerror(number), "x.arrow")
    assert str(error) == "x.arrow: the message"


@pytest.mark.parametrize("number", _NUMBERS, ids=errno.errorcode.__getitem__)
def test_a_system_error_survives_pickling_and_copying(number: int) -> None:
    error = translate_os_error(OSError(number, os.strerror(number)), "the message", "y.arrow")
    assert isinstance(error, OSError)
    error.add_note("a note")
    others = [pickle.loads(pickle.dumps(error)), copy.copy(error)]
    for other in others:
        assert type(other) is type(error)
        assert str(other) == "the message"
        assert (other.errno, other.strerror, other.filename) == (number, os.strerror(number), "y.arrow")
        assert other.__notes__ == ["a note"]


@pytest.mark.parametrize("error", [RowError(3, "found null", "x"), MalformedRowError("vector", 3, "found null")])
def test_an_error_of_a_row_is_pickled_with_its_location_and_notes(error: BowstringError) -> None:
    located = add_location(error, "part 2")
    located.add_note("a note")
    other = pickle.loads(pickle.dumps(add_location(located, "data set d")))
    assert type(other) is type(error)
    assert str(other) == f"data set d: part 2: {error}"
    assert other.__notes__ == ["a note"]
    assert vars(other) == vars(located)


@pytest.mark.parametrize("builtin", _BUILTIN_CLASSES)
def test_an_error_without_an_errno_gets_that_of_its_class(builtin: type[OSError]) -> None:
    error = translate_os_error(builtin("text only"), "the message")
    assert isinstance(error, builtin)
    assert isinstance(error, OSError)
    assert error.errno is not None
    assert isinstance(OSError(error.errno, ""), builtin)


def test_a_subclass_of_os_error_is_recognised_by_its_errno() -> None:
    class LibraryError(OSError):
        pass

    assert isinstance(translate_os_error(LibraryError(errno.ECONNREFUSED, "no"), "message"), ConnectionRefusedError)


def test_an_error_of_this_library_is_translated_to_itself() -> None:
    error = errors.MissingFileError("message")
    assert translate_os_error(error, "another") is error


def test_every_error_is_pickled_with_its_message() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BowstringError)]
    assert len(kinds) > 20
    for kind in kinds:
        error = pickle.loads(pickle.dumps(kind("the message")))
        assert type(error) is kind
        assert str(error) == "the message"


def test_the_docstring_shows_every_class_and_its_built_in_counterpart() -> None:
    lines = (errors.__doc__ or "").splitlines()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, BowstringError) and kind is not BowstringError:
            line = next((line for line in lines if f"── {name} " in line), None)
            assert line is not None, name
            also = line.partition("(also ")[2].rstrip(")")
            assert not also or also in [base.__name__ for base in kind.__bases__], name


@pytest.mark.parametrize("kind", [errors.MissingFileError, errors.AccessDeniedError, errors.DeadlineError])
def test_an_error_with_a_location_keeps_its_class_number_file_and_notes(kind: type[errors.BowstringError]) -> None:
    error = errors.translate_os_error(OSError(errno.ENOENT, "gone", "a.arrow"), "a.arrow: is gone")
    error.add_note("a hint")
    located = errors.add_location(error, "part 3")
    assert type(located) is type(error)
    assert str(located) == "part 3: a.arrow: is gone"
    assert isinstance(located, OSError)
    assert (located.errno, located.strerror, located.filename) == (errno.ENOENT, "gone", "a.arrow")
    assert located.__notes__ == ["a hint"]
    assert str(error) == "a.arrow: is gone"
    assert str(errors.add_location(kind("problem"), "here")) == "here: problem"


def test_only_malformed_data_and_types_get_a_location_from_a_block() -> None:
    with pytest.raises(errors.TypeMismatchError, match=r"^column 'a': no number$"), errors.prefix_errors("column 'a'"):
        raise errors.TypeMismatchError("no number")
    with pytest.raises(errors.NotFoundError, match=r"^missing$"), errors.prefix_errors("column 'a'"):
        raise errors.NotFoundError("missing")


@pytest.mark.parametrize("value", [0.5, 3, float("inf"), np.float32(2), np.int64(2)])
def test_positive_numbers_are_seconds(value: float) -> None:
    seconds = errors.check_seconds("timeout_s", value)
    assert type(seconds) is float
    assert seconds == value


@pytest.mark.parametrize("value", ["3", None, True, 0, -1.0, float("nan"), 1j, [1], 10**400])
def test_other_seconds_are_errors_with_the_name(value: object) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="timeout_s: expected a positive number of seconds, found "):
        errors.check_seconds("timeout_s", value)


def test_zero_seconds_can_be_allowed() -> None:
    assert errors.check_seconds("drain_s", 0, allow_zero=True) == 0
    with pytest.raises(
        errors.InvalidArgumentError, match="drain_s: expected a number of seconds of 0 or more, found -1"
    ):
        errors.check_seconds("drain_s", -1, allow_zero=True)


def test_integers_from_a_minimum_are_counts() -> None:
    assert [errors.check_count("rows", value, 2) for value in (2, 1 << 70, np.int8(3))] == [2, 1 << 70, 3]
    for value in (1, -1, 2.0, "3", None, True, np.arange(2), np.bool_(True)):
        with pytest.raises(errors.InvalidArgumentError, match="rows: expected an integer of 2 or more, found "):
            errors.check_count("rows", value, 2)


def test_a_finalizer_creates_an_error_while_python_exits() -> None:
    code = """
import bowstring.errors
class Owner:
    def __del__(self, error=bowstring.errors.ClosedError):
        assert str(error("http://user:password@host/a?sig=secret~1~signature")) == "http://…@host/a?…"
owner = Owner()
owner.itself = owner
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
