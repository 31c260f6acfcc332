"""The demo's verdict: intervals of ratios, and sentences that are true for the measured times."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("rich")
pytest.importorskip("pyspark")

from examples.demo.comparison import (
    Comparison,
    describe_interval,
    median_interval,
    total_of_all_reads,
    total_of_one_read,
)
from tests.demo.reports import compare, create_report


def describe_verdict(main: Comparison) -> str:
    return create_report(main=main).verdict


FAST = compare(100 << 20, (1.0, 0.1, 0.4), (1.4, 0.4, 3.0), (2.0, 0.5, 4.0))
FEW_ROWS = compare(1 << 10, (0.3, 0.01, 0.05), (0.1, 0.01, 0.05), (0.4, 0.01, 0.05), rows=3)


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        (range(5), None),
        (range(6), (0, 5)),
        (range(8), (0, 7)),
        (range(9), (1, 7)),
        (range(20), (5, 14)),
    ],
)
def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test(
    values: range, interval: tuple[float, float] | None
) -> None:
    shuffled = random.Random(1).sample(values, len(values))
    assert median_interval(shuffled) == interval


def test_intervals_of_skewed_noise_miss_the_median_as_rarely_as_they_claim() -> None:
    rng = random.Random(7)
    misses = 0
    for _ in range(2000):
        low, high = median_interval([rng.lognormvariate(0, 1) for _ in range(7)]) or (0, 0)
        misses += not low <= 1 <= high
    assert 0.005 < misses / 2000 < 0.03  # 1.6 %


def test_the_interval_is_described_if_there_are_enough_rounds() -> None:
    assert "with a probability of at least 95%" in describe_interval(6)
    assert describe_interval(5) == "The noise is not known: at least 6 rounds are necessary."


def test_the_verdict_names_publishing_as_the_fastest() -> None:
    assert describe_verdict(FAST) == (
        "1,000 rows, 100 MiB: publishing is the fastest for 4 readers that read 3 times each, 3.1 times as fast as "
        "toArrow() and 4.3 times as fast as Parquet; publishing is the fastest for one reader that reads once, 1.6 "
        "times as fast as toArrow() and 2.3 times as fast as Parquet."
    )


def test_a_faster_method_is_named() -> None:
    assert describe_verdict(FEW_ROWS).startswith(
        "3 rows, 1.00 KiB: toArrow() is faster than publishing for 4 readers that read 3 times each, 2.3 times as fast;"
    )


def test_a_difference_within_the_noise_gives_no_verdict() -> None:
    main = compare(100 << 20, (1.0, 0.1, 0.4), (1.0, 0.1, 0.41), (2.0, 0.5, 4.0))
    toggled = {
        name: [
            measurement if name != "toArrow()" or index else main.rounds["publishing"][0]
            for index, measurement in enumerate(rounds)
        ]
        for name, rounds in main.rounds.items()
    }
    assert main.ratios(total_of_all_reads)["toArrow()"].is_faster
    assert not Comparison(1000, toggled).ratios(total_of_all_reads)["toArrow()"].is_faster
    assert (
        "publishing and toArrow() differ by less than the noise, and publishing is 4.3 times as fast as Parquet;"
        in describe_verdict(Comparison(1000, toggled))
    )


def test_ratios_of_the_same_round_cancel_the_load_of_the_machine() -> None:
    loaded = compare(1, (1.0, 0.1, 0.4), (1.1, 0.1, 0.4), (2, 1, 1), noise=(1.0, 9.0, 3.0, 5.0, 1.0, 2.0, 4.0))
    assert loaded.ratios(total_of_one_read)["toArrow()"].interval == pytest.approx((1.1 / 1.2, 1.1 / 1.2))


def test_too_few_rounds_give_no_verdict() -> None:
    main = compare(1 << 20, (1.0, 0.1, 0.4), (9.0, 9.0, 9.0), (9.0, 9.0, 9.0), noise=(1.0,) * 5)
    assert describe_verdict(main) == (
        "1,000 rows, 1.00 MiB: fewer than 6 rounds, too few to distinguish differences from noise."
    )


def test_rows_that_differ_from_sparks_are_a_failure() -> None:
    report = create_report(differences=["2 rows, not 3", "column 'a': 1 nulls"])
    assert report.verdict == "Failed: 2 differences from Spark's rows."
    assert not report.is_successful
    assert create_report().is_successful
