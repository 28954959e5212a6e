import pytest
from hydra import compose, initialize_config_module
from hydra.errors import HydraException, OverrideParseException

import hydra_plugins.rigor.launchers
import hydra_plugins.rigor.sweeper  # noqa: F401  registers the sweeper that conf/train.yaml names
from rigor.config import config, hints
from rigor.config.help import help_text
from rigor.envs.atari import GAMES
from rigor.errors import UserError

config.register()


def line_of(*overrides: str, name: str = "train") -> str:
    """Return the line for overrides that Hydra refuses to compose."""
    with (
        initialize_config_module("rigor.conf", version_base="1.3"),
        pytest.raises(HydraException) as caught,
    ):
        compose(name, list(overrides))
    line = hints.line(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("env=atari/breakot", ["env=atari/breakot: no such option", "did you mean atari/breakout"]),
        (
            "env=breakout",
            ["env=breakout: no such option; did you mean atari/breakout or minatar/breakout?"],
        ),
        ("learner=parallel train.target_every=3", ["train.target_every: a key of learner=replay"]),
        ("train.trace_decay=.5", ["train.trace_decay: a key of learner=parallel"]),
        (
            "experiment=breakout_300k learner=parallel",
            ["experiment=breakout_300k with learner=parallel: it sets train.", "learner=replay"],
        ),
        ("risk=cvarr", ["risk=cvarr: no such option; did you mean cvar?"]),
        ("hydra/launcher=foo", ["hydra/launcher=foo: no such option; choose one of basic"]),
        ("trian.steps=3", ["trian.steps: no such key; did you mean train.steps?"]),
        ("seed=abc", ["seed=abc: abc is not a whole number"]),
        ("train.steps=1.5", ["train.steps=1.5: 1.5 is not a whole number"]),
        ("risk.tau=.1", ["risk.tau needs risk=cvar or risk=mean_cvar; now risk=mean"]),
        ("seed=0,1", ["seed=0,1: several values; add -m to sweep over them; where a key takes"]),
        ("foo", ["foo: not of the form key=value (missing EQUAL"]),
        ("out=~/here", ["out=~/here: not of the form key=value; odd characters need quotes"]),
        ("network.hidden=64", ["network.hidden=64: takes a list; write network.hidden=[64]"]),
        (
            "network.hidden='[64,32]'",
            ["network.hidden='[64,32]': takes a list; write network.hidden=[64,32]"],
        ),
        (
            "env.wrappers=mine.Wrapper",
            ["env.wrappers=mine.Wrapper: takes a list; write env.wrappers=[mine.Wrapper]"],
        ),
        ("env.kwargs={goal:3}", ["env.kwargs: not all of these", "+env.kwargs.NAME=VALUE"]),
        (
            "env=gbwm env.kwargs={goal:3}",
            ["env.kwargs needs env=cartpole or env=gymnasium; now env=gbwm"],
        ),
    ],
)
def test_a_line_names_the_key_the_value_and_the_way_out(override, parts):
    line = line_of(*override.split())
    for part in parts:
        assert part in line, line


def test_a_missing_root_config_is_refused():
    assert line_of(name="trane").startswith("--config-name=trane: no such option; ")


@pytest.mark.parametrize(
    ("key", "hint"),
    [("dely", "did you mean discount.delay?"), ("size", "it has delay, gamma")],
)
def test_keys_of_a_users_own_class_are_suggested(tmp_path, key, hint):
    (tmp_path / "discount").mkdir()
    own = "_target_: my_choices.Delayed\ndelay: 10\ngamma: 0.98\n"
    (tmp_path / "discount" / "delayed.yaml").write_text(own)
    line = line_of(
        f"hydra.searchpath=['file://{tmp_path}']", "discount=delayed", f"discount.{key}=3"
    )
    assert line == f"discount.{key}: no such key of my_choices.Delayed; {hint}"


@pytest.mark.parametrize(
    "override", ["risk=null", "risk=3", "env=true", "experiment=null", "=3", "="]
)
def test_values_of_groups_are_refused(override):
    with pytest.raises(UserError, match=f"^{override}: no such option; ") as caught:
        hints.refuse_values_of_groups(["seed=1", override])
    assert "\n" not in str(caught.value)


def test_a_list_of_options_is_refused():
    said = r"^tracker=\[wandb,tensorboard\]: takes one option, and no list; choose one of none, "
    with pytest.raises(UserError, match=said) as caught:
        hints.refuse_values_of_groups(["tracker=[wandb,tensorboard]"])
    assert "wandb_tensorboard" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("env=./cartpole", "env=cartpole"),
        ("env=/cartpole", "env=cartpole"),
        ("env=atari//pong", "env=atari/pong"),
        ("agent=multihorizon.yaml", "agent=multihorizon"),
        ("discount=Exponential", "discount=exponential"),
        ("risk=CVaR", "risk=cvar"),
    ],
)
def test_another_spelling_of_an_option_would_be_a_second_name_of_a_run(override, meant):
    with pytest.raises(UserError) as caught:
        hints.refuse_values_of_groups([override])
    assert str(caught.value) == f"{override}: no such option; did you mean {meant}?"


