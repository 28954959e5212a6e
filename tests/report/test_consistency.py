import numpy as np
import pandas as pd
import pytest
from synthetic import config_of, make_run

from rigor.errors import UserError
from rigor.report import sweep_pictures
from rigor.report.agents import agents_of
from rigor.report.consistency import COLUMNS, is_lander, is_put, split_lines
from rigor.report.page import write_report
from rigor.report.panels import styles
from rigor.report.runs import load
from rigor.report.solved import solved_sheets

PUT = {"steps": 20, "_target_": "rigor.envs.option.Put"}


def method(quadrature, bootstrap="shared"):
    multi = {"m": 10, "gamma_max": 0.999, "_target_": "rigor.maths.horizons.Multi"}
    return {
        "env": PUT,
        "horizons": multi | {"quadrature": quadrature},
        "agent": {"bootstrap": bootstrap, "_target_": "rigor.schemas.Learner"},
    }


@pytest.fixture
def put(tmp_path):
    """Write a run on the put whose optimum is 4; return where it lies."""

    def put(variant, quadrature, objective, seed=0, exact=False):
        config = config_of("american_put", variant, seed) | method(quadrature)
        result = {"objective": objective, "objective_exact": objective, "objective_optimal": 4.0}
        choices = {}
        if exact:
            config["agent"] = {"bootstrap": "shared", "_target_": "rigor.schemas.BackwardInduction"}
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


def split_of(folder):
    return next(one for one in solved_sheets(agents_in(folder)) if one.name == "put_consistency")


def test_a_loss_is_parted_into_the_methods_and_learnings(folder):
    sheet = split_of(folder)
    found = {(row["variant"], row["quadrature"]): row for row in sheet.rows}
    assert len(sheet.rows) == len(found) == 3
    both = found["time_inconsistent", "lower"]
    # optimum 4, exact 3, learned 2.5
    assert (both["learned"], both["exact"], both["optimal"], both["n"]) == (2.5, 3.0, 4.0, 2)
    assert (both["lost_method"], both["lost_learning"]) == (25.0, 12.5)
    assert (both["learned_low"], both["learned_high"]) == (2.0, 3.0)
    assert "exact" not in found["time_consistent", "lower"]  # nobody solved that one
    alone = found["time_inconsistent", "gauss_legendre"]
    assert (alone["lost_method"], "learned" in alone) == (2.5, False)
    (line,) = split_lines(sheet)
    assert "loses 25.00 % of the optimum under the released rule (lower) and 2.50 % under" in line


def test_an_exact_agent_of_another_discount_is_no_match(folder):
    for path in folder.glob("*backward*"):
        text = (path / "config.yaml").read_text()
        (path / "config.yaml").write_text(text.replace("k: 0.05", "k: 0.2"))
    both = [row for row in split_of(folder).rows if row.get("n")]
    assert len(both) == 2
    assert not any("exact" in row for row in both)


def test_curves_have_intervals_and_exact_values_beside(folder):
    figure = sweep_pictures.consistency(folder, is_put, "american_put")
    objective, score = figure.axes
    assert objective.get_ylabel() == "objective"
    assert len(objective.collections) == 2  # a band for each learned agent
    levels = {one.get_ydata()[0]: one for one in objective.lines if one.get_linestyle() != "-"}
    assert set(levels) == {3.0, 4.0}  # of gauss_legendre nobody has learned
    agents = agents_in(folder)
    (learner,) = [
        one.label
        for one in agents
        if "time_inconsistent" in one.label and "multihorizon" in one.label
    ]
    assert levels[3.0].get_color() == styles(agents)[learner]["color"]
    assert {one.get_ydata()[0] for one in score.lines if one.get_linestyle() == "--"} == {6.0}


def test_the_report_has_the_picture_the_table_and_the_sentence(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    text = write_report([folder], out).page.read_text()
    section = text.partition('<section id="optimum"')[2]
    assert section.count("<svg role") == len(COLUMNS)
    assert "loses 25.00 % of the optimum under the released rule (lower)" in section
    for name in ("figures/put_consistency.png", "figures/put_consistency.svg"):
        assert (out / name).stat().st_size > 0
    table = pd.read_csv(out / "tables/put_consistency.csv")
    assert sorted(table["lost_method"].dropna()) == [2.5, 25.0]
    assert r"lost by the method" in (out / "tables/put_consistency.tex").read_text()


def test_the_lander_has_its_picture_and_nothing_exact_in_it(tmp_path):
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
    assert "Agents maximise the objective, not the undiscounted score" in curves
    drawn = (tmp_path / "out/figures/lander_consistency.svg").read_text()
    assert "time_inconsistent" in drawn
    assert "exact" not in drawn
    table = pd.read_csv(tmp_path / "out/tables/objectives.csv")
    assert table["time_consistent"].tolist() == [10.0]


def test_seeds_without_a_common_step_are_no_curve(folder):
    paths = sorted(folder.glob("*multihorizon*time_consistent*"))
    for path, steps in zip(paths, (1, 2), strict=True):
        rows = {"steps": [steps], "eval_score": [1.0], "eval_objective": [1.0]}
        pd.DataFrame(rows).to_csv(path / "metrics.csv", index=False)
    objective = sweep_pictures.consistency(folder, is_put, "american_put").axes[0]
    assert len(objective.collections) == 1


def test_where_too_little_is_there_one_line_says_so(put, tmp_path):
    put("time_inconsistent", "lower", 3.0, exact=True)
    with pytest.raises(UserError, match="no learned run of american_put has been evaluated yet"):
        sweep_pictures.consistency(tmp_path, is_put, "american_put")
    with pytest.raises(UserError, match="no run of an environment windy_lunar_lander, only of am"):
        sweep_pictures.consistency(tmp_path, is_lander, "windy_lunar_lander")
    with pytest.raises(UserError, match="no run of an environment Atari game, only of american_p"):
        sweep_pictures.atari_curves(tmp_path)


def test_the_lander_is_known_by_its_name(tmp_path):
    config = config_of("x", "time_aware", 0)
    config["env"] = {"max_steps": 500, "_target_": "rigor.envs.lander.Lander"}
    make_run(tmp_path, "windy_lunar_lander", "time_aware", 0, 200.0, config=config)
    axes = sweep_pictures.consistency(tmp_path, is_lander, "windy_lunar_lander").axes
    assert [one.get_ylabel() for one in axes] == ["objective", "undiscounted score"]
    assert np.isfinite(axes[1].lines[0].get_ydata()).all()
    assert not [one for one in axes[0].lines if one.get_linestyle() in ("--", ":")]
