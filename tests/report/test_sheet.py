import csv

from rigor.report.sheet import Sheet, counted, several

SHEET = Sheet(
    name="a",
    title="A table",
    caption="",
    rows=[
        {"who": "x_1 & <y>", "score": 1234.5, "score_low": 1000.0, "score_high": 2000.0, "n": 3},
        {"who": "z", "score": float("nan"), "n": 12000, "share": 50.0},
    ],
    shown={"who": "agent", "score": "score", "n": "n", "share": "share"},
    units={"share": " %"},
)


def test_cells():
    assert SHEET.cells == [
        ["x_1 & <y>", "1234 [1000, 2000]", "3", "–"],
        ["z", "–", "12,000", "50 %"],
    ]
    assert SHEET.is_number == [False, True, True, True]


def test_files(tmp_path):
    numbers, latex = SHEET.save(tmp_path)
    rows = list(csv.DictReader(numbers.read_text().splitlines()))
    assert (rows[0]["who"], float(rows[0]["score_low"])) == ("x_1 & <y>", 1000.0)
    assert (rows[1]["score"], rows[1]["share"]) == ("", "50.0")
    text = latex.read_text()
    assert r"\begin{tabular}{lrrr}" in text
    assert r"x\_1 \& <y>" in text
    assert r"50 \% \\" in text
    assert r"\toprule" in text


def test_a_long_table_may_break_over_pages(tmp_path):
    long = Sheet("b", "", "", [{"n": i} for i in range(60)], {"n": "n"})
    assert r"\begin{longtable}{r}" in long.save(tmp_path)[1].read_text()


def test_words():
    assert several(["a", "b", "c"], 2) == "a, b and 1 more"
    assert several(["a", "b"], 2) == "a, b"
    assert [counted(n, "game") for n in (0, 1, 2)] == ["0 games", "1 game", "2 games"]
