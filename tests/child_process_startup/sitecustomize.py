"""Python imports this module in the processes that tests start.

Spark's Python workers start faster: Spark puts PySpark on their path as a ZIP file, which each of them would compile
again, and a daemon that forks workers imports what most of them need. Under `--keep-written` data that is written is
kept.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

DAEMONS = {"pyspark.daemon", "bowstring.spark.runtime.worker_daemon"}
# They don't import `bowstring.spark.runtime.worker_daemon`, which has an effect in workers.
NEEDED_BY_WORKERS = (
    "pyarrow",
    "bowstring.datasets.dataset",
    "bowstring.spark.arrow_files",
    "bowstring.spark.folder.job",
)

sys.path.sort(key=lambda path: path.endswith(".zip"))  # after the installed PySpark
if DAEMONS & set(sys.orig_argv[:3]):
    # PySpark 3.5 does not name the module of the workers.
    worker = "pyspark.worker" if sys.orig_argv[-1] in DAEMONS else sys.orig_argv[-1]
    for module in (worker, *NEEDED_BY_WORKERS):
        importlib.import_module(module)

if "BOWSTRING_TESTS_KEEP_WRITTEN" in os.environ:
    spec = importlib.util.spec_from_file_location("_written_files", Path(__file__).parent.parent / "written_files.py")
    assert spec is not None
    assert spec.loader is not None
    written_files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written_files)
    sys.meta_path.insert(0, written_files.LateRecorder())
