"""The scopes of addresses, also in processes without free descriptors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bowstring.transports.address_scope import directory_scope, network_scope

_SCRIPT = """
import json, os, resource, sys
from bowstring.errors import ResourceError
from bowstring.transports.address_scope import directory_scope, network_scope

def find_scopes():
    scopes = []
    for find in (network_scope, lambda: directory_scope("/tmp/socket")):
        try:
            scopes.append(find())
        except ResourceError as error:
            scopes.append(str(error))
    return scopes

first = find_scopes() if sys.argv[1] == "known" else None
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
exhausted = find_scopes()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
print(json.dumps([first, exhausted, find_scopes()]))
"""


@pytest.mark.parametrize("when", ["known", "unknown"])
def test_scopes_are_the_same_or_an_error_without_free_descriptors(when: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT, when], capture_output=True, text=True, timeout=60, check=True
    )
    first, exhausted, last = json.loads(process.stdout)
    assert last == [network_scope(), directory_scope("/tmp/socket")]
    if when == "known":
        assert first == exhausted == last
    else:
        assert exhausted == ["can't read '/proc/sys/kernel/random/boot_id': Too many open files"] * 2
