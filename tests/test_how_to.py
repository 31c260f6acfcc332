"""The programs of README.md and of docs/ that take several processes, or files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def read_blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run(*command: str, folder: Path) -> str:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_table_passes_from_one_terminal_of_the_readme_to_the_other(tmp_path: Path) -> None:
    first, second = read_blocks("README.md")[:2]
    for block in (first, second):
        run(sys.executable, "-c", block, folder=tmp_path)


def test_workers_receive_a_handle_and_return_tables(tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(read_blocks("docs/reference/sharing.md")[3], "utf-8")
    assert run(sys.executable, str(program), folder=tmp_path) == "[1000]\n[2000]\n[1000]\n"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the command openssl is not installed")
def test_the_documented_certificates_encrypt_a_connection(tmp_path: Path) -> None:
    page = "docs/reference/sharing.md"
    (program,) = (block for block in read_blocks(page) if "authority.pem" in block)
    run("bash", "-ec", read_blocks(page, "sh")[0], folder=tmp_path)
    run(sys.executable, "-c", program, folder=tmp_path)
