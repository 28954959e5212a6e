import math

import pytest

from rigor.report.tables.sweep_table import collect_rows, interval, sweep_table, table_text
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash
from rigor.runs.metrics import MetricsFile

NAME = "breakout-multihorizon-{}-mean-time_consistent-s{}-1a2b3c4{}"


def row(discount="hyperbolic", seed=0, **changes):
    return {
        "run": NAME.format(discount, seed, seed),
        "steps": 10_000_000,
        "steps_total": 10_000_000,
        "rate": 1234.4,
        "score": (312.4, 280.1, 341.2),
        "objective": (3.21, 2.1, 4.4),
        "status": "done",
        "error": None,
        "where": "runs",
    } | changes


ERROR = "FloatingPointError: the loss is nan at step 12,000; lower agent.lr or clip the gradient"
LONG_PLACE = "/scratch/users/someone/experiments/atari_57_games/runs"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((3.2, 2.1, 4.4), "3.2 [2.1, 4.4]"),
        ((3.2,), "3.2"),
        ((None,), "-"),
        ((-0.0123456,), "-0.0123"),
        ((0.0,), "0"),
        ((1234.56, 1100.2, 98765.4), "1235 [1100, 98765]"),
        ((1.5e-5,), "1.50e-5"),
        ((2.5e8,), "2.50e8"),
        ((math.nan,), "nan"),
        ((-math.inf,), "-inf"),
    ],
)
def test_intervals(numbers, text):
    assert interval(*numbers) == text


