import pytest
from hydra import initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import SearchPathQuery
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

import hydra_plugins.rigor.sweeper  # noqa: F401  conf/train.yaml names it
from rigor.config import config
from rigor.errors import UserError
from rigor.launch import compose
from rigor.launch.compose import Composer
from rigor.runs.job import job

config.register()


@pytest.fixture(scope="module")
def loader():
    with initialize_config_module("rigor.conf", version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture
def composer(loader):
    return Composer(loader, loader.load_configuration("train", [], RunMode.MULTIRUN))


SWEEP = [
    [env, "agent=multihorizon", risk, seed, *more]
    for env, risk in (
        ("env=cartpole", "risk=mean"),
        ("env=cartpole", "risk=cvar"),
        ("env=atari/pong", "risk=mean"),
        ("env=gbwm", "risk=cvar"),
    )
    for seed in ("seed=0", "seed=1")
    for more in (
        [],
        ["train.steps=500", "discount=hyperbolic", "discount.k=1"],
        ["+env.kwargs.x=2"] if env == "env=gymnasium" else ["train.schedule_steps=${train.steps}"],
        ["network.hidden=[7]"] if env == "env=cartpole" else ["train.steps=7_000"],
        ["outer.low=null", "device='cpu'", "evaluate.every=1e-1"],
    )
]


def by_hydra(composer, overrides):
    composed = composer._by_hydra(overrides)
    return job(composed, composed.hydra.runtime.choices)


@pytest.fixture
def calls(composer, monkeypatch):
    """Return what is composed by Hydra from now on."""
    calls = []
    real = composer._loader.load_sweep_config

    def noted(master, overrides):
        calls.append(overrides)
        return real(master, overrides)

    monkeypatch.setattr(composer._loader, "load_sweep_config", noted)
    return calls


def test_jobs_are_what_hydra_composes(composer, calls):
    found = composer.jobs(SWEEP)
    assert len(SWEEP) / 4 < len(calls) < len(SWEEP) / 2
    assert found == [by_hydra(composer, overrides) for overrides in SWEEP]


def test_jobs_that_differ_only_in_the_seed_are_composed_once(composer, monkeypatch):
    composed = []
    real = compose.job
    monkeypatch.setattr(compose, "job", lambda *given: composed.append(given) or real(*given))
    sweep = [["env=cartpole", f"seed={seed}"] for seed in (3, 0, 7)]
    found = composer.jobs(sweep)
    assert len(composed) == 1
    assert found == [by_hydra(composer, overrides) for overrides in sweep]
    with pytest.raises(UserError, match=r"job 1 .*seed=-1: must be 0 or more"):
        composer.jobs([["env=cartpole", "seed=1"], ["env=cartpole", "seed=-1"]])
    with pytest.raises(UserError, match=rf"job 1 .*seed={2**63}: must be 0 or more, and below"):
        composer.jobs([["env=cartpole", "seed=1"], ["env=cartpole", f"seed={2**63}"]])


@pytest.mark.parametrize("more", ["train.schedule_steps=${seed}", "out=runs/${seed}"])
def test_values_that_depend_on_the_seed_follow_it(composer, more):
    sweep = [["env=cartpole", f"seed={seed}", more] for seed in (1, 2)]
    assert composer.jobs(sweep) == [by_hydra(composer, overrides) for overrides in sweep]


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=1", "++seed=2"],
        ["++seed=2", "seed=1"],
        ["seed=1", "seed=2"],
        ["train.steps=70", "train={steps:80}"],
        ["train={steps:80}", "train.steps=70"],
        ["risk=cvar", "risk.tau=0.2", "risk={tau:0.3}"],
        ["risk.tau=0.2", "risk={tau:0.3}", "risk=cvar"],
        ["network.hidden=[7]", "network.hidden=[8]"],
        ["env=gymnasium", "env.id=CartPole-v1", "+env.kwargs.x=1", "env.kwargs.x=2"],
        ["+env.kwargs={x:1}", "env.kwargs.x=2", "env=gymnasium", "env.id=CartPole-v1"],
    ],
)
def test_the_last_of_several_values_for_a_key_counts(composer, overrides):
    full = ["env=cartpole", *overrides]
    assert composer.jobs([full])[0].plain == by_hydra(composer, full).plain