@pytest.mark.parametrize(
    "override",
    [
        "risk=cvar",
        "env=atari/pong",
        "env=gbwm",
        "agent=",
        "risk=mean,cvar",
        "~risk",
        "seed=3",
        "+foo=3",
        "env.kwargs={a: 1}",
    ],
)
def test_options_and_values_of_keys_pass(override):
    hints.refuse_values_of_groups([override])


def test_an_override_that_cannot_be_parsed_is_left_to_hydra():
    with pytest.raises(OverrideParseException):
        hints.refuse_values_of_groups(["foo"])


def test_flags_are_read():
    asked = hints.flags(["--config-dir", "mine", "--help"])
    assert (asked.help, asked.config_dir, asked.multirun) == (True, "mine", False)
    assert hints.flags(["-m"]).multirun


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (["--seed"], "--seed"),
        (["-x"], "-x"),
        (["--cfg"], "expected one argument"),
        (["--cfg", "everything"], "everything"),
        (["-m", "--cfg", "job"], "--multirun and --cfg do not go together"),
        (["--resolve"], "--resolve: resolves what --cfg shows; add --cfg job"),
        (["--experimental-rerun", "no.pickle"], "--experimental-rerun=no.pickle: no such file"),
    ],
)
def test_a_wrong_flag_gives_one_line_without_usage(given, part, capsys):
    with pytest.raises(UserError) as caught:
        hints.flags(given)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_the_help_lists_every_group_and_shows_the_values_of_a_choice():
    text = help_text(["env=atari/pong", "seed=0,1,2"])
    for group in ("env", "discount", "horizons", "risk", "variant", "agent", "network", "tracker"):
        assert f"\n  {group}: " in text
    assert "cartpole, gbwm, gymnasium, tabular" in text
    assert f"atari/<game> ({len(GAMES)} games)" in text
    assert "\n    game: pong                      # name of the ROM" in text
    assert "rigor-train env=atari/breakout agent=multihorizon -m seed=0,1,2" in text
    assert "_target_" not in text


def test_the_help_says_what_each_key_means(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_text(["risk=cvar", "learner=parallel", "env=gymnasium"])
    values = text[text.index("Values (") : text.index("\nExamples")]
    assert max(map(len, values.splitlines())) <= 80
    for line in (
        "  risk:                             # The mean of the worst fraction `tau`, in",
        "    bootstrap: shared               # `shared` bootstraps every horizon from the",
        "                                    # from its own greedy action (Fedus et al.",
        "    batch_size: 128                 # transitions of an update",
        "  seed: 0                           # of all randomness in the run",
    ):
        assert f"\n{line}" in values, line
    assert "    num_envs: 32                    # copies stepped together" in values
    assert "    steps: ${nowhere}" in help_text(["train.steps=${nowhere}"])


def test_the_help_knows_the_users_own_configs(tmp_path):
    (tmp_path / "discount").mkdir()
    (tmp_path / "discount" / "mine.yaml").write_text("half_life: 7\n")
    text = help_text(["discount=mine"], str(tmp_path))
    assert "\n    half_life: 7\n" in text
    discounts, _ = [line for line in text.splitlines() if line.startswith("  discount:")]
    assert discounts.endswith(", tail_integral, mine")
    with pytest.raises(UserError, match="--config-dir=nowhere: no such directory"):
        help_text([], "nowhere")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("zzz", "zzz: no such key; see rigor-train --help"),
        ("horizons.gama_max", "horizons.gama_max: no such key; did you mean horizons.gamma_max?"),
        # the key of another option: its options are named, instead of a near key
        (
            "discount.b",
            "discount.b needs discount=cir or discount=generalized_hyperbolic",
        ),
        ("env.kwargs.fail", "env.kwargs.fail: not set yet; add it with +env.kwargs.fail=VALUE"),
        ("hydra.launcher.n_jobs", "hydra.launcher.n_jobs needs hydra/launcher=local"),
        (
            "hydra.launcher.partitoin",
            "hydra.launcher.partitoin: no such key; did you mean hydra.launcher.partition?",
        ),
    ],
)
def test_an_unknown_key_gives_the_nearest_key_or_its_options(key, line):
    assert hints.no_such_key(key) == line


def test_an_option_without_near_names_gives_a_list():
    line = hints._missing("risk/xyz", ())
    assert line.endswith("choose one of cvar, entropic, mean, mean_cvar, mean_variance")
    assert hints._missing("hydra/launcher/foo", ()).endswith("there are none")
