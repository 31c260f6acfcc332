"""The fuzzer finds what is planted, and otherwise nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fuzz.anatomy import dissect
from fuzz.findings import load
from fuzz.inputs import KINDS, WITH_ANATOMY, Input
from fuzz.oracles import ORACLES, check
from fuzz.seeds import seeds
from fuzz.texts import KNOWN
from fuzz.worker import PLANT

SEED = 20_261_121


def fuzz(repository: Path, home: Path, *options: str, plant: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz", "--home", str(home), "--seed", str(SEED), *options]
    planted = {} if plant is None else {PLANT: plant}
    return subprocess.run(
        command, cwd=repository, env=os.environ | planted, capture_output=True, text=True, timeout=280, check=False
    )


OPEN = ("format", "extension", "protocol", "command", "upkeep", "served")
"""Kinds whose seeds need not be sound: a command may not be for such a file, peers may go too early, and of many rows
upkeep tells nothing.
"""


def test_all_seeds_that_are_data_are_sound() -> None:
    own = [given for given in seeds(with_shared=False) if given.kind not in OPEN]
    assert len(own) > 300
    assert [given.name for given in own if not check(given)] == []


def test_what_is_taken_apart_is_put_together_again() -> None:
    for given in seeds(with_shared=False):
        if given.kind in WITH_ANATOMY:
            anatomy = dissect(given.data)
            assert anatomy is not None
            assert check(Input(given.kind, anatomy.render())) or given.kind in OPEN


def test_there_are_seeds_and_an_oracle_for_every_kind() -> None:
    assert {given.kind for given in seeds(with_shared=False)} == set(KINDS) == set(ORACLES)


def test_mutations_reach_beyond_the_framing() -> None:
    chance = random.Random(SEED)
    own = [given for given in seeds(with_shared=False) if given.kind == "file"]
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        mutated = chance.choice(own).mutated(chance)
        if mutated is not None:
            outcomes[check(mutated)] += 1
    assert min(outcomes.values()) > 60, outcomes


def test_an_error_a_crash_and_a_hang_that_are_planted_are_found_and_made_small(
    repository: Path, tmp_path: Path
) -> None:
    limits = ("--time", "180", "--findings", "3", "--jobs", "1", "--hang", "2")
    done = fuzz(repository, tmp_path, *limits, "--only", "format", plant="tests.fuzz.planted")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {folder.name.partition("-")[0]: folder for folder in (tmp_path / "findings").iterdir()}
    small = {what: load(next(folder.glob("input.*"))) for what, folder in found.items()}
    assert {what: (given.kind, given.data[:1], len(given.data)) for what, given in small.items()} == {
        "ZeroDivisionError": ("format", b"v", 4),
        "SIGSEGV": ("format", b"w", 9),
        "hang": ("format", b"d", 13),
    }, done.stdout
    assert "fuzz --again" in (found["SIGSEGV"] / "story.txt").read_text()


def test_texts_that_are_put_together_from_known_ones_are_known_and_are_not() -> None:
    chance = random.Random(SEED)
    own = [given for given in seeds(with_shared=False) if given.kind in KNOWN]
    outcomes: dict[str, set[bool]] = {kind: set() for kind in KNOWN}
    for _ in range(200):
        given = chance.choice(own).mutated(chance)
        assert given is not None
        outcomes[given.kind].add(check(given))
    assert all(sound == {True, False} for sound in outcomes.values()), outcomes


def test_nothing_is_found_in_most_of_a_minute(
    repository: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = fuzz(repository, tmp_path, "--time", "45", "--jobs", "2")
    record_property("fuzzer", done.stdout)
    stories = "\n".join(path.read_text() for path in (tmp_path / "findings").glob("*/story.txt"))
    assert done.returncode == 0, done.stdout + done.stderr + stories
