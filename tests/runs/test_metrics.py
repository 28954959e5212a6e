import math

import numpy as np
import pytest

from rigor.errors import UserError
from rigor.runs.metrics import MetricsFile, last_values, read

COLUMNS = ["steps", "loss", "count"]


def write(path, steps):
    with MetricsFile(path, COLUMNS).open(0) as metrics:
        for step in steps:
            metrics.append({"steps": step, "loss": step / 3, "count": step})


def test_numbers_read_back_exactly(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsFile(path, COLUMNS).open(0) as metrics:
        metrics.append({"steps": 1, "loss": 0.1 + 0.2, "count": np.int64(3)})
        metrics.append({"steps": np.int64(2), "loss": np.float32(0.1)})
        metrics.append({"steps": 3, "loss": math.nan, "count": None})
        lines = path.read_text().splitlines()  # each row is on disk before the file is closed
    assert lines == [
        "steps,loss,count",
        "1,0.30000000000000004,3",
        "2,0.10000000149011612,",
        "3,nan,",
    ]
    frame = read(path)
    assert frame["loss"][0] == 0.1 + 0.2
    assert frame["steps"].tolist() == [1, 2, 3]


def test_names_are_checked(tmp_path):
    with MetricsFile(tmp_path / "m.csv", COLUMNS).open(0) as metrics:
        with pytest.raises(KeyError, match=r"los: not a column of m\.csv"):
            metrics.append({"steps": 1, "los": 1})
        with pytest.raises(KeyError, match="steps"):
            metrics.append({"loss": 1})
    with pytest.raises(ValueError, match="not open"):
        metrics.append({"steps": 1})
    with pytest.raises(ValueError, match="the first of them 'steps'"):
        MetricsFile(tmp_path / "m.csv", ["loss", "steps"])


def test_resuming_drops_rows_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.csv"
    write(path, [10, 20, 30, 40])
    with MetricsFile(path, COLUMNS).open(20) as metrics:
        metrics.append({"steps": 30, "loss": 9.0})
    assert read(path)["steps"].tolist() == [10, 20, 30]
    assert read(path)["loss"].tolist()[-1] == 9.0


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_incomplete_row_is_dropped(tmp_path, cut):
    path = tmp_path / "metrics.csv"
    write(path, [10, 20])
    whole = path.read_bytes()
    path.write_bytes(whole + b"30,0.25,30\n"[: 11 - cut])
    assert read(path)["steps"].tolist() == [10, 20]
    assert last_values(path)["steps"] == 20
    with MetricsFile(path, COLUMNS).open(100) as metrics:
        assert path.read_bytes() == whole
        metrics.append({"steps": 40})
    assert read(path)["steps"].tolist() == [10, 20, 40]


def test_unreadable_rows_are_dropped(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"steps,loss,count\n1,2.0,3\n\0\0\0\0\n5,6\nx,1.0,1\n7,8.0,9\n")
    assert read(path)["steps"].tolist() == [1, 7]


def test_new_columns_join_the_old_ones(tmp_path):
    path = tmp_path / "metrics.csv"
    write(path, [10])
    with MetricsFile(path, ["steps", "return", "loss"]).open(10) as metrics:
        metrics.append({"steps": 20, "return": 1.0, "loss": 2.0})
    assert path.read_text().splitlines() == [
        "steps,loss,count,return",
        "10,3.3333333333333335,10,",
        "20,2.0,,1.0",
    ]


def test_a_cell_larger_than_csv_reads_is_refused(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(f"steps,{'l' * 200_000}\n1,2\n")
    for reader in (read, last_values):
        with pytest.raises(UserError, match=r"metrics\.csv: not a metrics file \(field larger"):
            reader(path)


def test_a_text_among_numbers_is_missing_and_a_column_of_texts_stays(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("steps,eval_score,note,loss\n1,x,a,nan\n2,3.5,b,nan\n3,,,\n")
    found = read(path)
    assert found["eval_score"].tolist() == pytest.approx([math.nan, 3.5, math.nan], nan_ok=True)
    assert found["note"].tolist() == ["a", "b", ""]
    assert found["loss"].isna().all()


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("time,value\n1,2\n")
    with pytest.raises(UserError, match="not a metrics file"):
        MetricsFile(path, COLUMNS).open(0)


def test_an_empty_or_missing_file_has_no_rows(tmp_path):
    path = tmp_path / "metrics.csv"
    assert read(path).empty
    assert last_values(path) == {}
    path.write_text("")
    assert read(path).empty
    write(path, [])
    assert read(path).columns.tolist() == COLUMNS


def test_last_values_skip_empty_cells_and_read_the_end_only(tmp_path):
    path = tmp_path / "metrics.csv"
    write(path, range(1, 20_000))
    assert path.stat().st_size > 2 * 65_536
    with MetricsFile(path, [*COLUMNS, "eval_score"]).open(10**9) as metrics:
        metrics.append({"steps": 20_000, "eval_score": 5.0})
        metrics.append({"steps": 20_001, "loss": 0.5})
        metrics.append({"steps": 20_002, "loss": math.nan})
    found = last_values(path)
    assert found == {"steps": 20_002.0, "loss": 0.5, "count": 19_999.0, "eval_score": 5.0}


def test_text_stays_on_its_line(tmp_path):
    path = tmp_path / "metrics.csv"
    with MetricsFile(path, COLUMNS).open(0) as metrics:
        metrics.append({"steps": 1, "loss": 'a,\n"b"'})
    assert path.read_text().count("\n") == 2
    assert read(path)["loss"][0] == 'a, "b"'


@pytest.mark.parametrize("steps", ["9" * 400, "²", "1e3", "-5", "0x10"])
def test_a_row_without_a_number_of_steps_is_dropped(tmp_path, steps):
    path = tmp_path / "metrics.csv"
    path.write_text(f"steps,loss\n10,0.5\n{steps},0.25\n")
    assert list(read(path)["steps"]) == [10]
    assert last_values(path) == {"steps": 10.0, "loss": 0.5}
    with MetricsFile(path, ["steps", "loss"]).open(10):
        assert path.read_text() == "steps,loss\n10,0.5\n"
