"""Pages of the site that are not files in docs/: the home page, the API and the commands. A hook of MkDocs.

The home page is README.md, the reference of the API has one page for each public package, from its stub and docstrings,
and the reference of the commands has their `--help`. Links to other files of the repository lead to the project's URL.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = REPOSITORY / "src" / "bowstring"
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-policy.md": "SECURITY.md",
    "reference/networks.md": "networks/README.md",
    "reference/testing.md": "testing/README.md",
}
# Public modules outside of the packages with a stub.
MODULES = (
    "bowstring.transports.base",
    "bowstring.transports.tls",
    "bowstring.datasets.torch",
    "bowstring.datasets.ray",
    "bowstring.ipc.stream",
    "bowstring_networks.flight.server",
    "bowstring_networks.ucx.transport",
    "bowstring_networks.fabric.transport",
    "bowstring_networks.cuda.transport",
    "bowstring_testing.strategies",
    "bowstring_testing.transport_conformance",
)
_LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]+)?( \"[^\"]*\")?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the API in the navigation."""
    pages = [{name: f"reference/api/{name}.md"} for name in _api_pages()]
    _replace_in_navigation(config.nav, "reference/api", pages)
    return config


def _replace_in_navigation(entries: object, path: str, pages: list[dict[str, str]]) -> None:
    for entry in entries if isinstance(entries, list) else ():
        for title, value in entry.items():
            if value == path:
                entry[title] = pages
            _replace_in_navigation(value, path, pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    contents = {target: (REPOSITORY / name).read_text("utf-8") for target, name in ROOT_PAGES.items()}
    contents["reference/commands.md"] = _describe_commands()
    contents |= {f"reference/api/{name}.md": text for name, text in _api_pages().items()}
    for path, text in contents.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' signature
    """Change the links of a page that lead out of docs/."""
    path = page.file.src_uri
    folder = posixpath.dirname(ROOT_PAGES.get(path, posixpath.join("docs", path)))
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_LINK.sub(lambda link: _replace_link(link, folder, path), text) for text in parts[::2]]
    return "".join(parts)


def _replace_link(link: re.Match[str], folder: str, page: str) -> str:
    """Return a link to the page of the site, or the text of a link to a file that is only in the repository."""
    text, path, anchor, title = link[1], link[2], link[3] or "", link[4] or ""
    target = posixpath.normpath(posixpath.join(folder, path))
    site_path = next((name for name, source in ROOT_PAGES.items() if source == target), target.removeprefix("docs/"))
    if site_path == target:
        return text
    return f"[{text}]({posixpath.relpath(site_path, posixpath.dirname(page) or '.')}{anchor}{title})"


def _api_pages() -> dict[str, str]:
    """Return the text of each page of the API by package or module."""
    names = _read_stub("")
    packages = [name for name, module in names.items() if module == "bowstring"]
    pages = {
        "bowstring": _describe_package("", {name: module for name, module in names.items() if module != "bowstring"})
    }
    for package in packages:
        pages[f"bowstring.{package}"] = _describe_package(package, _read_stub(package))
    for module in MODULES:
        pages[module] = f"# {module}\n\n::: {module}\n    options: {{heading_level: 2}}\n"
    return pages


def _read_stub(package: str) -> dict[str, str]:
    """Return the module of each public name of a package, or nothing for a module or a stub with functions."""
    stub = SOURCES / package / "__init__.pyi"
    nodes = ast.parse(stub.read_text("utf-8")).body if stub.exists() else []
    if any(isinstance(node, ast.FunctionDef) for node in nodes):
        return {}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


def _describe_package(package: str, names: dict[str, str]) -> str:
    """Return a page with the docstring of a package and of its public names, by the part of it that has them."""
    path = f"bowstring.{package}".rstrip(".")
    if not names:
        return f"# {path}\n\n::: {path}\n    options: {{heading_level: 2, show_root_heading: false}}\n"
    lines = [f"# {path}", "", f"::: {path}", "    options: {members: false, show_root_heading: false}", ""]
    heading = ""
    for name, module in names.items():
        part = module.removeprefix(path + ".").partition(".")[0]
        if package == "" and part != heading:
            heading = part
            lines += [f"## {heading}", ""]
        lines += [f"::: {path}.{name}", ""]
    return "\n".join(lines)


def _describe_commands() -> str:
    """Return a page with the help of all commands."""
    from bowstring.cli.commands import COMMANDS

    lines = [
        "# All commands and options",
        "",
        "The output of `bowstring COMMAND --help`. [The guide](command-line.md) explains it.",
        "",
    ]
    for name, summary in COMMANDS.items():
        lines += [f"## {name}", "", summary, "", "```text", f"$ bowstring {name} --help", _read_help(name), "```", ""]
    return "\n".join(lines)


def _read_help(command: str) -> str:
    from bowstring.cli.main import main

    os.environ["COLUMNS"] = "100"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        main([command, "--help"])
    return output.getvalue().rstrip()
