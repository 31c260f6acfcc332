"""Imported by Python itself in the processes that tests start with `--keep-written`: what they write is kept, too."""

import importlib.util
import os
import sys
from pathlib import Path

if "BOWSTRING_TESTS_KEEP_WRITTEN" in os.environ:
    spec = importlib.util.spec_from_file_location("_keeping", Path(__file__).parent.parent / "keeping.py")
    assert spec is not None
    assert spec.loader is not None
    keeping = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keeping)
    sys.meta_path.insert(0, keeping.Late())
