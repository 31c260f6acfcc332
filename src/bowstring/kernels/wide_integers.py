"""Integers of two to four 64-bit words, the unscaled integers of decimals, multiplied and divided by powers of ten.

`Words` are in two's complement, the least significant word first, of shape (words, integers).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.layouts.base import Values
from bowstring.layouts.value_codecs.base import view_as_words
from bowstring.memory.bitmap import Mask

Words: TypeAlias = npt.NDArray[np.uint64]
# NumPy has no 128-bit product or dividend: a limb of 32 bits and another number of 32 bits together fit a word.
_LIMB_BITS, _LIMB_MASK = np.uint64(32), np.uint64((1 << 32) - 1)
_STEP_DIGITS = 9
"""The largest power of ten below 2**32 has this exponent."""


def count_words(*dtypes: np.dtype[Any]) -> int:
    """Return the number of words for integers of NumPy types, at least two."""
    return max(2, *(dtype.itemsize // 8 for dtype in dtypes))


def to_words(slots: Values, num_words: int) -> Words:
    """Return the words of the slots of integers or decimals, not wider than that; shares the memory if possible."""
    if slots.dtype.kind == "V":
        # Words first, shape (words, integers), so that each step is a call over contiguous integers.
        words: Words = view_as_words(slots).T
    else:
        # Widened in their own kind first, which extends the sign of signed integers to 64 bits.
        words = slots.astype(f"{slots.dtype.kind}8", copy=False).view(np.uint64)[None]
    if len(words) == num_words:
        return words
    extension = _sign_words(words) if slots.dtype.kind != "u" else np.zeros_like(words[0])
    return np.concatenate([words, np.broadcast_to(extension, (num_words - len(words), len(extension)))])


def to_slots(words: Words, dtype: np.dtype[Any]) -> Values:
    """Return the integers as slots of a NumPy type, which they must fit."""
    is_one_word = dtype.kind == "i"
    slots: Values = words[0].astype(dtype) if is_one_word else words[: dtype.itemsize // 8].T.copy().view(dtype)[:, 0]
    return slots


def multiply(words: Words, exponent: int) -> Words:
    """Multiply integers by 10**exponent; the products must fit their words."""
    for factor in _split_power(exponent):
        products, carry = np.empty_like(words), np.uint64(0)
        for index, word in enumerate(words):
            # At most (2**32 - 1)**2 + 2**32 - 1: less than 2**64.
            low = (word & _LIMB_MASK) * factor + carry
            high = (word >> _LIMB_BITS) * factor + (low >> _LIMB_BITS)
            products[index] = low & _LIMB_MASK | high << _LIMB_BITS
            carry = high >> _LIMB_BITS
        words = products
    return words


def divide(words: Words, exponent: int) -> tuple[Words, Mask]:
    """Divide integers by 10**exponent, rounding towards zero; also return which quotients are rounded."""
    signs = _sign_words(words)
    quotients, is_rounded = _negate_where(signs, words), np.zeros(words.shape[1], np.bool_)
    for divisor in _split_power(exponent):
        remainder: Any = np.uint64(0)
        for word in quotients[::-1]:
            # Less than the divisor, the remainder leaves room for the next limb.
            high_dividend = remainder << _LIMB_BITS | word >> _LIMB_BITS
            high = high_dividend // divisor
            low_dividend = (high_dividend - high * divisor) << _LIMB_BITS | word & _LIMB_MASK
            low = low_dividend // divisor
            remainder = low_dividend - low * divisor
            word[:] = high << _LIMB_BITS | low
        is_rounded |= remainder != 0
    return _negate_where(signs, quotients), is_rounded


def _split_power(exponent: int) -> list[np.uint64]:
    """Return powers of ten below 2**32 whose product is 10**exponent."""
    steps, rest = divmod(exponent, _STEP_DIGITS)
    return [np.uint64(10**_STEP_DIGITS)] * steps + ([np.uint64(10**rest)] if rest else [])


def _sign_words(words: Words) -> Words:
    """Return a word of ones for each negative integer, zero for others."""
    # An arithmetic shift of the signed word copies the sign into every bit.
    signs: Words = (words[-1].view(np.int64) >> 63).view(np.uint64)
    return signs


def _negate_where(signs: Words, words: Words) -> Words:
    """Negate the integers whose word in `signs` is all ones, not those for which it is zero; copies."""
    # Two's complement: -x is ~x + 1, and x ^ -1 is ~x. The carry goes on while the sum is zero.
    negated, carry = words ^ signs, signs & np.uint64(1)
    for word in negated:
        np.add(word, carry, out=word)
        carry = carry & (word == 0)
    return negated
