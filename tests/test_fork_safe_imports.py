"""Children that are forked while another thread imports something for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sharing.python_process import run_python

FORK_DURING_IMPORT = """
import os, signal, sys, threading
sys.path.insert(0, folder)
exec(preparation)
thread = threading.Thread(target=lambda: exec(use))
thread.start()
while module not in sys.modules:
    pass
child = os.fork()
if not child:
    signal.alarm(10)
    exec(use)
    os._exit(0)
thread.join()
send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("module", "preparation", "use"),
    [
        ("zstandard", "from bowstring.ipc import codecs", "codecs.import_zstandard()"),
        ("lz4", "from bowstring.ipc import codecs", "codecs.import_lz4_frame()"),
        ("pyarrow", "from bowstring import file_formats", "file_formats.import_pyarrow()"),
        ("numpy", "import bowstring as bs", "bs.int64"),
    ],
)
def test_a_child_forked_during_an_import_of_another_thread_can_import_it(
    module: str, preparation: str, use: str, tmp_path: Path
) -> None:
    # A package that takes long to import, as large ones do on a busy machine.
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text("import time; time.sleep(0.5)\n")
    for name in ("frame", "parquet", "csv", "json"):
        (tmp_path / module / f"{name}.py").write_text("")
    assert run_python(FORK_DURING_IMPORT, folder=str(tmp_path), module=module, preparation=preparation, use=use) == 0
