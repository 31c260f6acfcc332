"""Products and quotients of wide integers, and comparisons with bounds, are those of Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bowstring.kernels import wide_integers
from bowstring.layouts.base import Values
from bowstring.layouts.value_codecs.decimals import is_within


def divide(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


class Integers:
    """Integers of a number of words, many of them near the bounds or with few bits."""

    def __init__(self, num_words: int) -> None:
        self.num_words = num_words
        self.bits = 64 * num_words
        self.dtype = np.dtype("i8") if num_words == 1 else np.dtype((np.void, 8 * num_words))
        self._random = random.Random(num_words)

    def wrap(self, integer: int) -> int:
        half = 1 << self.bits - 1
        return (integer + half) % (2 * half) - half

    def draw(self, count: int) -> list[int]:
        edges = [
            0,
            1,
            -1,
            (1 << self.bits - 1) - 1,
            -(1 << self.bits - 1),
            (1 << 63) - 1,
            1 << 63,
            (1 << 64) - 1,
            10**18,
        ]
        return [
            self.wrap(
                self._random.choice(edges)
                if self._random.random() < 0.3
                else self._random.choice([1, -1]) * self._random.getrandbits(self._random.randrange(1, self.bits))
            )
            for _ in range(count)
        ]

    def encode(self, integers: list[int]) -> Values:
        data = b"".join(integer.to_bytes(8 * self.num_words, "little", signed=True) for integer in integers)
        return np.frombuffer(data, self.dtype)

    def decode(self, slots: Values) -> list[int]:
        data, width = slots.tobytes(), slots.itemsize
        return [int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width)]


@pytest.mark.parametrize("num_words", [2, 3, 4])
@pytest.mark.parametrize("exponent", [1, 9, 10, 19, 37])
def test_products_with_powers_of_ten_are_those_of_python(num_words: int, exponent: int) -> None:
    integers = Integers(num_words)
    numbers = [divide(number, 10**exponent) for number in integers.draw(5000)]
    products = wide_integers.multiply(wide_integers.to_words(integers.encode(numbers), num_words), exponent)
    assert integers.decode(wide_integers.to_slots(products, integers.dtype)) == [n * 10**exponent for n in numbers]


@pytest.mark.parametrize("num_words", [2, 3, 4])
@pytest.mark.parametrize("exponent", [0, 1, 9, 10, 19, 38])
def test_quotients_by_powers_of_ten_are_those_of_python(num_words: int, exponent: int) -> None:
    integers = Integers(num_words)
    numbers = integers.draw(5000)
    words = wide_integers.to_words(integers.encode(numbers), num_words)
    quotients, is_rounded = wide_integers.divide(words, exponent)
    assert integers.decode(wide_integers.to_slots(quotients, integers.dtype)) == [
        divide(number, 10**exponent) for number in numbers
    ]
    assert is_rounded.tolist() == [number % 10**exponent != 0 for number in numbers]
    assert integers.decode(wide_integers.to_slots(words, integers.dtype)) == numbers, "the operands are unchanged"


@pytest.mark.parametrize("num_words", [1, 2, 3, 4])
@pytest.mark.parametrize("bound", [1, 10**9, 10**18])
def test_integers_within_a_bound_are_those_of_python(num_words: int, bound: int) -> None:
    integers = Integers(num_words)
    numbers = [*integers.draw(5000), bound - 1, bound, 1 - bound, -bound]
    words = wide_integers.to_words(integers.encode(numbers), num_words)
    assert is_within(words, bound).tolist() == [-bound < number < bound for number in numbers]
