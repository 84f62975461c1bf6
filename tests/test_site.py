"""The site of the pages: every link in it leads somewhere, nothing comes from other hosts, broken pages are refused."""

import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from bert import commands

ROOT = Path(__file__).resolve().parents[1]
MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
needs_mkdocs = pytest.mark.skipif(not MKDOCS.exists(), reason="no mkdocs: make it with scripts/extra_venv.sh docs true")


class Html(HTMLParser):
    """The links of a page, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given or (tag == "link" and "href" in given):
            self.loaded.append(given.get("src") or given["href"])


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout."""
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@needs_mkdocs
@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.resolve(): Html(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("*.html")}
    broken, counted = [], 0
    for path, page in pages.items():
        assert not [name for name in page.loaded if "//" in name], path
        if path.name == "404.html":  # whose links begin at the root of the server
            continue
        for link in page.links + page.loaded:
            name, anchor = urldefrag(link)
            if ":" in name:
                continue
            counted += 1
            target = (path.parent / unquote(name)).resolve() if name else path
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                broken.append(f"{path.relative_to(tmp_path)}: {link}")
    assert len(pages) > 60 and counted > 5000
    assert not broken
    anchors = pages[tmp_path.resolve() / "commands.html"].anchors
    assert len(commands.MODULES) > 40 and {name.replace(".", "") for name in commands.MODULES.values()} <= anchors
    pictures = [name for name in pages[tmp_path.resolve() / "index.html"].loaded if "pipeline" in name]
    assert pictures == ["pipeline-light.svg#only-light", "pipeline-dark.svg#only-dark"]


@needs_mkdocs
@pytest.mark.slow
def test_a_page_with_broken_links_or_outside_the_navigation_fails_the_build(tmp_path: Path) -> None:
    for name in ("docs", "scripts", "benchmarks", "bert", "data", "serve", "squad", "tasks", "extensions"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs" / "new.md").write_text(
        "# New\n\n[a](no_page.md), [b](tour.md#no-heading), [c](../bert/no_file.py)\n\nText `with code`\n- a list\n"
    )
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert 'not included in the "nav" configuration:\n  - new.md\n' in done.stderr
    for part in ("'no_page.md'", "'tour.md#no-heading'", "'repository/bert/no_file.py'", "no empty line before"):
        assert part in done.stderr
