from __future__ import annotations

import pytest

from tests.compute.stub import HEADER, STUB, create_stub


def test_the_stub_has_the_names_and_signatures_of_pyarrow() -> None:
    stub = STUB.read_text()
    if not stub.startswith(HEADER):
        pytest.skip("the stub was generated from another version of pyarrow")
    assert stub == create_stub(), "write it again: python -m tests.compute.stub"
