"""Every command reads or rejects hostile files, each in its own process with 20 s and 2 GiB."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.seeds import build_seeds

SCRIPT = Path(__file__).parent / "isolated_files.py"


def find_failures(folder: Path) -> dict[str, list[str]]:
    command = [sys.executable, str(SCRIPT), str(folder), "20", str(2 << 30)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {line["path"]: line["failures"] for line in lines}


@pytest.mark.thorough
def test_every_command_reads_or_rejects_files_from_a_fuzzer(shared_folder: Path) -> None:
    failures = find_failures(shared_folder / "corpus" / "fuzz")
    assert len(failures) > 50
    assert {path: names for path, names in failures.items() if names} == {}


@pytest.mark.thorough
def test_every_command_reads_or_rejects_mutations_of_valid_files(tmp_path: Path) -> None:
    rng = random.Random(20_261_121)
    files = [seed for seed in build_seeds(with_shared=False) if seed.kind in ("file", "stream")]
    for _ in range(80):
        mutated = rng.choice(files).mutate(rng)
        if mutated is not None:
            (tmp_path / mutated.name).write_bytes(mutated.data)
    failures = find_failures(tmp_path)
    assert len(failures) > 50
    assert {path: names for path, names in failures.items() if names} == {}
