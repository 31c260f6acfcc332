"""The wheel and the source distribution: reproducible, complete, with absolute links in the long description."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def list_files(*folders: str) -> list[str]:
    """The files under version control."""
    command = ["git", "ls-files", "-z", *folders]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name]


def copy_sources(target: Path, seconds: int, mode: int) -> None:
    """Copy what is under version control, with this time of modification and these permissions."""
    for name in list_files():
        if name.startswith(("src/", "docs/", "networks/", "testing/")) or "/" not in name:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, target / name)
            (target / name).chmod(mode)
            os.utime(target / name, (seconds, seconds))


def build(sources: Path, **environment: str) -> list[Path]:
    """Build the wheel and the source distribution."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"} | environment
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=sources, env=environment, check=True, timeout=240)
    return sorted((sources / "dist").iterdir())


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """Two builds: of copies in other folders, with other times, permissions, time zones and seeds of hashes."""
    pytest.importorskip("hatchling")
    pytest.importorskip("hatch_fancy_pypi_readme")
    if not (REPOSITORY / ".git").exists():
        pytest.skip("requires a clone")
    folders = [tmp_path_factory.mktemp("sources") / name for name in ("a", "another")]
    copy_sources(folders[0], 1_700_000_000, 0o644)
    copy_sources(folders[1], 1_800_000_000, 0o600)
    return [
        build(folders[0], TZ="UTC", PYTHONHASHSEED="1"),
        build(folders[1], TZ="Asia/Tokyo", PYTHONHASHSEED="2"),
    ]


@pytest.fixture(scope="module")
def metadata(distributions: list[list[Path]]) -> Message:
    """The metadata of the wheel."""
    return read_metadata(distributions[0])


def read_metadata(distribution: list[Path]) -> Message:
    with zipfile.ZipFile(next(path for path in distribution if path.suffix == ".whl")) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name))


def relative_links(metadata: Message) -> list[str]:
    """The relative links of the long description."""
    description = metadata.get_payload()
    assert isinstance(description, str)
    links = re.findall(r"\[([^]]*)\]\(([^)\s]+)", description)
    return [target for _, target in links if not re.match(r"https?://|#", target)]


def test_two_builds_of_the_same_sources_are_identical(distributions: list[list[Path]]) -> None:
    first, second = ([path.name for path in paths] for paths in distributions)
    assert first == second
    assert len(first) == 2
    for paths in zip(*distributions, strict=True):
        digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        assert len(digests) == 1, paths[0].name


def test_the_wheel_has_the_modules_stubs_and_resources_and_nothing_else(distributions: list[list[Path]]) -> None:
    with zipfile.ZipFile(next(path for path in distributions[0] if path.suffix == ".whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = list_files("src")
    assert names == {name.removeprefix("src/") for name in sources}
    assert {"bowstring/py.typed", "bowstring/__init__.pyi", "pyspark_bowstring.py"} <= names


def test_the_source_distribution_has_what_the_wheel_is_built_of(distributions: list[list[Path]]) -> None:
    with tarfile.open(next(path for path in distributions[0] if path.suffix == ".gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "src/bowstring/__init__.py", "PKG-INFO"} <= names


def test_the_long_description_has_no_relative_links(metadata: Message) -> None:
    assert relative_links(metadata) == []
    description = metadata.get_payload()
    assert isinstance(description, str)
    assert "there are other ways: `bs.share`" in description
    assert ".example" not in description + "".join(metadata.get_all("Project-URL") or [])


@pytest.mark.parametrize(
    ("folder", "module"), [("networks", "ucx/transport.py"), ("testing", "transport_conformance.py")]
)
def test_the_other_distributions_have_this_version_their_modules_and_no_relative_links(
    distributions: list[list[Path]], metadata: Message, folder: str, module: str
) -> None:
    paths = build(distributions[0][0].parents[1] / folder)
    with zipfile.ZipFile(next(path for path in paths if path.suffix == ".whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {name.removeprefix(f"{folder}/src/") for name in list_files(f"{folder}/src")}
    assert {f"bowstring_{folder}/py.typed", f"bowstring_{folder}/{module}"} <= names
    own = read_metadata(paths)
    assert own["Version"] == metadata["Version"]
    assert f"bowstring=={metadata['Version']}" in (own.get_all("Requires-Dist") or [])
    assert relative_links(own) == []


def test_the_metadata_names_the_platform_the_audience_and_the_versions_of_python(metadata: Message) -> None:
    classifiers = metadata.get_all("Classifier") or []
    assert {"Operating System :: POSIX :: Linux", "Intended Audience :: Developers", "Typing :: Typed"} <= {
        *classifiers
    }
    assert any(text.startswith("Topic ::") for text in classifiers)
    versions = re.findall(r"Python :: 3\.(\d+)", "\n".join(classifiers))
    assert versions == ["11", "12", "13", "14"]
    assert metadata["Author"]


def test_no_requirement_is_pinned_and_a_package_has_one_range_of_versions() -> None:
    requirements = [Requirement(text) for texts in EXTRAS.values() for text in texts]
    # Of the tests only: without it, pip installs the build for GPUs, of several GB.
    assert [str(each) for each in requirements if "==" in str(each.specifier)] == ["torch==2.13.0"]
    assert not any("training" in text for name, texts in EXTRAS.items() if name != "training" for text in texts)
    pandas = {str(each.specifier) for each in requirements if each.name == "pandas"}
    assert len(pandas) == 1
