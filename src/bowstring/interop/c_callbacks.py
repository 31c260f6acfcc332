"""Python functions as the C callbacks that release structures («Release callback semantics -- for producers»).

A consumer may call `release` from any thread, long after the producer's modules are gone, and while a Python
exception is on its way through the consumer's own code: the exception unwinds a frame, the frame held the last
reference, the reference releases us. A ctypes callback alone would lose that exception (the interpreter then reports a
`SystemError`), so `callback` lays it aside and puts it back.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from typing import Any

_EXCEPTIONS_CAN_BE_PUT_BACK = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
_TP_DEALLOC, _TP_ITERNEXT = 52, 63


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    )


_Object = ctypes.c_int64 * 5
"""An object's reference count and type, and what `map` holds: a tuple of iterators, a callable, and room for a flag."""


def _raising_type() -> type:
    """A type whose objects, when their last reference goes, call the callable that they hold and let its exception
    stand.

    `Py_DECREF` of such an object is the only thing that ctypes still does after a callback has returned. The call
    itself is the interpreter's own step function of `map` over no iterators: it returns NULL with the callable's
    exception set.
    """
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(("PyType_GetSlot", ctypes.pythonapi))
    from_spec = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    step = get_slot(map, _TP_ITERNEXT)
    slots = (_Slot * 2)(_Slot(_TP_DEALLOC, step), _Slot(0, None))
    spec = _Spec(b"bowstring.PutBack", ctypes.sizeof(_Object), 0, 0, ctypes.addressof(slots))
    made: type = from_spec(ctypes.addressof(spec))
    return made


def immortal(value: Any) -> Any:
    """The value, never freed: C code may come back to it until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def callback(prototype: Any, function: Callable[[int], None]) -> Any:
    """`function` as a C function of `prototype`, which takes an address and gives nothing.

    It is never freed, works on any thread, and keeps an exception that is pending when it is called.
    """
    raise_pending = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
    raising = immortal(_raising_type()) if _EXCEPTIONS_CAN_BE_PUT_BACK else None
    forged: deque[Any] = deque(maxlen=1024)  # each is needed only until the callback is over

    def put_back(
        error: BaseException,
        _forged: Any = forged,
        _object: Any = _Object,
        _ctypes: Any = ctypes,
        _type: Any = raising,
        _id: Any = id,
    ) -> Any:
        errors, no_iterators = [error], ()

        def again() -> None:
            raise errors.pop()

        made = _object(0, _id(_type), _id(no_iterators), _id(again), 0)
        _forged.append((made, no_iterators, again))
        return _ctypes.cast(_ctypes.addressof(made), _ctypes.py_object).value

    # What a callback needs is bound to it: at exit the names of modules, even of builtins, go before the last call.
    def called(
        address: int,
        _function: Any = function,
        _raise_pending: Any = raise_pending,
        _put_back: Any = put_back if raising is not None else None,
        _any_error: Any = BaseException,
    ) -> Any:
        pending = None
        try:
            _raise_pending()
        except _any_error as error:  # the consumer's, and it goes back to it
            pending = error
        _function(address)
        return None if pending is None or _put_back is None else _put_back(pending)

    return immortal(prototype(called))
