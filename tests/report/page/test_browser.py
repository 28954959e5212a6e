"""The page in a real browser: two widths, light and dark, no requests, no messages."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from synthetic import make_run, make_sweep

from rigor.report.page.page import write_report

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH"),
]

# Headless windows are at least 500 pixels wide; a frame may be narrower.
FRAMES = """<!DOCTYPE html><link rel="icon" href="data:,">
<iframe id="wide" width="1280" height="800" src="report.html"></iframe>
<iframe id="narrow" width="400" height="800" src="report.html"></iframe>
<script>
onload = () => {
  const seen = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow;
    const colour = (element, name) => view.getComputedStyle(element)[name];
    const figure = page.querySelector("#figure-profiles svg");
    const box = (one) => one.getBoundingClientRect();
    seen[frame.id] = {
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      requests: view.performance.getEntriesByType("resource").map((one) => one.name),
      paper: colour(page.body, "backgroundColor"),
      ink: colour(page.body, "color"),
      text: colour(figure.querySelector("text"), "fill"),
      sections: [...page.querySelectorAll("section")].map((one) => one.id),
      panels: page.querySelectorAll("#figure-learning_curves svg").length,
      columns: new Set([...page.querySelectorAll("#figure-learning_curves svg")]
        .map((one) => Math.round(box(one).left))).size,
      empty: [...page.querySelectorAll("figure svg")]
        .filter((one) => box(one).width < 100 || box(one).height < 40).length,
      letters: Math.min(...[...page.querySelectorAll("figure svg text")]
        .map((one) => box(one).height)),
    };
  }
  const said = document.createElement("pre");
  said.textContent = JSON.stringify(seen);
  document.body.append(said);
};
</script>"""


def look(directory, dark):
    """Return the measurements of the script above, and the lines of the browser's console."""
    (directory / "frames.html").write_text(FRAMES)
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            f"--user-data-dir={directory / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--window-size=1400,900",
            "--virtual-time-budget=10000",
            "--dump-dom",
            (directory / "frames.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    (said,) = re.findall(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    return json.loads(unescape(said)), [
        line for line in done.stderr.splitlines() if "CONSOLE" in line
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    paths = [
        make_run(
            out, game, variant, seed, score * (1.2 if variant == "time_consistent" else 1.0) + seed
        )
        for game, score in (
            ("pong", 5.0),
            ("qbert", 4000.0),
            ("name_this_game", 7000.0),
            ("double_dunk", -9.0),
            ("freeway", 20.0),
        )
        for variant in ("time_consistent", "time_aware", "time_inconsistent")
        for seed in (0, 1)
    ]
    paths.append(make_run(out, "alien", "time_aware", 0, state="failed", error="x" * 300))
    return write_report([make_sweep(out, paths)], out / "out").page.parent


@pytest.mark.parametrize("dark", [False, True])
def test_both_widths(directory, dark):
    seen, console = look(directory, dark)
    assert console == []
    ink, paper = (
        ("rgb(230, 231, 234)", "rgb(21, 23, 27)")
        if dark
        else (
            "rgb(28, 29, 32)",
            "rgb(255, 255, 255)",
        )
    )
    for frame in seen.values():
        assert frame["overflow"] == 0
        assert frame["requests"] == []
        assert (frame["ink"], frame["paper"], frame["text"]) == (ink, paper, ink)
        assert frame["sections"] == [
            "agents",
            "curves",
            "improvement",
            "aggregates",
            "scores",
            "runs",
        ]
        assert (frame["panels"], frame["empty"]) == (5, 0)
        assert frame["letters"] > 7.5  # pixels of a line of the smallest text
    assert (seen["wide"]["columns"], seen["narrow"]["columns"]) == (5, 2)


def test_requests_and_messages_are_detected(directory, tmp_path):
    page = (directory / "report.html").read_text()
    tampered = page.replace(
        "</body>", '<img src="http://example.org/a.png"><script>nope()</script>'
    )
    (tmp_path / "report.html").write_text(tampered)
    seen, console = look(tmp_path, dark=False)
    assert seen["wide"]["requests"] == ["http://example.org/a.png"]
    assert any("nope is not defined" in line for line in console)
