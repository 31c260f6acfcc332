"""Sums, products and quotients of wide integers are those of Python's, wrapped around."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from bowstring.kernels import wide_integers
from bowstring.kernels.wide_integers import Words
from bowstring.layouts.base import Values


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


FUNCTIONS: dict[str, tuple[Callable[[Words, Words], Words], Callable[[int, int], int]]] = {
    "add": (wide_integers.add, lambda left, right: left + right),
    "subtract": (wide_integers.subtract, lambda left, right: left - right),
    "multiply": (wide_integers.multiply, lambda left, right: left * right),
    "divide": (wide_integers.divide, divide),
}


@pytest.mark.parametrize("num_words", [1, 2, 3, 4])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_those_of_python_wrapped_around(function: str, num_words: int) -> None:
    integers = Integers(num_words)
    left, right = integers.draw(20_000), integers.draw(20_000)
    if function == "divide":
        right = [integer or 3 for integer in right]
    own, expected = FUNCTIONS[function]

    def calculate(left: list[int], right: list[int]) -> list[int]:
        words = own(*(wide_integers.to_words(integers.encode(operand), num_words) for operand in (left, right)))
        return integers.decode(wide_integers.to_slots(words, integers.dtype))

    assert calculate(left, right) == [integers.wrap(expected(a, b)) for a, b in zip(left, right, strict=True)]
    for index in range(20):
        assert calculate(left[:99], right[index : index + 1]) == [
            integers.wrap(expected(a, right[index])) for a in left[:99]
        ]
        assert calculate(left[index : index + 1], right[:99]) == [
            integers.wrap(expected(left[index], b)) for b in right[:99]
        ]


@pytest.mark.parametrize("num_words", [1, 2, 3, 4])
def test_absolute_values_are_those_of_python(num_words: int) -> None:
    integers = Integers(num_words)
    numbers = integers.draw(20_000)
    words = wide_integers.to_words(integers.encode(numbers), num_words)
    absolute = wide_integers.to_slots(wide_integers.absolute(words), integers.dtype)
    assert integers.decode(absolute) == [integers.wrap(abs(number)) for number in numbers]
