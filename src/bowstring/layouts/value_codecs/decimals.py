"""Decimals: two's complement integers of 32 to 256 bits with a decimal scale."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import repeat
from typing import Any

import numpy as np

from bowstring.datatypes.types import Decimal as DecimalType
from bowstring.layouts.value_codecs.base import ValueCodec, Values, view_as_words
from bowstring.memory.bitmap import Mask

# Scales are 32-bit numbers, and a shift adds up to 76 digits: exponents within this can't overflow.
_MAX_EXPONENT = 1 << 34
# More digits than any value has, and Inexact is an error: nothing is ever rounded.
_EXACT = Context(prec=160, Emax=_MAX_EXPONENT, Emin=-_MAX_EXPONENT, traps=[Inexact, InvalidOperation])


class DecimalCodec(ValueCodec):
    """Python decimals. Accepts decimals, integers and strings that need no rounding."""

    __slots__ = ("_bound", "_context", "_scale", "_unit")

    def __init__(self, type: DecimalType) -> None:
        width = type.bit_width // 8
        super().__init__(np.dtype(f"i{width}") if width <= 8 else np.dtype((np.void, width)))
        self._scale = type.scale
        self._bound = 10**type.precision
        self._unit = Decimal((0, (1,), -type.scale))
        self._context = _EXACT.copy()
        self._context.prec = type.precision

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        if python_types != {Decimal}:
            values = [_parse_decimal(value) for value in values]
        quantize, shift = self._context.quantize, self._context.scaleb
        try:
            decimals = map(quantize, values, repeat(self._unit))  # raises if it has to round
            return self.encode_unscaled(list(map(int, map(shift, decimals, repeat(self._scale)))))
        except Inexact:
            raise ValueError(f"more than {self._scale} decimal places") from None
        except InvalidOperation:
            if not all(map(Decimal.is_finite, values)):
                raise ValueError("not a finite decimal") from None
            raise ValueError("more digits than the precision allows") from None

    def decode(self, slots: Values) -> list[Any]:
        scale = -self._scale
        return [_EXACT.scaleb(Decimal(digits), scale) for digits in self.decode_unscaled(slots)]

    def encode_unscaled(self, numbers: Sequence[int]) -> Values:
        """Convert unscaled integers, which must fit, to slots."""
        if self.dtype.kind == "i":
            return np.array(numbers, self.dtype)
        width = self.dtype.itemsize
        return np.frombuffer(b"".join(n.to_bytes(width, "little", signed=True) for n in numbers), self.dtype)

    def decode_unscaled(self, slots: Values) -> list[int]:
        """Return the unscaled integers of slots."""
        if self.dtype.kind == "i":
            numbers: list[int] = slots.tolist()
            return numbers
        data, width = slots.tobytes(), self.dtype.itemsize
        return [int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width)]

    def view_as_numpy(self, slots: Values) -> None:
        return None

    def sort_keys(self, slots: Values) -> tuple[Values, ...]:
        words = view_as_words(slots)
        signed = np.dtype(f"i{words.dtype.itemsize}")
        highest = np.ascontiguousarray(words[:, -1]).view(signed)
        return highest, *(words[:, index] for index in range(words.shape[1] - 2, -1, -1))

    def find_invalid_slot(self, slots: Values) -> tuple[int, str] | None:
        invalid = ~is_within(view_as_words(slots).T, self._bound)
        if not invalid.any():
            return None
        index = int(np.argmax(invalid))
        return index, f"{self.decode_unscaled(slots[index : index + 1])[0]} has more digits than the precision allows"


def _parse_decimal(value: Any) -> Decimal:
    if not isinstance(value, (Decimal, int, str)) or isinstance(value, bool):
        raise ValueError("not a decimal, an integer or a string")
    try:
        return _EXACT.create_decimal(value)
    except ArithmeticError as error:
        raise ValueError("not a finite decimal") from error


def is_within(words: Values, bound: int) -> Mask:
    """Return which integers are between `-bound` and `bound`, exclusive; these must fit.

    Words are in two's complement, the least significant word first, of shape (words, integers).
    """
    return _is_less(words, bound) & ~_is_less(words, 1 - bound)


def _is_less(words: Values, bound: int) -> Mask:
    *lower, highest = words
    bits = words.dtype.itemsize * 8
    less: Mask = np.zeros(len(highest), np.bool_)
    # From the least significant word upwards: a higher word decides, and only equal ones keep the result so far. The
    # highest word is signed.
    for word in (*lower, highest.view(f"i{bits // 8}")):
        limit = np.array(bound & (1 << bits) - 1, words.dtype).view(word.dtype)[()]
        less = (word < limit) | ((word == limit) & less)
        bound >>= bits
    return less
