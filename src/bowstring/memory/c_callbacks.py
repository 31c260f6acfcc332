"""Python functions as the C callbacks that release structures («Release callback semantics -- for producers»).

A consumer may call `release` from any thread, after the producer's modules are unloaded, and while a Python exception
unwinds the consumer's frames: in `pyarrow.table(table)["missing"]`, the KeyError deletes the last reference. A plain
ctypes callback would clear that exception, and the interpreter then raises `SystemError`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import get_ident
from typing import Any

_TP_ITERNEXT = 63  # `Py_tp_iternext` of typeslots.h, a number of the stable ABI


def make_immortal(value: Any) -> Any:
    """Return the value after making it immortal: C code may use it until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def _create_capsule_factory() -> Callable[[BaseException], object]:
    """Create a function that returns a capsule whose deletion raises an exception.

    ctypes clears any exception that a callback raises or leaves set. All it does afterwards is to delete what the
    callback returned, so only a C destructor can set one. A capsule's pointer and name are where a `map` object has its
    tuple of iterators and its callable. With the step function of `map` as its destructor and no iterators, the
    deletion of the capsule calls the callable, and leaves the exception of the callable set.
    """
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(("PyType_GetSlot", ctypes.pythonapi))
    step = get_slot(map, _TP_ITERNEXT)
    get_thread = get_ident
    errors: dict[int, BaseException] = {}  # by thread: another one may run before `raise_error`

    def raise_error() -> None:
        raise errors.pop(get_thread())

    iterators, function = id(make_immortal(())), id(make_immortal(raise_error))

    def create_capsule(error: BaseException) -> object:
        errors[get_thread()] = error
        return new_capsule(iterators, function, step)

    return create_capsule


def make_callback(prototype: Any, function: Callable[[int], None]) -> Any:
    """Wrap `function` as a C function of type `prototype`, which takes an address and returns nothing.

    The C function is never freed, works on any thread, and preserves an exception that is pending when it is called.
    """
    # At interpreter exit even builtins are gone, so everything the callback uses is a local variable.
    raise_pending = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
    create_capsule = _create_capsule_factory()
    base_exception = BaseException

    def call(address: int) -> object:
        pending = None
        try:
            raise_pending()
        except base_exception as error:  # an exception of the consumer
            pending = error
        function(address)
        return None if pending is None else create_capsule(pending)

    return make_immortal(prototype(call))
