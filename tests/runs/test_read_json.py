import json

import pytest

from rigor.launch.status import run_status, totals
from rigor.report.tables.sweep_table import collect_rows, table_text
from rigor.runs.directory import RunDirectory


def written(folder, text):
    (folder / "status.json").write_text(text)
    (folder / "result.json").write_text('{"objective": 1.5}')
    (folder / "config.yaml").write_text("seed: 0\n")
    return RunDirectory(folder)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"state": "done", "step": null}', "step=null"),
        ('{"state": "running", "step": 1e400}', "step=Infinity"),
        ('{"state": "running", "step": -3}', "step=-3"),
        ('{"state": "running", "step": 2.5}', "step=2.5"),
        ('{"state": "running", "step": 1' + "0" * 400 + "}", "step=1000"),
        ('{"state": 7, "step": 3}', "state=7"),
        ('{"state": "finished", "step": 3}', 'state="finished"'),
        ('{"state": "running", "step": 3, "steps_total": "many"}', 'steps_total="many"'),
        ('{"state": "running", "step": 3, "seconds_left": NaN}', "seconds_left=NaN"),
        ('{"state": "failed", "step": 3, "error": ["a"]}', 'error=["a"]'),
        ('{"state": "running", "step": 3, "host": 3}', "host=3"),
    ],
)
def test_a_status_that_no_run_writes_is_lost_with_its_reason(tmp_path, text, shown):
    run = written(tmp_path, text)
    assert run.status() is None
    assert not run.is_done(0)
    status = run_status(tmp_path)
    assert status.state == "lost"
    assert status.error.startswith(f"status.json is broken ({shown}")
    assert totals([status]) == "1 lost of 1"
    assert "status.json is broken" in table_text(collect_rows([tmp_path]), width=200)


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"state": "do', "3"])
def test_text_that_is_no_object_is_lost_too(tmp_path, text):
    assert run_status(written(tmp_path, text).path).error == "status.json is broken"


def test_a_status_of_an_older_run_without_some_keys_is_read(tmp_path):
    run = written(tmp_path, '{"state": "done", "step": 3, "steps_total": null, "future": [1]}')
    assert run.is_done(3)
    assert run.problem() is None
    run.write_status("running", steps_per_second=3, seconds_left=2.5)
    assert run.status()["seconds_left"] == 2.5


def test_a_done_run_without_its_result_is_lost_and_not_done(tmp_path):
    run = written(tmp_path, json.dumps({"state": "done", "step": 3}))
    assert (run.state(), run.is_done(3)) == ("done", True)
    for text in (None, "", "{}", '{"objective": ', '{"objective": 1' + "0" * 400 + "}"):
        (tmp_path / "result.json").unlink()
        if text is not None:
            (tmp_path / "result.json").write_text(text)
        else:
            (tmp_path / "result.json").unlink(missing_ok=True)
        assert (run.state(), run.is_done(3)) == ("lost", False)
        assert "result.json is missing or broken" in run_status(tmp_path).error
        (tmp_path / "result.json").touch()


def test_a_done_run_without_its_config_is_not_done(tmp_path):
    run = written(tmp_path, json.dumps({"state": "done", "step": 3}))
    run.config_path.unlink()
    assert not run.is_done(3)


def test_results_with_texts_for_numbers_have_a_row_without_them(tmp_path):
    run = written(tmp_path, json.dumps({"state": "done", "step": 3}))
    (tmp_path / "result.json").write_text(
        '{"objective": "x", "score": [1], "steps_per_second": "fast", "objective_low": {}}'
    )
    (row,) = collect_rows([run.path])
    assert (row["score"], row["objective"], row["rate"]) == (None, None, None)
