"""Files that are being written and have no name yet."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def unfinished(folder: Path, pid: int | str = "self") -> list[Path]:
    """What a process writes in a folder under no name, or under one that ends in `.part`; its size and mode can be
    asked for, as long as it is being written.
    """
    found = list(folder.glob(".*.part"))
    with suppress(OSError):  # the process has ended
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                place = os.readlink(entry)
                if place.startswith(f"{folder}/") and place.endswith(" (deleted)"):
                    found.append(entry)
    return found
