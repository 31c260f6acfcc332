"""Python functions as the C callbacks that release structures («Release callback semantics -- for producers»).

A consumer may call `release` from any thread, after the producer's modules are unloaded, and while a Python exception
unwinds the consumer's frames: a frame may own the last reference to the structure. A plain ctypes callback would lose
that exception (the interpreter then raises `SystemError`), so `make_callback` saves and restores it.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from typing import Any

_CAN_RESTORE_EXCEPTIONS = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
_TP_DEALLOC, _TP_ITERNEXT = 52, 63


class _PyTypeSlot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _PyTypeSpec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    )


_Object = ctypes.c_int64 * 5
"""The fields of a `map` object: reference count, type, tuple of iterators, callable, and a flag."""


def _create_raising_type() -> type:
    """Create a type whose deallocation calls the object's callable and leaves its exception set.

    `Py_DECREF` of the returned object is the only thing that ctypes does after a callback returns. The deallocation
    slot is the step function of `map`: with no iterators, it calls the callable and returns NULL with the exception
    set.
    """
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(("PyType_GetSlot", ctypes.pythonapi))
    from_spec = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    step = get_slot(map, _TP_ITERNEXT)
    slots = (_PyTypeSlot * 2)(_PyTypeSlot(_TP_DEALLOC, step), _PyTypeSlot(0, None))
    spec = _PyTypeSpec(b"bowstring.RestoreError", ctypes.sizeof(_Object), 0, 0, ctypes.addressof(slots))
    raising_type: type = from_spec(ctypes.addressof(spec))
    return raising_type


def make_immortal(value: Any) -> Any:
    """Return the value after making it immortal: C code may use it until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def make_callback(prototype: Any, function: Callable[[int], None]) -> Any:
    """Wrap `function` as a C function of type `prototype`, which takes an address and returns nothing.

    The C function is never freed, works on any thread, and preserves an exception that is pending when it is called.
    """
    raise_pending = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
    raising = make_immortal(_create_raising_type()) if _CAN_RESTORE_EXCEPTIONS else None
    objects: deque[Any] = deque(maxlen=1024)  # each is needed only until the callback returns

    def create_raising_object(
        error: BaseException,
        _objects: Any = objects,
        _object: Any = _Object,
        _ctypes: Any = ctypes,
        _type: Any = raising,
        _id: Any = id,
    ) -> Any:
        errors, no_iterators = [error], ()

        def raise_error() -> None:
            raise errors.pop()

        instance = _object(0, _id(_type), _id(no_iterators), _id(raise_error), 0)
        _objects.append((instance, no_iterators, raise_error))
        return _ctypes.cast(_ctypes.addressof(instance), _ctypes.py_object).value

    # At interpreter exit even builtins are gone, so everything the callback uses is bound as a default.
    def call(
        address: int,
        _function: Any = function,
        _raise_pending: Any = raise_pending,
        _create_raising_object: Any = create_raising_object if raising is not None else None,
        _base_exception: Any = BaseException,
    ) -> Any:
        pending = None
        try:
            _raise_pending()
        except _base_exception as error:  # an exception of the consumer
            pending = error
        _function(address)
        return None if pending is None or _create_raising_object is None else _create_raising_object(pending)

    return make_immortal(prototype(call))
