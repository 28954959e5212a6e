import pytest
from command_line import DISCOUNTS
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor.config import config
from rigor.errors import UserError

config.register()


class FakeContext:
    """A replacement for Hydra's context with the loader only."""

    def __init__(self, config_loader) -> None:
        self.config_loader = config_loader


@pytest.fixture(scope="module")
def loader():
    with initialize_config_module("rigor.conf", version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture
def sweeper(loader):
    made = RigorSweeper({"variant": "time_consistent,time_aware", "seed": "0,1"})
    made.context = FakeContext(loader)
    return made


def test_the_jobs_are_the_product_of_the_swept_values(sweeper):
    sweeper.params = {}
    assert sweeper._expand(["seed=0,1", "env=cartpole", "risk=mean,cvar"]) == [
        ["seed=0", "env=cartpole", "risk=mean"],
        ["seed=0", "env=cartpole", "risk=cvar"],
        ["seed=1", "env=cartpole", "risk=mean"],
        ["seed=1", "env=cartpole", "risk=cvar"],
    ]
    assert sweeper._expand(["seed=range(3)"]) == [["seed=0"], ["seed=1"], ["seed=2"]]


def test_values_on_the_command_line_replace_those_of_an_experiment(sweeper):
    assert len(sweeper._expand([])) == 4
    assert sweeper._expand(["seed=7"]) == [
        ["variant=time_consistent", "seed=7"],
        ["variant=time_aware", "seed=7"],
    ]


def test_each_row_is_a_product_of_its_own(sweeper):
    sweeper.params = {"seed": "0,1"}
    sweeper.rows = [{"env": "cartpole"}, {"env": "gbwm", "risk": "mean,cvar"}]
    assert sweeper._expand([]) == [
        ["seed=0", "env=cartpole"],
        ["seed=1", "env=cartpole"],
        ["seed=0", "env=gbwm", "risk=mean"],
        ["seed=0", "env=gbwm", "risk=cvar"],
        ["seed=1", "env=gbwm", "risk=mean"],
        ["seed=1", "env=gbwm", "risk=cvar"],
    ]


def test_an_option_on_the_command_line_also_replaces_the_values_of_a_row(sweeper):
    sweeper.params = {}
    sweeper.rows = [{"risk": "cvar", "risk.tau": 0.2, "env.periods": 10}, {"risk": "mean"}]
    assert sweeper._expand(["risk=entropic", "risk.beta=-1"]) == [
        ["env.periods=10", "risk=entropic", "risk.beta=-1"],
        ["risk=entropic", "risk.beta=-1"],
    ]


def test_a_sweep_over_nothing_is_one_job(sweeper):
    sweeper.params = {}
    assert sweeper._expand([]) == [[]]


def test_options_can_be_swept_by_a_pattern(sweeper):
    sweeper.params = {}
    jobs = [["risk=mean"], ["risk=mean_cvar"], ["risk=mean_variance"]]
    assert sorted(sweeper._expand(["risk=glob(mean*)"])) == jobs


@pytest.mark.parametrize(
    "override", ["env=glob(atari/*)", "seed=range(0,0)", "seed=range(3,1)", "seed=glob(*)"]
)
def test_a_sweep_that_expands_to_nothing_is_refused(sweeper, override):
    # glob matches the options of the group itself, without those in env/atari
    with pytest.raises(UserError) as caught:
        sweeper._expand(["env=cartpole", override])
    assert str(caught.value) == f"{override}: expands to no value, so the sweep has no job"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("range(1,3,0)", "the step of a range must not be 0"),
        ("range(0.1,0.4,0.0)", "the step of a range must not be 0"),
        ("range(0,1e9)", "expands to 1,000,000,000 values, of at most 100,000"),
        ("range(1,0,-1e-9)", "expands to 1,000,000,000 values, of at most 100,000"),
    ],
)
def test_a_range_without_an_end_or_beyond_any_sweep_is_refused(sweeper, given, said):
    with pytest.raises(UserError) as caught:
        sweeper._expand([f"risk.tau={given}"])
    assert str(caught.value) == f"risk.tau={given}: {said}"


def test_a_continuous_sweep_is_refused_by_name(sweeper):
    with pytest.raises(UserError, match=r"^seed=interval\(0,1\): name the values"):
        sweeper._expand(["seed=interval(0,1)"])


def test_a_pattern_does_not_match_schemas(sweeper):
    sweeper.params = {}
    assert sorted(sweeper._expand(["discount=glob(*)"])) == [[f"discount={d}"] for d in DISCOUNTS]
    assert sorted(sweeper._expand(["risk=glob(*, exclude=mean*)"])) == [
        ["risk=cvar"],
        ["risk=entropic"],
    ]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("range(0.1,0.4,0.1)", ["0.1", "0.2", "0.3"]),
        ("range(1,0.7,-0.1)", ["1.0", "0.9", "0.8"]),
        ("range(1e-3,4e-3,1e-3)", ["0.001", "0.002", "0.003"]),
        ("range(1,4)", ["1", "2", "3"]),
    ],
)
def test_a_range_counts_in_decimals(sweeper, given, values):
    sweeper.params = {}
    assert sweeper._expand([f"risk.tau={given}"]) == [[f"risk.tau={value}"] for value in values]


def sweep_of(loader, *overrides):
    """A sweeper of a command line, as Hydra sets it up."""
    config = loader.load_configuration("train", list(overrides), RunMode.MULTIRUN)
    config.hydra.job.config_name = "train"
    own = config.hydra.sweeper
    made = RigorSweeper(own.params, own.rows, own.report)
    made.context, made.composed = FakeContext(loader), config
    return made


def test_several_experiments_are_the_union_of_their_sweeps(loader):
    own = "train.steps=10"
    parts = []
    for name in ("gbwm_neutral", "gbwm_cvar"):
        sweeper = sweep_of(loader, f"experiment={name}", own)
        parts += sweeper._expand([f"experiment={name}", own])
    assert len(parts) == 30
    typed = ["experiment=gbwm_neutral,gbwm_cvar", own]
    sweeper = sweep_of(loader, *typed, "hydra/launcher=local")
    assert not sweeper.report
    assert sweeper._expand(typed) == parts
    assert sweeper.report


def test_experiments_without_a_sweep_are_a_job_each(loader):
    typed = ["experiment=breakout_300k,risk_gate", "hydra/launcher=local"]
    jobs = sweep_of(loader, *typed)._expand(typed[:1])
    assert jobs[0] == ["experiment=breakout_300k"]
    assert {job[-1] for job in jobs[1:]} == {"experiment=risk_gate"}
    assert len(jobs) == 171


def test_an_experiment_that_needs_another_launcher_is_refused(loader):
    typed = ["experiment=breakout_variants,gbwm_cvar"]
    with pytest.raises(UserError, match=r"^experiment=gbwm_cvar: it runs with .*launcher=local"):
        sweep_of(loader, *typed)._expand(typed)


def test_the_first_seed_of_everything_comes_first(loader, monkeypatch):
    typed = ["experiment=minatar_variants", "env=minatar/asterix,minatar/freeway", "seed=3,1"]
    sweeper, started = sweep_of(loader, *typed), []
    sweeper.launcher, sweeper.report = None, False
    monkeypatch.setattr(sweeper, "_launch", lambda jobs, overrides: started.extend(jobs))
    sweeper.sweep(typed)
    assert len(started) == 2 * 2 * 7
    assert [job.plain["seed"] for job in started] == [3] * 14 + [1] * 14
    assert [job.names["env"] for job in started[:14]] == [job.names["env"] for job in started[14:]]