def test_the_table_of_a_sweep():
    rows = [
        row(seed=0),
        row(seed=1, status="running", steps=1_234_567, objective=None),
        row(seed=2, status="failed", error=ERROR, rate=None),
    ]
    lines = table_text(rows).splitlines()
    assert lines[0] == "breakout-multihorizon-hyperbolic-mean-time_consistent-* in runs"
    assert lines[1].split() == ["run", "steps", "steps/s", "score", "objective", "status"]
    assert lines[3].split() == ["s0-1a2b3c40", "10M/10M", "1,234", "312", "3.21", "done"]
    assert lines[4].split() == ["[280,", "341]", "[2.1,", "4.4]"]
    assert lines[5].split() == ["s1-1a2b3c41", "1.2M/10M", "1,234", "312", "-", "running"]
    text = " ".join(" ".join(lines).split())
    assert "failed:" in text
    assert "FloatingPointError:" in text


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("where", ["runs", LONG_PLACE])
@pytest.mark.parametrize("differs", ["", "agent.lr=0.001 agent.batch_size=128"])
def test_no_line_is_too_long_and_nothing_is_lost(width, where, differs):
    discounts = ("exponential", "quasi_hyperbolic", "tail_integral")
    rows = [row(name, seed, where=where) for name in discounts for seed in (0, 1)]
    rows[1] |= {"where": "/elsewhere", "status": "failed", "error": "KeyError: 'x'\nmore"}
    rows[2] |= {"differs": differs}
    text = table_text(rows, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    letters = "".join(text.split())
    for name in ("elsewhere", "KeyError", "[280,341]", "1,234"):
        assert name in letters


def test_words_are_not_broken_at_80_columns():
    rows = [row(name, 0) for name in ("exponential", "quasi_hyperbolic")]
    text = table_text(rows)
    assert [line.split()[0] for line in text.splitlines()[3:]] == [
        "exponential",
        "quasi_hyperbolic",
    ]
    rows.append(row("cir", 1, error=ERROR, status="failed"))
    text = table_text(rows)
    for piece in ("quasi_hyperbolic-", "exponential-s0-", "1a2b3c40", "FloatingPointError:"):
        assert piece in text
    rows[0] |= {"where": LONG_PLACE}
    lines = table_text([line | {"error": None, "status": "done"} for line in rows]).splitlines()
    for piece in ("exponential-", "hyperbolic-", "1a2b3c40", "experiments/", "games/"):
        assert any(piece in line for line in lines)


def test_a_wide_table_is_not_folded():
    rows = [row(seed=0), row(seed=1, where=LONG_PLACE)]
    assert len(table_text(rows, 160).splitlines()) == 5


def test_names_with_different_numbers_of_parts():
    rows = [row(run=name) for name in ("put-mean-s0-1", "put-mean-cvar-s0-2", "put-mean-s1-3")]
    lines = table_text(rows, 100).splitlines()
    assert lines[0] == "put-mean-* in runs"
    assert [line.split()[0] for line in lines[3:]] == ["s0-1", "cvar-s0-2", "s1-3"]
    duplicates = table_text([row(run="a"), row(run="a")], 100).splitlines()
    assert [line.split()[0] for line in duplicates[3:]] == ["a", "a"]


def test_tables_of_one_run_and_of_none():
    assert len(table_text([]).splitlines()) == 2
    lines = table_text([row()]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("run ")
    assert "consistent-s0-1a2b3c40" in lines[-1]


def test_colours_are_for_terminals_only():
    import io

    from rich.console import Console

    for terminal in (True, False):
        text = io.StringIO()
        colours = "standard" if terminal else None
        console = Console(file=text, width=80, force_terminal=terminal, color_system=colours)
        console.print(sweep_table([row(status="failed")]))
        assert ("\x1b[31mfailed" in text.getvalue()) == terminal
        assert ("\x1b" in text.getvalue()) == terminal


def run_at(path, state=None, **fields):
    config = {"name": path.name}
    run = RunDirectory.open(path, config, config_hash(config))
    if state:
        run.write_status(state, **fields)
    return run


def test_rows_come_from_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with run_at(tmp_path / "done", "done", step=100, steps_total=100) as run:
        run.write_result(
            {"score": 2.0, "score_low": 1.0, "score_high": 3.0, "objective": 5.0}
            | {"steps_per_second": 7.0}
        )
    with run_at(tmp_path / "failed", "failed", step=3, steps_total=100, error="boom"):
        pass
    paths = [tmp_path / name for name in ("done", "failed", "absent")]
    done, failed, absent = collect_rows(paths)
    assert done == {
        "run": "done",
        "differs": "",
        "steps": 100,
        "steps_total": 100,
        "rate": 7.0,
        "score": (2.0, 1.0, 3.0),
        "objective": (5.0, None, None),
        "exact": False,
        "status": "done",
        "error": None,
        "where": ".",
    }
    assert (failed["status"], failed["error"], failed["score"]) == ("failed", "boom", None)
    assert absent["status"] == "lost"
    assert table_text([done, failed, absent])


def test_a_running_run_shows_its_last_evaluation(tmp_path):
    with run_at(tmp_path / "run", "running", step=0) as run:
        columns = ["steps", "eval_score", "eval_score_low", "eval_score_high", "steps_per_second"]
        with MetricsFile(run.metrics_path, columns).open(0) as metrics:
            values = [50, 1.5, 1.0, 2.0, 30.0]
            metrics.append(dict(zip(columns, values, strict=True)))
            metrics.append({"steps": 60, "steps_per_second": 40.0})
        (found,) = collect_rows([run.path])
        assert (found["status"], found["score"]) == ("running", (1.5, 1.0, 2.0))
        assert (found["rate"], found["steps"]) == (40.0, 60)


def test_a_finished_run_without_steps_is_exact(tmp_path):
    for name, total in (("a", 0), ("c", None)):
        run = run_at(tmp_path / name, "done", step=0, steps_total=total)
        run.write_result({"objective": 1.0})
        run.close()
    run_at(tmp_path / "b", "failed", step=0, steps_total=0).close()
    lines = table_text(collect_rows([tmp_path / name for name in "abc"]), 200).splitlines()
    assert [line.split()[1] for line in lines[-3:]] == ["exact", "0", "0"]


def test_a_run_without_a_live_process_is_lost_or_queued(tmp_path):
    run_at(tmp_path / "lost", "running").close()
    run_at(tmp_path / "queued", "queued").close()
    run_at(tmp_path / "fresh").close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metrics.csv").write_text("steps,loss\n1,2.0\n")
    (tmp_path / "broken" / "status.json").write_text('{"sta')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "metrics.csv").write_text("no metrics\n")
    names = ("lost", "queued", "fresh", "broken", "odd")
    rows = collect_rows([tmp_path / name for name in names])
    assert [line["status"] for line in rows] == ["lost", "queued", "queued", "lost", "queued"]


def test_an_exact_objective_comes_before_a_sampled_one(tmp_path):
    with run_at(tmp_path / "gbwm", "done", step=5, steps_total=5) as run:
        run.write_result({"objective": 571.0, "objective_low": 571.0, "objective_exact": 7.35})
    (found,) = collect_rows([run.path])
    assert found["objective"] == (7.35, None, None)
    assert "7.35 exact" in table_text([found])
    with run_at(tmp_path / "lost", "done", step=5, steps_total=5) as run:
        run.write_result({"objective": 571.0, "objective_exact": float("nan")})  # written as null
    (found,) = collect_rows([run.path])
    assert found["objective"] == (571.0, None, None)
    assert "571 exact" not in table_text([found])


def test_a_long_error_is_cut():
    text = table_text([row(error="x" * 300, status="failed")], 100)
    assert 100 < text.count("x") < 130
    assert "…" in text
