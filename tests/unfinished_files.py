"""Files that are being written and have no name yet."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def find_unfinished(folder: Path, pid: int | str = "self") -> list[Path]:
    """Return the files that a process writes in a folder without a name, or with the suffix `.part`.

    Their size and mode can be read as long as they are being written.
    """
    paths = list(folder.glob(".*.part"))
    with suppress(OSError):  # the process has ended
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                target = os.readlink(entry)
                if target.startswith(f"{folder}/") and target.endswith(" (deleted)"):
                    paths.append(entry)
    return paths
