"""A disk that is too small: a small file system of the test's own, where the system lets us mount one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_MOUNTED = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'


def run_on_4_mb(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments where `folder` has 4 MB and nothing in it yet. Skips the test where it can't."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare to mount a small file system with")
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNTED, str(folder)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("the system lets this user mount nothing")
    return subprocess.run(
        [*command, sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
