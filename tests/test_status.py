"""Every claim of the pages on status and conformance has a test: each ✓ links to a test or names test cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import CASES

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "evidence" / "status.md"
CONFORMANCE = REPOSITORY / "docs" / "evidence" / "conformance.md"
_REQUIREMENT = re.compile(r"\b(MUST|REQUIRED|OPTIONAL|should|may|can|needs?)\b")
_LINK = re.compile(r'\[([^]]*)\]\(([^)\s]+)(?: "([^"]*)")?\)')
"""The text, target and title of a Markdown link; the title is the name of the test."""


def rows(page: str) -> list[str]:
    """Return the table rows with claims."""
    return [line for line in page.splitlines() if line.startswith("|") and "✓" in line]


def unproven(page: str) -> list[str]:
    """Return the claims without a test."""
    wrong = []
    for text, target, name in _LINK.findall(page):
        if (text == "✓" or name) and not _is_test(target.removeprefix("../../"), name):
            wrong.append(f"{target} {name}".strip())
    cases = {str(case) for case in CASES}
    for row in rows(page):
        named = re.findall(r"`([^`]+)`", row)
        if "[✓](" not in row and (not named or not cases.issuperset(named)):
            wrong.append(row)
    return wrong


def _is_test(path: str, name: str) -> bool:
    """Return whether the file defines a test of this name; a link without a name does not count."""
    source = REPOSITORY / path
    return (
        path.startswith(("tests/", "networks/tests/"))
        and name.startswith("test_")
        and source.is_file()
        and f"def {name}(" in source.read_text(encoding="utf-8")
    )


def test_every_claim_has_a_test() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(rows(page)) > 60
    assert not unproven(page)


@pytest.mark.parametrize(
    "claim",
    [
        "| Null | ✓ | `nil` |",
        "| Null | ✓ | |",
        "| Null | [✓](../../tests/test_gone.py) |",
        '| Null | [✓](../../tests/test_status.py "test_of_nothing") |',
        "| Null | [✓](../../tests/test_status.py) |",
        '| Null | [✓](../../tests/test_status.py "rows") |',
        '| Null | [✓](test_status.py "test_every_test_case_is_claimed") |',
    ],
)
def test_a_claim_without_a_test_is_detected(claim: str) -> None:
    assert len(unproven(claim)) == 1


def test_every_test_case_is_claimed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    flat = {str(case) for case in CASES if not case.type.fields}
    assert flat - set(re.findall(r"`([^`]+)`", page)) <= {"timestamp[ns, tz=Europe/Paris]"}


def sentences(specification: str) -> list[str]:
    """Return the sentences of the Dissociated IPC specification from its definitions on, without markup."""
    text = specification[specification.index("Definitions\n---") : specification.index("Continuing Development\n===")]
    paragraphs = re.split(r"\n\s*\n|\n\s*(?:\*|-|#\.|\d\))\s+", text)
    plain = [re.sub(r":\w+:`([^`<]*?)\s*(<[^>]*>)?`", r"\1", paragraph) for paragraph in paragraphs]
    plain = [" ".join(re.sub(r"[*`]", "", paragraph).split()) for paragraph in plain]
    return [sentence for paragraph in plain for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z(])", paragraph)]


def test_the_conformance_page_has_every_requirement_and_each_must_of_it(shared_folder: Path) -> None:
    specification = (shared_folder / "spec" / "dissociated-ipc.rst").read_text(encoding="utf-8")
    requirements = [sentence for sentence in sentences(specification) if _REQUIREMENT.search(sentence)]
    assert len(requirements) == 47
    page = CONFORMANCE.read_text(encoding="utf-8")
    quotations = [quotation for row in rows(page) for quotation in re.findall("“([^”]+)”", row)]
    for quotation in quotations:
        assert sum(quotation in sentence for sentence in requirements) == 1, quotation
    for sentence in requirements:
        own_quotations = [quotation for quotation in quotations if quotation in sentence]
        assert 1 <= len(own_quotations) <= max(sentence.count("MUST"), 1), sentence
        rest = re.sub("|".join(map(re.escape, own_quotations)), "", sentence)
        assert "MUST" not in rest, sentence


def test_every_requirement_of_the_conformance_page_has_a_test() -> None:
    page = CONFORMANCE.read_text(encoding="utf-8")
    assert len(rows(page)) == len(re.findall(r"^\| (?:“|\d\. )", page, re.MULTILINE)) > 30
    assert not unproven(page)
