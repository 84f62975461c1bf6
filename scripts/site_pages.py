"""Add pages to the site that are not in docs/, and make links to files of the repository: hooks of mkdocs.

README is the first page. CONTRIBUTING, CHANGELOG, the README of the benchmarks and the notebooks are pages too. Any
other file of the repository that a page links to is copied into the site. A folder becomes a page that lists its files.
The page of all commands has what their modules say at their top.
"""

import ast
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""the pages of the site that are elsewhere in the repository"""
COPIED = "repository"
"""the folder of the site with other files of the repository"""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?src="([^"]+)"\s*alt="([^"]*)".*?</picture>', re.DOTALL)
UNSEEN = re.compile(r"<p>(?:(?!</p>).)*?\n(?:[-*] |\|).*", re.DOTALL)
log = get_plugin_logger("site_pages")


def on_config(config: MkDocsConfig) -> None:
    """Replace each folder of the navigation by its pages."""

    def expanded(entry: Any) -> Any:
        if isinstance(entry, list):
            return [expanded(one) for one in entry]
        if isinstance(entry, dict):
            return {title: expanded(one) for title, one in entry.items()}
        return list(_pages_in(entry)) if entry.endswith("/") else entry

    config.nav = expanded(config.nav)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere, and the files and folders that pages link to."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=_read(ROOT / source)))
    files.append(File.generated(config, "commands.md", content=_commands()))
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        place = notebook.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        files.append(File.generated(config, place, content=_notebook(notebook)))
    waiting = [(_source(file.src_uri), file.content_string) for file in files.documentation_pages()]
    while waiting:
        source, text = waiting.pop()
        for linked in _linked(source, text):
            place = _place(linked)
            if place.startswith("..") or files.get_file_from_path(place) or not (ROOT / linked).exists():
                continue
            if (ROOT / linked).is_dir():
                text = _listing(linked)
                files.append(File.generated(config, place, content=text, inclusion=_inclusion(place)))
                waiting.append((_source(place), text))
            else:
                copied = str(ROOT / linked)
                files.append(File.generated(config, place, abs_src_path=copied, inclusion=_inclusion(place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead to where their files are in the site, and show one picture in light, another in dark."""
    source = _source(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[0]))
        return os.path.relpath(_place(path), posixpath.dirname(page.file.src_uri) or ".")

    markdown = PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", markdown)
    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Warn of what GitHub shows as a list or a table, but this site as text: it needs an empty line before it."""
    if found := UNSEEN.search(html):
        log.warning(f"{page.file.src_uri}: no empty line before the list or table: {found[0].splitlines()[0][:99]}")


def on_post_build(config: MkDocsConfig) -> None:
    """Say what was made."""
    pages = sum(1 for _ in Path(config.site_dir).rglob("*.html"))
    print(f"site: {pages} pages; open {Path(config.site_dir) / 'index.html'}")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _inclusion(place: str) -> InclusionLevel:
    """Return whether a page must be in the navigation."""
    return InclusionLevel.NOT_IN_NAV if place.startswith(f"{COPIED}/") else InclusionLevel.INCLUDED


def _pages_in(folder: str) -> Iterator[str]:
    """Return the pages of a folder in docs/, its list first."""
    names = sorted(path.name for path in (ROOT / "docs" / folder).glob("*.md"))
    yield f"{folder}README.md" if "README.md" in names else f"{folder}index.md"
    yield from (folder + name for name in names if name != "README.md")


def _source(place: str) -> str:
    """Return where a page of the site is in the repository."""
    if place.startswith(f"{COPIED}/"):
        return place.removeprefix(f"{COPIED}/")
    return next((source for source, page in PAGES.items() if page == place), f"docs/{place}")


def _place(path: str) -> str:
    """Return where a file or folder of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    place = path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIED}/{path}"
    if (ROOT / path).is_dir():
        return f"{place}/{'README.md' if (ROOT / path / 'README.md').exists() else 'index.md'}"
    return f"{place.removesuffix('.ipynb')}.md" if place.endswith(".ipynb") else place


def _linked(source: str, text: str) -> set[str]:
    """Return the files and folders of the repository that a page links to."""
    folder = posixpath.dirname(source)
    return {posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall(text)}


def _listing(folder: str) -> str:
    """Return a page with the files of a folder, pages by their titles, the newest first."""
    lines = [f"# {folder}", ""]
    for path in sorted((ROOT / folder).iterdir(), reverse=True):
        title = _read(path).partition("\n")[0].removeprefix("# ") if path.suffix == ".md" else path.name
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)


def _commands() -> str:
    """Return the page of all commands, in the groups of `bert --help`."""
    nodes = [node for node in ast.parse(_read(ROOT / "bert/commands.py")).body if isinstance(node, ast.AnnAssign)]
    tables = {ast.unparse(node.target): node.value for node in nodes}
    groups, extensions = (ast.literal_eval(tables[name] or "") for name in ("GROUPS", "EXTENSIONS"))
    lines = ["# Commands", "", "`--help` of each command lists its flags. `bert NAME` is `python -m MODULE`."]
    for title, modules in groups.items():
        lines += ["", f"## {title}"]
        for module in modules:
            path = ROOT / extensions.get(module, module).replace(".", "/")
            text = ast.get_docstring(
                ast.parse(_read(path / "__main__.py" if path.is_dir() else path.with_suffix(".py")))
            )
            lines += ["", f"### {module}", "", "```text", text or "", "```"]
    return "\n".join(lines)


def _notebook(path: Path) -> str:
    """Return a notebook as a page."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(_read(path))["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells)
