"""Every documented command is accepted: it composes, or its arguments parse.

`rigor-train` composes each job of each command with Hydra, sweeps included, and trains nothing. The
other commands parse their arguments; a path with a placeholder, such as `runs/sweeps/NAME` or
`runs/cartpole-...`, is replaced by an empty directory of that name.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import OmegaConf

from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor.cli import dashboard, figure, report, sweep, sync, train
from rigor.cli import eval as rigor_eval
from rigor.config import config, hints
from rigor.config.help import help_text
from rigor.errors import UserError
from rigor.launch.compose import Composer
from rigor.launch.sweep import refuse_duplicates
from rigor.runs.job import Job, job

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"(?:rigor-(?:train|sweep|report|eval|figure|sync|dashboard)|make)(?: |$)")
IN_TEXT = re.compile(r"`(rigor-train\s[^`]+)`")
OWN = {  # the files that a page defines, in its order, and its Python module
    "own_discount.md": ("my_choices.py", ["discount/delayed", "risk/soft_loss"]),
    "exact.md": ("my_problems.py", ["env/house"]),
    "wrap_environment.md": ("my_wrappers.py", []),
    "own_environment.md": ("my_envs.py", ["env/corridor"]),
}


def commands_of(page: str) -> list[str]:
    """Return the commands in the code blocks of a page, and each `rigor-train ...` in its text."""
    found, in_fence = [], False
    for line in re.sub(r"\\\n\s*", "", page).splitlines():
        if line.startswith("```"):
            in_fence = not in_fence
        elif in_fence or line.startswith("    "):
            typed = line.strip().removeprefix("$ ")
            found += [typed] if COMMAND.match(typed) else []
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return found + [" ".join(span.split()) for span in IN_TEXT.findall(prose)]


def first_comment(text: str) -> str:
    """Return the command in the first comment of a config file."""
    return next(line for line in text.splitlines() if line.startswith("# rigor-"))[2:]


def documented() -> list[str]:
    """Return every documented command once, without its comment."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "launch" / "README.md"]
    files = [*(ROOT / "conf" / "experiment").glob("*.yaml"), *(ROOT / "launch").rglob("*.yaml")]
    found = [command for page in pages for command in commands_of(page.read_text())]
    found += [first_comment(path.read_text()) for path in files]
    return sorted({shlex.join(shlex.split(command, comments=True)) for command in found})


DOCUMENTED = documented()


def starting_with(name: str) -> list[str]:
    return [command for command in DOCUMENTED if shlex.split(command)[0] == name]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a directory with the files that the pages tell a reader to write."""
    path = tmp_path_factory.mktemp("documented")
    (path / "launch").symlink_to(ROOT / "launch")
    for name, (module, options) in OWN.items():
        text = (ROOT / "docs" / name).read_text()
        python, *scripts = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (path / module).write_text(python)
        for script in scripts:
            subprocess.run([sys.executable, "-c", script], cwd=path, check=True)
        files = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for option, content in zip(options, files, strict=True):
            file = path / "mine" / f"{option}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    return path


@pytest.fixture(autouse=True)
def in_place(place, monkeypatch):
    """Work in that directory, whose modules can be imported."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))


COMPOSED: dict[str, list[Job]] = {}
"""The jobs of composed sweeps; 450 of them take seconds."""


