"""The documentation builds without a warning, is complete, and loads nothing online."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def build(source, out):
    """Run the command of `make docs` in the directory `source`."""
    command = re.search(r"sphinx-build (.*) site\n", (ROOT / "Makefile").read_text())
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *command[1].split(), str(out)],
        cwd=source,
        capture_output=True,
        text=True,
    )


class Page(HTMLParser):
    """The anchors of a page, the targets of its links, and the files that it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif found.get("src") or (tag == "link" and found.get("rel") != "canonical"):
            self.loads.append(found.get("src") or found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def test_every_page_is_built_and_listed(site):
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    listed = {urlsplit(link).path for link in Page(site / "docs" / "index.html").links}
    for path in pages:
        page = path.relative_to(ROOT).with_suffix(".html")
        assert (site / page).exists()
        if path.name != "index.md":
            assert str(page).removeprefix("docs/") in {link.removeprefix("../") for link in listed}


def test_links_have_targets_and_nothing_is_loaded_online(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for target in page.links + page.loads:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                assert target in page.links, f"{path}: loads {target}"
                continue
            file = (path.parent / unquote(url.path)).resolve() if url.path else path
            assert file.exists(), f"{path}: {target}"
            if url.fragment and file in pages:
                assert unquote(url.fragment) in pages[file].ids | {""}, f"{path}: {target}"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(.?https?:", style.read_text()), style


def test_a_link_without_a_target_is_an_error(tmp_path):
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    (tmp_path / "README.md").write_text("# Front\n\n[page](docs/nowhere.md)\n")
    (tmp_path / "docs" / "index.md").write_text(
        "# Index\n\n[front](../README.md#no-such-part), [file](../nothing.py), ![](none.png)\n\n"
        "```{toctree}\n../README\n```\n"
    )
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for part in ("docs/nowhere.md", "no-such-part", "../nothing.py", "none.png"):
        assert part in done.stderr
