"""A small file system for a test, if the system allows mounting one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_MOUNTED = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'


def run_on_4_mb(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python with an empty file system of 4 MB mounted on `folder`. Skip the test if that is not possible."""
    if shutil.which("unshare") is None:
        pytest.skip("requires unshare to mount a small file system")
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNTED, str(folder)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("requires permission to mount file systems")
    return subprocess.run(
        [*command, sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
