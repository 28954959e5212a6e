import pytest
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra

from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor import config
from rigor.errors import UserError

config.register()


class Context:
    """Stands for Hydra's: only the loader is read."""

    def __init__(self, config_loader) -> None:
        self.config_loader = config_loader


@pytest.fixture(scope="module")
def loader():
    with initialize_config_module("rigor.conf", version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture
def sweeper(loader):
    one = RigorSweeper({"variant": "time_consistent,time_aware", "seed": "0,1"})
    one.context = Context(loader)
    return one


def test_the_jobs_are_the_product_of_the_swept_values(sweeper):
    sweeper.params = {}
    assert sweeper._expand(["seed=0,1", "env=cartpole", "risk=mean,cvar"]) == [
        ["seed=0", "env=cartpole", "risk=mean"],
        ["seed=0", "env=cartpole", "risk=cvar"],
        ["seed=1", "env=cartpole", "risk=mean"],
        ["seed=1", "env=cartpole", "risk=cvar"],
    ]
    assert sweeper._expand(["seed=range(3)"]) == [["seed=0"], ["seed=1"], ["seed=2"]]


def test_the_command_line_replaces_what_an_experiment_sweeps_over(sweeper):
    assert len(sweeper._expand([])) == 4
    assert sweeper._expand(["seed=7"]) == [
        ["variant=time_consistent", "seed=7"],
        ["variant=time_aware", "seed=7"],
    ]


def test_rows_are_products_one_after_the_other(sweeper):
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


def test_a_choice_on_the_command_line_takes_a_row_s_values_of_it_along(sweeper):
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
    # glob looks at the group itself, not into env/atari
    with pytest.raises(UserError) as caught:
        sweeper._expand(["env=cartpole", override])
    assert str(caught.value) == f"{override}: expands to no value, so the sweep has no job"


def test_a_continuous_sweep_is_refused_by_name(sweeper):
    with pytest.raises(UserError, match=r"^seed=interval\(0,1\): name the values"):
        sweeper._expand(["seed=interval(0,1)"])
