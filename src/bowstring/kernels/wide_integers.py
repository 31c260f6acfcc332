"""Arithmetic of integers of one to four 64-bit words, the unscaled integers of decimals.

`Words` are in two's complement, the least significant word first, of shape (words, integers). The operands of a
function have the same number of words, and equally many integers or one for all. Results wrap around.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.layouts.base import Values
from bowstring.layouts.value_codecs.base import view_as_words
from bowstring.memory.bitmap import Mask

Words: TypeAlias = npt.NDArray[np.uint64]
_WORD_BITS = 64
# NumPy has no 128-bit product: a product of two 32-bit limbs fits a 64-bit word.
_LIMB_BITS, _LIMB_MASK = np.uint64(32), np.uint64((1 << 32) - 1)


def count_words(dtype: np.dtype[Any]) -> int:
    """Return the number of words for integers of a NumPy type."""
    return -(-dtype.itemsize * 8 // _WORD_BITS)


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
    slots: Values = (
        words[0].astype(dtype) if dtype.kind == "i" else words[: count_words(dtype)].T.copy().view(dtype)[:, 0]
    )
    return slots


def create_constant(number: int, num_words: int) -> Words:
    """Return the words of one integer."""
    low_bits = (1 << _WORD_BITS) - 1
    return np.array([[number >> _WORD_BITS * word & low_bits] for word in range(num_words)], np.uint64)


def _sign_words(words: Words) -> Values:
    """Return a word of ones for each negative integer, zero for others."""
    # An arithmetic shift of the signed word copies the sign into every bit.
    signs: Values = (words[-1].view(np.int64) >> (_WORD_BITS - 1)).view(np.uint64)
    return signs


def add(left: Words, right: Words) -> Words:
    """Add integers."""
    return _add_with_carry(left, right, False)


def _add_with_carry(left: Words, right: Words, carry: Any) -> Words:
    out = np.empty(np.broadcast_shapes(left.shape, right.shape), np.uint64)
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        total = a + b
        np.add(total, carry, out=out[index])
        # Only one of the additions can wrap around: if the first does, its sum is at most 2 ** 64 - 2.
        carry = (total < a) | (out[index] < total)
    return out


def subtract(left: Words, right: Words) -> Words:
    """Subtract integers."""
    # Two's complement: -x is ~x + 1.
    return _add_with_carry(left, ~right, True)


def absolute(words: Words) -> Words:
    """Return absolute values. That of the least integer, which wraps around, is right as an unsigned integer."""
    return _negate_where(_sign_words(words), words)


def _negate_where(signs: Values, words: Words) -> Words:
    """Negate the integers whose word in `signs` is all ones, not those for which it is zero."""
    # x ^ -1 is ~x, and subtracting -1 adds 1; with signs of 0 nothing changes.
    return subtract(words ^ signs, np.broadcast_to(signs, words.shape))


def multiply(left: Words, right: Words) -> Words:
    """Multiply integers; the product of their low words modulo 2 ** (64 * words) is that of signed integers, too.

    A product of two 32-bit limbs is split into its halves, so that the sums of the at most 16 halves of a column fit
    64 bits, and carries are added only once.
    """
    num_limbs = 2 * len(left)
    columns: list[Any] = [np.zeros(1, np.uint64)] * (num_limbs + 1)
    left_limbs = _split_words(left)
    for index, right_limb in enumerate(_split_words(right)):
        if not right_limb.any():  # the upper limbs of small integers
            continue
        # Limb i times limb j counts 2**(32 * (i + j)); products beyond the last column are lost modulo the width.
        for column, left_limb in enumerate(left_limbs[: num_limbs - index], index):
            product = left_limb * right_limb
            columns[column] = columns[column] + (product & _LIMB_MASK)
            columns[column + 1] = columns[column + 1] + (product >> _LIMB_BITS)
    out = np.empty(np.broadcast_shapes(left.shape, right.shape), np.uint64)
    carry: Any = np.uint64(0)
    for index in range(len(left)):
        # At most 16 halves below 2**32 and a carry below 2**5: far from 2**64.
        low = columns[2 * index] + carry
        high = columns[2 * index + 1] + (low >> _LIMB_BITS)
        out[index] = low & _LIMB_MASK | high << _LIMB_BITS
        carry = high >> _LIMB_BITS
    return out


def _split_words(words: Words) -> list[Values]:
    return [limb for word in words for limb in (word & _LIMB_MASK, word >> _LIMB_BITS)]


def divide(dividends: Words, divisors: Words) -> Words:
    """Divide integers, rounding towards zero. Divisors must not be zero."""
    quotients = _divide_unsigned(absolute(dividends), absolute(divisors))
    return _negate_where(_sign_words(dividends) ^ _sign_words(divisors), quotients)


def _divide_unsigned(dividends: Words, divisors: Words) -> Words:
    """Divide unsigned integers: each round adds the upper bits of the quotients as computed with floats.

    An estimate is never too large, as it is reduced by more than the rounding of floats can add. So remainders stay
    positive, and shrink by a factor of about 2 ** 48 until less than twice the divisor is left.
    """
    quotients = np.zeros(np.broadcast_shapes(dividends.shape, divisors.shape), np.uint64)
    remainders = dividends
    float_divisors = _to_floats(divisors)
    while remainders[1:].any() or divisors[1:].any():
        # The conversions and the quotient err by a few parts in 2**53, less than the 2**-48 taken off.
        estimates = np.floor(_to_floats(remainders) / float_divisors * (1 - 2.0**-48))
        # Quotients of less than about one: the rest is 0 or 1 times the divisor.
        if not estimates.any():
            return add(quotients, _pad_word(~is_less_unsigned(remainders, divisors), len(quotients)))
        estimated_words = _from_floats(estimates, len(quotients))
        quotients = add(quotients, estimated_words)
        remainders = subtract(remainders, multiply(divisors, estimated_words))
    # Both fit one word, where NumPy divides exactly.
    return add(quotients, _pad_word(remainders[0] // divisors[0], len(quotients)))


def _pad_word(word: Values, num_words: int) -> Words:
    return np.concatenate([word[None].astype(np.uint64), np.zeros((num_words - 1, len(word)), np.uint64)])


def is_less_unsigned(left: Words, right: Words) -> Mask:
    """Compare unsigned integers."""
    mask: Any = False
    for a, b in zip(left, right, strict=True):
        mask = (a < b) | ((a == b) & mask)
    less: Mask = mask
    return less


def _to_floats(words: Words) -> Values:
    floats: Values = sum(word.astype(np.float64) * 2.0 ** (_WORD_BITS * index) for index, word in enumerate(words))
    return floats


def _from_floats(floats: Values, num_words: int) -> Words:
    """Return the words of whole floats that are not negative and fit."""
    out = np.empty((num_words, len(floats)), np.uint64)
    # A float has 53 significant bits, so that dividing by a power of two and taking the whole part is exact.
    for index in range(num_words - 1, -1, -1):
        unit = 2.0 ** (_WORD_BITS * index)
        out[index] = floats // unit
        floats = floats - out[index] * unit  # exact: these are the lower bits of the float
    return out
