"""Runs when a Python process of a local session starts, and has it import the installed packages of PySpark and py4j.

Spark puts ZIP files of them first on the path. Python compiles modules of a ZIP file in each process: that takes 1.1 s
of CPU time for each daemon of workers, and each kind of planning for a data source has a daemon of its own.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def move_compressed_copies_to_the_end(path: list[str]) -> None:
    """Move the ZIP files that an installed PySpark has of itself and py4j behind the folder where it is installed."""
    folders = [Path(entry).resolve() for entry in path]
    copies = [
        entry
        for entry, folder in zip(path, (file.parent for file in folders), strict=True)
        if entry.endswith(".zip") and folder.parts[-3:] == ("pyspark", "python", "lib") and folder.parents[2] in folders
    ]
    path[:] = [entry for entry in path if entry not in copies] + copies


def _run_hidden_module() -> None:
    """Run the module of this name that this one hides, if any."""
    own_folder = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != own_folder]
    own_module = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = own_module


if __name__ == "sitecustomize":  # not in a test
    move_compressed_copies_to_the_end(sys.path)
    _run_hidden_module()
