"""A small or read-only file system for a test, if the system allows mounting one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_MOUNTED = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
# As `readOnlyRootFilesystem` of Kubernetes. `$0` is the name of the shell.
_READ_ONLY = """
for folder in $(cut -d" " -f5 /proc/self/mountinfo); do
    # A mount that another one hides cannot be remounted; the folders that matter are checked below.
    case "$folder" in /dev* | /proc* | /sys*) ;; *) mount -o remount,ro,bind "$folder" 2>/dev/null ;; esac
done
for folder in / /tmp /var/tmp; do ! test -w "$folder" || exit 1; done
cd / && exec "$@"
"""


def run_on_4_mb(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python with an empty file system of 4 MB mounted on `folder`. Skip the test if that is not possible."""
    return _run_after(_MOUNTED, str(folder), arguments, {})


def run_on_read_only_files(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with all file systems read-only but /dev. Skip the test if that is not possible."""
    return _run_after(_READ_ONLY, "sh", arguments, environment)


def _run_after(
    script: str, name: str, arguments: tuple[object, ...], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None:
        pytest.skip("requires unshare to mount file systems")
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, name]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("requires permission to mount file systems")
    return subprocess.run(
        [*command, sys.executable, *map(str, arguments)],
        env={**{key: value for key, value in os.environ.items() if key != "TMPDIR"}, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
