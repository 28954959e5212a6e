"""The page's HTML; `test_browser.py` loads the page into a real browser."""

import re
from html.parser import HTMLParser

import pytest
from PIL import Image
from synthetic import config_of, make_run, make_sweep

from rigor.errors import UserError
from rigor.report.page.page import write_report
from rigor.runs.directory import RunDirectory

VARIANTS = ("time_consistent", "time_aware", "time_inconsistent")


class Elements(HTMLParser):
    """All tags of a page with their attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Return a sweep of two games, three agents and two seeds, with a failed and a missing run."""
    tmp_path = tmp_path_factory.mktemp("grid")
    paths = [
        make_run(tmp_path, game, variant, seed, score + seed)
        for game, score in (("pong", 5.0), ("qbert", 4000.0))
        for variant in VARIANTS
        for seed in (0, 1)
        if (game, variant, seed) != ("qbert", "time_aware", 1)
    ]
    failed = make_run(
        tmp_path, "qbert", "time_aware", 1, state="failed", error="no memory left\ntrace"
    )
    gone = tmp_path / "qbert-multihorizon-hyperbolic-mean-time_aware-s2-0badc0de"
    return make_sweep(tmp_path, [*paths, failed, gone])


@pytest.fixture(scope="module")
def report(grid):
    """Return the report of the sweep; writing it takes a few seconds."""
    return write_report([grid], grid / "out")


def test_an_unfinished_sweep(report):
    assert (report.states, report.going_on) == ("11 done, 1 failed, 1 lost", False)
    page = Elements(report.page.read_text())
    ids = page.ids()
    assert len(ids) == len(set(ids))
    for part in ("agents", "curves", "improvement", "aggregates", "scores", "runs"):
        assert part in ids
        assert ("a", {"href": f"#{part}"}) in page.tags
    for part in (
        "2 of 13 runs are not done",
        "no memory left",
        "its directory is missing",
        "1 of 3",
    ):
        assert part in page.text
    assert "trace" not in page.text.split("no memory left")[1][:20]
    assert "optimum" not in ids  # an empty section is one line
    assert "between time_consistent and time_inconsistent: probability of improvement" in page.text
    assert "The paper: 39 of 50 games, mean +39.89 %, median +18.14 %" in page.text
    assert "comparison with the exact optimum: only environments with a model" in page.text
    assert not [attrs for tag, attrs in page.tags if attrs.get("http-equiv")]


def test_every_table_and_figure_is_also_a_file(report):
    page, out = Elements(report.page.read_text()), report.page.parent
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and "#" not in attrs["href"]]
    kinds = {link.rpartition(".")[2] for link in links}
    assert kinds == {"csv", "tex", "png", "svg"}
    for link in links:
        assert (out / link).stat().st_size > 0
    written = {path.relative_to(out).as_posix() for path in out.rglob("*.*")}
    assert written == {*links, "report.html", ".rigor-report"}
    with Image.open(out / "figures/learning_curves.png") as image:
        assert image.width > 700


def test_figures_have_the_pages_colours_and_a_description(report):
    text = report.page.read_text()
    figures = re.findall(r"<svg role=.*?</svg>", text, re.DOTALL)
    # 2 games' curves against steps and against hours, published returns, 3 comparisons, aggregates,
    # probability of improvement, profile, sample and wall-clock efficiency
    assert len(figures) == 13
    colours = set(re.findall(r"#[0-9a-f]{6}", "".join(figures)))
    assert colours == set()
    assert all(re.search(r'aria-label="[^"]{10,}', figure) for figure in figures)
    assert ">pong</text>" in figures[0]


def test_names_are_escaped(tmp_path):
    """A game, a setting and an error contain tags, and one contains broken mathematics."""
    nasty = "<script>alert(1)</script>"
    config = config_of(nasty, "time_aware", 0, horizons__quadrature=f"{nasty}$\\frac")
    path = make_run(tmp_path, "x", "time_aware", 0, 3.0, config=config).rename(tmp_path / "a<b>")
    other = config_of(nasty, "time_aware", 0, horizons__quadrature="lower")
    make_run(tmp_path, "x", "time_aware", 0, 4.0, config=other).rename(tmp_path / "b")
    failed = make_run(tmp_path, "y", "time_aware", 1, state="failed", error=f"{nasty} & more")
    RunDirectory(path).write_result({"score": 3.0, "commit": nasty, "versions": {nasty: "1"}})
    text = write_report([tmp_path], tmp_path / "out").page.read_text()
    assert "<script" not in text
    page = Elements(text)
    assert page.text.count("alert(1)") > 5
    assert f"{nasty} & more" in page.text
    assert failed.name in page.text
    assert "$\\frac" in page.text


def test_only_queued_runs(tmp_path):
    make_run(tmp_path, "pong", "time_aware", 0, state="queued")
    report = write_report([tmp_path], tmp_path / "out", refresh=30)
    assert (report.states, report.going_on) == ("1 queued", True)
    page = Elements(report.page.read_text())
    assert ("meta", {"http-equiv": "refresh", "content": "30"}) in page.tags
    assert "learning curves: no run has been evaluated yet;" in page.text
    assert not [tag for tag, attrs in page.tags if tag == "svg" and "role" in attrs]


def test_the_same_runs_give_the_same_page(grid, report, tmp_path):
    def page(written):
        return re.sub(r"Made [^.<]*", "", written.page.read_text())

    assert page(write_report([grid], tmp_path)) == page(report)


def test_a_chosen_baseline(grid, tmp_path):
    report = write_report([grid], tmp_path / "out", [("variant", "time_consistent")])
    page = Elements(report.page.read_text())
    assert "between time_aware and time_consistent" in page.text
    assert "between time_consistent and time_aware" not in page.text
    with pytest.raises(UserError, match=r"baseline variant=x: no agent has it"):
        write_report([grid], tmp_path / "no", [("variant", "x")])
    assert not (tmp_path / "no").exists()


def test_only_files_of_an_earlier_report_are_removed(tmp_path):
    runs = [make_run(tmp_path, "pong", variant, 0, 5.0) for variant in VARIANTS]
    out = tmp_path / "out"
    write_report(runs, out)
    compared = {path.name for path in (out / "figures").iterdir()}
    (out / "tables" / "mine.csv").write_text("a\n")
    write_report(runs[:1], out)
    alone = {path.name for path in (out / "figures").iterdir()}
    assert alone < compared
    page = (out / "report.html").read_text()
    for path in (*(out / "figures").iterdir(), *(out / "tables").iterdir()):
        assert path.name in page or path.name == "mine.csv"
    assert (out / "tables" / "mine.csv").exists()
