"""The fuzzer finds planted bugs, and no others."""

from __future__ import annotations

import base64
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.editable_stream import parse_stream
from fuzz.findings import load_input
from fuzz.inputs import KINDS, STRUCTURED_KINDS, WIRE_KINDS, FuzzInput
from fuzz.oracles import ORACLES, check
from fuzz.seeds import build_seeds
from fuzz.text_mutations import KNOWN_TEXTS
from fuzz.worker import PLANTED_MODULE

SEED = 20_261_121
PARTLY_VALID = ("format", "extension", "protocol", "command", "tools", "served")
"""Kinds whose seeds may be invalid: a command may not accept the file, a peer may disconnect early."""


def run_fuzzer(
    repository: Path, home: Path, *options: str, planted: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz", "--home", str(home), "--seed", str(SEED), *options]
    variables = {} if planted is None else {PLANTED_MODULE: planted}
    return subprocess.run(
        command, cwd=repository, env=os.environ | variables, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.fixture(scope="module")
def seeds() -> list[FuzzInput]:
    return list(build_seeds(with_shared=False))


@pytest.mark.thorough
def test_all_seeds_are_valid(seeds: list[FuzzInput]) -> None:
    inputs = [seed for seed in seeds if seed.kind not in PARTLY_VALID]
    assert len(inputs) > 300
    assert [seed.name for seed in inputs if not check(seed)] == []


@pytest.mark.thorough
def test_encoding_a_parsed_structure_returns_valid_data(seeds: list[FuzzInput]) -> None:
    for seed in seeds:
        if seed.kind in STRUCTURED_KINDS:
            stream = parse_stream(seed.data)
            assert stream is not None
            data = stream.encode()
            # Seeds that are encoded alike are checked above.
            assert data == seed.data or check(FuzzInput(seed.kind, data)) or seed.kind in PARTLY_VALID


def test_every_kind_has_seeds_and_an_oracle(seeds: list[FuzzInput]) -> None:
    assert {seed.kind for seed in seeds} == set(KINDS) == set(ORACLES)


@pytest.mark.thorough
def test_mutations_of_files_are_often_valid_and_often_not(seeds: list[FuzzInput]) -> None:
    rng = random.Random(SEED)
    files = [seed for seed in seeds if seed.kind == "file"]
    counts = {True: 0, False: 0}
    for _ in range(300):
        mutated = rng.choice(files).mutate(rng)
        if mutated is not None:
            counts[check(mutated)] += 1
    assert min(counts.values()) > 60, counts


@pytest.mark.thorough
def test_mutations_of_sessions_are_sometimes_valid_and_sometimes_not(seeds: list[FuzzInput]) -> None:
    rng = random.Random(SEED)
    recorded = [seed for seed in seeds if seed.kind in WIRE_KINDS]
    counts = Counter[tuple[str, bool]]()
    for kind in WIRE_KINDS:
        inputs = [seed for seed in recorded if seed.kind == kind]
        for _ in range(150):
            mutated = rng.choice(inputs).mutate(rng)
            if mutated is not None:
                counts[kind, check(mutated)] += 1
    assert all(counts[kind, is_valid] > 5 for kind in WIRE_KINDS for is_valid in (True, False)), counts


@pytest.mark.thorough
def test_mutations_of_texts_are_sometimes_valid_and_sometimes_not(seeds: list[FuzzInput]) -> None:
    rng = random.Random(SEED)
    texts = [seed for seed in seeds if seed.kind in KNOWN_TEXTS]
    validity: dict[str, set[bool]] = {kind: set() for kind in KNOWN_TEXTS}
    for _ in range(200):
        mutated = rng.choice(texts).mutate(rng)
        assert mutated is not None
        validity[mutated.kind].add(check(mutated))
    assert all(values == {True, False} for values in validity.values()), validity


@pytest.mark.thorough
def test_the_fuzzer_finds_and_shrinks_a_planted_error_crash_and_hang(repository: Path, tmp_path: Path) -> None:
    limits = ("--time", "180", "--findings", "3", "--jobs", "1", "--hang", "1")
    process = run_fuzzer(repository, tmp_path, *limits, "--only", "format", planted="tests.fuzz.planted_bugs")
    assert process.returncode == 1, process.stdout + process.stderr
    folders = {folder.name.partition("-")[0]: folder for folder in (tmp_path / "findings").iterdir()}
    inputs = {failure: load_input(next(folder.glob("input.*"))) for failure, folder in folders.items()}
    assert {failure: (entry.kind, entry.data[:1], len(entry.data)) for failure, entry in inputs.items()} == {
        "ZeroDivisionError": ("format", b"v", 4),
        "SIGSEGV": ("format", b"w", 9),
        "hang": ("format", b"d", 13),
    }, process.stdout
    assert "fuzz --replay" in (folders["SIGSEGV"] / "report.txt").read_text()
    encoded = base64.b64encode(inputs["SIGSEGV"].data).decode()
    line = rf"FAILED SIGSEGV.*: format, 9 bytes in Base64: {re.escape(encoded)}"
    assert any(re.fullmatch(line, each) for each in process.stdout.splitlines())


@pytest.mark.thorough
def test_the_fuzzer_finds_nothing_in_5_seconds(
    repository: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    process = run_fuzzer(repository, tmp_path, "--time", "5", "--jobs", "2")
    record_property("fuzzer", process.stdout)
    reports = "\n".join(path.read_text() for path in (tmp_path / "findings").glob("*/report.txt"))
    assert process.returncode == 0, process.stdout + process.stderr + reports