def jobs_of(arguments: list[str]) -> list[Job]:
    """Return the jobs of a `rigor-train` command, composed as the command does."""
    config.register()
    overrides, flags = train.split(arguments)
    parsed = hints.flags(flags)
    if any(override.startswith("hydra/sweeper=") for override in overrides):
        overrides, parsed = one_trial(overrides), hints.flags([])
    if parsed.help:
        assert help_text(overrides, parsed.config_dir)
    path = create_config_search_path("pkg://rigor.conf")
    if parsed.config_dir:
        own = f"file://{Path(parsed.config_dir).absolute()}"
        path.prepend("command-line", own, SearchPathQuery(provider="schema"))
    loader = ConfigLoaderImpl(path)
    master = loader.load_configuration("train", overrides, RunMode.MULTIRUN)
    if not (parsed.multirun or master.hydra.mode == RunMode.MULTIRUN):
        composed = loader.load_configuration("train", overrides, RunMode.RUN)
        assert composed.hydra.runtime.choices["hydra/launcher"] == "basic"  # others need -m
        return [job(composed, composed.hydra.runtime.choices)]
    if master.hydra.runtime.choices["hydra/launcher"] != "basic":
        instantiate(master.hydra.launcher)  # refuses unknown options
    sweeper = instantiate(master.hydra.sweeper)
    assert isinstance(sweeper, RigorSweeper)
    sweeper.context = SimpleNamespace(config_loader=loader)
    expanded = sweeper._expand(list(OmegaConf.to_container(master.hydra.overrides.task)))
    key = str(expanded)
    if key in COMPOSED:  # by a command with another launcher
        return COMPOSED[key]
    jobs = COMPOSED[key] = Composer(loader, master).jobs(expanded)
    if len(sweeper.rows) == 1:  # rows may be equal; the sweeper removes copies
        refuse_duplicates(jobs, expanded)
    return jobs


def one_trial(overrides: list[str]) -> list[str]:
    """Return one run of the search of a sweeper that may not be installed, such as Optuna's."""
    own = [text for text in overrides if not text.startswith(("hydra/sweeper=", "hydra.sweeper."))]
    return [re.sub(r"=(?:interval|choice)\(([^,]+),.*\)$", r"=\1", text) for text in own]


def test_the_pages_have_commands_of_every_kind():
    names = {shlex.split(command)[0] for command in DOCUMENTED}
    kinds = ("train", "sweep", "report", "eval", "figure", "sync", "dashboard")
    assert names == {"make", *(f"rigor-{kind}" for kind in kinds)}
    assert len(starting_with("rigor-train")) > 40


def test_commands_are_found_in_fences_indented_blocks_and_text():
    page = (
        "Type `rigor-train\nseed=1`, not `rigor-train`.\nmake no mistake\n\n"
        "```bash\n$ rigor-train a=1 \\\n  b=2  # both\nls\n```\n\n    make test\n"
    )
    assert commands_of(page) == ["rigor-train a=1 b=2  # both", "make test", "rigor-train seed=1"]


@pytest.mark.slow
@pytest.mark.parametrize("command", starting_with("rigor-train"))
def test_rigor_train_composes_every_job(command):
    assert jobs_of(shlex.split(command)[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ("rigor-train env=cartpoel", "cartpole"),
        ("rigor-train env=cartpole -m seed=0,-1", "seed=-1"),
        ("rigor-train env=cartpole risk=cvar variant=time_aware", "variant="),
    ],
)
def test_a_wrong_command_would_be_noticed(wrong, part):
    with pytest.raises(Exception, match=part):
        jobs_of(shlex.split(wrong)[1:])


@pytest.mark.parametrize(
    ("name", "module"),
    [("rigor-report", report), ("rigor-eval", rigor_eval), ("rigor-dashboard", dashboard)],
)
def test_arguments_parse(name, module):
    for command in starting_with(name):
        module._parser().parse_args(shlex.split(command)[1:])


def test_rigor_figure_accepts_its_arguments():
    for command in starting_with("rigor-figure"):
        arguments = shlex.split(command)[1:]
        for path in (word for word in arguments[1:] if "=" not in word):
            Path(path).mkdir(parents=True, exist_ok=True)
        assert figure.parse(arguments)


@pytest.mark.parametrize(
    ("name", "module", "reason"),
    [
        ("rigor-sweep", sweep, "not a sweep's directory"),
        ("rigor-sync", sync, "holds no runs"),
    ],
)
def test_only_the_placeholder_is_refused(name, module, reason):
    for command in starting_with(name):
        arguments = shlex.split(command)[1:]
        Path(arguments[-1]).mkdir(parents=True, exist_ok=True)
        with pytest.raises(UserError, match=reason):
            module.run(arguments)


def test_make_has_the_targets_and_variables():
    makefile = (ROOT / "Makefile").read_text()
    for command in starting_with("make"):
        for word in shlex.split(command)[1:]:
            variable, is_variable, _ = word.partition("=")
            pattern = rf"\$\({variable}\)" if is_variable else rf"^{re.escape(word)}:"
            assert re.search(pattern, makefile, re.MULTILINE), command
