import csv

from rigor.report.tables.sheet import Sheet, counted, several

SHEET = Sheet(
    name="a",
    title="A table",
    caption="",
    rows=[
        {"agent": "x_1 & <y>", "score": 1234.5, "score_low": 1000.0, "score_high": 2000.0, "n": 3},
        {"agent": "z", "score": float("nan"), "n": 12000, "fraction": 50.0},
    ],
    shown={"agent": "agent", "score": "score", "n": "n", "fraction": "fraction"},
    units={"fraction": " %"},
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
    assert (rows[0]["agent"], float(rows[0]["score_low"])) == ("x_1 & <y>", 1000.0)
    assert (rows[1]["score"], rows[1]["fraction"]) == ("", "50.0")
    text = latex.read_text()
    assert r"\begin{tabular}{lrrr}" in text
    assert r"x\_1 \& <y>" in text
    assert r"50 \% \\" in text
    assert r"\toprule" in text


def test_a_long_table_may_break_over_pages(tmp_path):
    long = Sheet("b", "", "", [{"n": i} for i in range(60)], {"n": "n"})
    assert r"\begin{longtable}{r}" in long.save(tmp_path)[1].read_text()


def test_numbers_of_words():
    assert several(["a", "b", "c"], 2) == "a, b and 1 more"
    assert several(["a", "b"], 2) == "a, b"
    assert [counted(n, "game") for n in (0, 1, 2)] == ["0 games", "1 game", "2 games"]


def test_texts_are_no_formulas_and_have_no_control_characters(tmp_path):
    row = {"=agent": "=HYPERLINK(1)", "note": "\x1b[31m-1+1\x1b[0m", "score": -3.0, "fine": "a=b"}
    sheet = Sheet("x", "x", "", [row], {key: key for key in row})
    sheet.save(tmp_path)
    text = (tmp_path / "x.csv").read_text()
    assert text.splitlines() == ["'=agent,note,score,fine", "'=HYPERLINK(1),'-1+1,-3.0,a=b"]
    assert sheet.cells == [["=HYPERLINK(1)", "-1+1", "-3", "a=b"]]
    assert "\x1b" not in (tmp_path / "x.tex").read_text()
