"""Sweepers of others keep no record of runs, but the command ends as a sweep of rigor's does."""

import json

import pytest
from command_line import TINY, rigor_train

EXACT = ("env=tabular", "agent=backward_induction", "tracker=none", "out=out")


@pytest.mark.slow
def test_hydras_basic_sweeper_has_a_table_and_a_report(tmp_path):
    done = rigor_train(*EXACT, "hydra/sweeper=basic", "discount.gamma=0.9,0.8", "-m", cwd=tmp_path)
    assert done.code == 0, done.err
    (sweep,) = (tmp_path / "out" / "sweeps").iterdir()
    assert len(json.loads((sweep / "manifest.json").read_text())["runs"]) == 2
    assert "0.8" in (sweep / "table.txt").read_text()
    assert (sweep / "report" / "report.html").is_file()
    assert f"report: out/sweeps/{sweep.name}/report/report.html" in done.out


@pytest.mark.slow
def test_optuna(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")  # the extra `optuna`
    search = (
        "hydra/sweeper=optuna",
        "hydra.sweeper.direction=maximize",
        "hydra.sweeper.n_trials=2",
        "hydra.sweeper.n_jobs=1",
        "train.learning_rate=interval(1e-4,1e-2)",
    )
    done = rigor_train(*TINY, *search, "out=out", "-m", cwd=tmp_path)
    assert done.code == 0, done.err
    (sweep,) = (tmp_path / "out" / "sweeps").iterdir()
    assert (sweep / "table.txt").read_text().count("rate=") == 2
    assert (sweep / "report" / "report.html").is_file()
    assert "train.learning_rate" in (tmp_path / "optimization_results.yaml").read_text()