def test_an_option_with_several_values_is_composed_once(composer, calls):
    composer.jobs([["env=cartpole", "risk=cvar", f"risk.tau={tau}"] for tau in (0.1, 0.2, 0.3)])
    assert len(calls) == 1


GAMES = ("atari/pong", "atari/breakout", "atari/freeway", "atari/alien", "minatar/freeway")


def test_games_are_composed_once(composer, calls):
    sweep = [
        [f"env={game}", f"learner={learner}", "train.steps=500"]
        for learner in ("replay", "parallel")
        for game in GAMES
    ]
    found = composer.jobs(sweep)
    assert len(calls) == 6  # the first two of Atari and the only one of MinAtar, for each learner
    assert found == [by_hydra(composer, overrides) for overrides in sweep]


def composer_with(directory, files, *overrides):
    """Return a composer that also finds some files of a user."""
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    path = create_config_search_path("pkg://rigor.conf")
    path.prepend("own", f"file://{directory}", SearchPathQuery(provider="schema"))
    loader = ConfigLoaderImpl(path)
    return Composer(loader, loader.load_configuration("train", [*overrides], RunMode.MULTIRUN))


def test_games_whose_name_another_file_sets_are_not_alike(tmp_path):
    fixed = "# @package _global_\ndefaults: [{override /env: atari/alien}]\nenv: {game: pong}\n"
    composer = composer_with(tmp_path, {"experiment/fixed.yaml": fixed}, "experiment=fixed")
    sweep = [["experiment=fixed", f"env={game}"] for game in GAMES[:4]]
    found = composer.jobs(sweep)
    assert found == [by_hydra(composer, overrides) for overrides in sweep]
    assert {job.plain["env"]["game"] for job in found} == {"pong"}


def test_options_whose_name_chooses_another_option_are_not_alike(tmp_path):
    risks = ("mean", "cvar", "entropic")
    files = {
        f"tail/{risk}.yaml": f"# @package _global_\nseed: {i}\n" for i, risk in enumerate(risks)
    }
    files["experiment/tail.yaml"] = (
        "# @package _global_\ndefaults: [/tail: mean, {override /risk: '${tail}'}]\n"
    )
    composer = composer_with(tmp_path, files, "experiment=tail")
    sweep = [["experiment=tail", f"tail={risk}"] for risk in risks]
    found = composer.jobs(sweep)
    assert found == [by_hydra(composer, overrides) for overrides in sweep]
    assert [job.names["risk"] for job in found] == [*risks]


def test_jobs_composed_in_parallel_are_in_order(composer, monkeypatch):
    monkeypatch.setattr(compose, "_PARALLEL_ABOVE", 0)
    monkeypatch.setattr(compose, "cores", lambda: 2)
    assert composer.jobs(SWEEP[:12]) == [by_hydra(composer, overrides) for overrides in SWEEP[:12]]
    wrong = [*SWEEP[:3], ["seed=-3"], *SWEEP[3:6], ["env=cartpole", "seed=-1"]]
    with pytest.raises(UserError, match=r"^job 3 \(seed=-3\): seed=-3: must be 0 or more"):
        composer.jobs(wrong)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("seed=-1", "seed=-1: must be 0 or more"),
        ("seed=x", "x is not a whole number"),
        ("risk=null", "risk=null: no such option"),
        ("risk=cvarr", "did you mean cvar"),
        ("env=gymnasium", "env.id: has no value yet"),
    ],
)
def test_a_job_that_cannot_work_is_named(composer, override, part):
    with pytest.raises(UserError) as caught:
        composer.jobs([["env=cartpole"], ["env=cartpole", "seed=1"], ["env=cartpole", override]])
    message = str(caught.value)
    assert message.startswith(f"job 2 (env=cartpole {override}): ")
    assert part in message
    assert "\n" not in message
