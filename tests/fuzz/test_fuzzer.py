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
from fuzz.worker import PLANT
from tests.fuzz.planted import CRASHES

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
    done = fuzz(repository, tmp_path, *limits, "--only", "uri", plant="tests.fuzz.planted")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {folder.name: folder for folder in (tmp_path / "findings").iterdir()}
    kinds = {kind: [name for name in found if name.startswith(kind)] for kind in ("ZeroDivision", "SIGSEGV", "hang")}
    assert all(kinds.values()), (found, done.stdout)
    (crash,) = kinds["SIGSEGV"]
    kept = next(path for path in found[crash].iterdir() if path.name.startswith("input"))
    assert load(kept).data[0] % 3 == CRASHES
    assert "fuzz --again" in (found[crash] / "story.txt").read_text()


def test_nothing_is_found_in_most_of_a_minute(
    repository: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = fuzz(repository, tmp_path, "--time", "45", "--jobs", "2")
    record_property("fuzzer", done.stdout)
    stories = "\n".join(path.read_text() for path in (tmp_path / "findings").glob("*/story.txt"))
    assert done.returncode == 0, done.stdout + done.stderr + stories
