"""Python imports this module in processes that tests start under `--keep-written`, so that their data is kept, too."""

import importlib.util
import os
import sys
from pathlib import Path

if "BOWSTRING_TESTS_KEEP_WRITTEN" in os.environ:
    spec = importlib.util.spec_from_file_location("_written_files", Path(__file__).parent.parent / "written_files.py")
    assert spec is not None
    assert spec.loader is not None
    written_files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written_files)
    sys.meta_path.insert(0, written_files.LateRecorder())
