"""Hostile files, each in its own process: data or an error of ours, within 20 s and 2 GiB, in every command."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from fuzz.seeds import seeds

ALONE = Path(__file__).parent / "each_alone.py"


def what_becomes_of(folder: Path) -> dict[str, list[str]]:
    command = [sys.executable, str(ALONE), str(folder), "20", str(2 << 30)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["path"]: line["wrong"] for line in lines}


def test_what_a_fuzzer_made_is_read_or_refused_by_every_command(shared_folder: Path) -> None:
    found = what_becomes_of(shared_folder / "corpus" / "fuzz")
    assert len(found) > 50
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_mutations_of_sound_files_are_read_or_refused_by_every_command(tmp_path: Path) -> None:
    chance = random.Random(20_261_121)
    own = [given for given in seeds(with_shared=False) if given.kind in ("file", "stream")]
    for _ in range(150):
        mutated = chance.choice(own).mutated(chance)
        if mutated is not None:
            (tmp_path / mutated.name).write_bytes(mutated.data)
    found = what_becomes_of(tmp_path)
    assert len(found) > 100
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
