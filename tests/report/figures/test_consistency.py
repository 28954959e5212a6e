import numpy as np
import pandas as pd
import pytest
from synthetic import config_of, make_run

from rigor.errors import UserError
from rigor.report.data.agents import agents_of
from rigor.report.data.runs import is_lander, is_put, load
from rigor.report.figures import sweep_figures
from rigor.report.figures.agent_curves import agent_styles
from rigor.report.figures.consistency import COLUMNS
from rigor.report.page.page import write_report

PUT = {"steps": 20, "_target_": "rigor.envs.american_put.Put"}


def method(quadrature, bootstrap="shared"):
    multi = {"m": 10, "gamma_max": 0.999, "_target_": "rigor.maths.horizons.Multi"}
    return {
        "env": PUT,
        "horizons": multi | {"quadrature": quadrature},
        "agent": {"bootstrap": bootstrap, "_target_": "rigor.config.schemas.Learner"},
    }


@pytest.fixture
def put(tmp_path):
    """Return a function that writes a run on a put whose optimum is 4, and returns its path."""

    def put(variant, quadrature, objective, seed=0, exact=False):
        config = config_of("american_put", variant, seed) | method(quadrature)
        result = {"objective": objective, "objective_exact": objective, "objective_optimal": 4.0}
        choices = {}
        if exact:
            config["agent"] = {
                "bootstrap": "shared",
                "_target_": "rigor.config.schemas.BackwardInduction",
            }
            choices = {"agent": "backward_induction"}
            result["episodes"] = 0
        run = make_run(
            tmp_path,
            "american_put",
            variant,
            seed,
            6.0,
            rows=20,
            config=config,
            choices=choices,
            result=result,
        )
        if exact:
            (run / "metrics.csv").write_text(
                f"steps,eval_score,eval_objective,seconds\n0,6.0,{objective},0.5\n"
            )
        return run

    return put


@pytest.fixture
def folder(put, tmp_path):
    put("time_inconsistent", "lower", 3.0, exact=True)
    put("time_inconsistent", "gauss_legendre", 3.9, exact=True)
    for seed, objective in enumerate((2.0, 3.0)):
        put("time_inconsistent", "lower", objective, seed)
        put("time_consistent", "lower", objective + 0.5, seed)
    return tmp_path


def agents_in(folder):
    return agents_of([load(path) for path in sorted(folder.iterdir())])


def test_curves_have_intervals_and_exact_values(folder):
    figure = sweep_figures.consistency(folder, is_put, "american_put")
    objective, score = figure.axes
    assert objective.get_ylabel() == "objective"
    assert len(objective.collections) == 2  # a band for each learned agent
    heights = {one.get_ydata()[0]: one for one in objective.lines if one.get_linestyle() != "-"}
    assert set(heights) == {3.0, 4.0}  # no learned run has gauss_legendre
    agents = agents_in(folder)
    (learner,) = [
        one.label
        for one in agents
        if "time_inconsistent" in one.label and "multihorizon" in one.label
    ]
    assert heights[3.0].get_color() == agent_styles(agents)[learner]["color"]
    assert {one.get_ydata()[0] for one in score.lines if one.get_linestyle() == "--"} == {6.0}


def test_the_report_has_the_figure_the_table_and_the_sentence(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    text = write_report([folder], out).page.read_text()
    section = text.partition('<section id="optimum"')[2]
    assert section.count("<svg role") == len(COLUMNS)
    assert "loses 25.00 % of the optimum with the released quadrature (lower)" in section
    for name in ("figures/put_consistency.png", "figures/put_consistency.svg"):
        assert (out / name).stat().st_size > 0
    table = pd.read_csv(out / "tables/put_consistency.csv")
    assert sorted(table["gap_method"].dropna()) == [2.5, 25.0]
    assert r"gap of the method" in (out / "tables/put_consistency.tex").read_text()


def test_the_lander_has_a_figure_without_exact_values(tmp_path):
    for variant in ("time_consistent", "time_inconsistent"):
        config = config_of("windy_lunar_lander", variant, 0)
        config["env"] = {"_target_": "rigor.envs.lander.Lander"}
        make_run(tmp_path / "runs", "windy_lunar_lander", variant, 0, 90.0, config=config)
    solved = config_of("american_put", "time_consistent", 0) | {"env": PUT}
    result = {"objective_exact": 9.0, "objective_optimal": 10.0}
    make_run(
        tmp_path / "runs", "american_put", "time_consistent", 0, 9.0, config=solved, result=result
    )
    text = write_report([tmp_path / "runs"], tmp_path / "out").page.read_text()
    curves = text.partition('<section id="curves"')[2].partition("<section id=")[0]
    assert "Agents maximise the objective, not the score" in curves
    drawn = (tmp_path / "out/figures/lander_consistency.svg").read_text()
    assert "time_inconsistent" in drawn
    assert "exact" not in drawn
    table = pd.read_csv(tmp_path / "out/tables/objectives.csv")
    assert table["time_consistent"].tolist() == [10.0]


def test_seeds_without_a_common_step_have_no_curve(folder):
    paths = sorted(folder.glob("*multihorizon*time_consistent*"))
    for path, steps in zip(paths, (1, 2), strict=True):
        rows = {"steps": [steps], "eval_score": [1.0], "eval_objective": [1.0]}
        pd.DataFrame(rows).to_csv(path / "metrics.csv", index=False)
    objective = sweep_figures.consistency(folder, is_put, "american_put").axes[0]
    assert len(objective.collections) == 1


def test_missing_runs_are_named(put, tmp_path):
    put("time_inconsistent", "lower", 3.0, exact=True)
    with pytest.raises(
        UserError, match="no learning agent has been evaluated on env=american_put yet"
    ):
        sweep_figures.consistency(tmp_path, is_put, "american_put")
    with pytest.raises(UserError, match="no run with env=windy_lunar_lander, only with env=am"):
        sweep_figures.consistency(tmp_path, is_lander, "windy_lunar_lander")
    with pytest.raises(UserError, match="no run with env=atari/GAME, only with env=american_p"):
        sweep_figures.atari_curves(tmp_path)


def test_the_lander_is_recognised_by_its_name(tmp_path):
    config = config_of("x", "time_aware", 0)
    config["env"] = {"max_steps": 500, "_target_": "rigor.envs.lander.Lander"}
    make_run(tmp_path, "windy_lunar_lander", "time_aware", 0, 200.0, config=config)
    axes = sweep_figures.consistency(tmp_path, is_lander, "windy_lunar_lander").axes
    assert [one.get_ylabel() for one in axes] == ["objective", "score"]
    assert np.isfinite(axes[1].lines[0].get_ydata()).all()
    assert not [one for one in axes[0].lines if one.get_linestyle() in ("--", ":")]
