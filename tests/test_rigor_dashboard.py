import json
import subprocess
import sys

import pytest
from cli import environment
from fake_wandb import KEY, served
from synthetic import config_of, make_run, make_sweep

from rigor import dashboard
from rigor.errors import UserError

TRACKER = {"name": "wandb", "mode": "offline", "project": "rigor", "episodes": False}


def command(*arguments, url="http://127.0.0.1:9", key=""):
    return subprocess.run(
        [sys.executable, "-m", "rigor.dashboard", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(WANDB_BASE_URL=url, WANDB_API_KEY=key, NETRC="/nowhere"),
    )


@pytest.fixture
def sweep(tmp_path):
    runs = [
        make_run(
            tmp_path,
            "pong",
            variant,
            0,
            9.0,
            config=config_of("pong", variant, 0) | {"tracker": TRACKER},
        )
        for variant in ("time_consistent", "time_inconsistent")
    ]
    return make_sweep(tmp_path, runs)


def submitted(sweep):
    """Complete the manifest, of which a report needs less."""
    path = sweep / "manifest.json"
    found = json.loads(path.read_text()) | {"launcher": {"name": "basic"}, "submissions": []}
    path.write_text(json.dumps(found))
    return sweep


def test_it_is_printed_without_a_login(sweep):
    done = command(submitted(sweep))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("grid\nproject rigor, 2 runs, by choices.variant\n")
    assert "  curve  pong: score/pong\n" in done.stdout


def test_json_is_what_wandb_gets(sweep):
    done = command(submitted(sweep), "--json")
    found = json.loads(done.stdout)
    assert (found["displayName"], found["project"]) == ("grid", "rigor")
    assert len(found["spec"]["section"]["panelBankConfig"]["sections"]) == 6


@pytest.mark.slow
def test_saved_again_it_is_the_same_view(sweep):
    with served() as server:
        for _ in range(2):
            done = command(submitted(sweep), "--save", url=server.url, key=KEY)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(f"{server.url}/me/rigor?nw=")
        ((name, view),) = server.views.items()
        assert (view["entityName"], view["displayName"], view["id"]) == ("me", "grid", "view")
        assert json.loads((sweep / "dashboard.json").read_text())["name"] == name
        server.refuses = True
        done = command(submitted(sweep), "--save", url=server.url, key=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rigor-dashboard: W&B did not take it: ")
    assert done.stderr.count("\n") == 1


def test_saving_without_a_key_is_refused(sweep):
    done = command(submitted(sweep), "--save")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "rigor-dashboard: no W&B key: run `wandb login` or set WANDB_API_KEY; "
        "the dashboard is not saved\n"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "required: SWEEP_DIR"),
        (["nowhere"], "nowhere: not a sweep's directory"),
        (["nowhere", "--sav"], "unrecognized arguments: --sav"),
        (["nowhere", "--save", "--json"], "not allowed with argument"),
    ],
)
def test_mistakes(arguments, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=part):
        dashboard.run(arguments)


def test_help_is_quick():
    code = (
        "import sys; from rigor.dashboard import _parser; print(_parser().format_help()); "
        "assert not {'wandb', 'hydra', 'numpy', 'torch', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "SWEEP_DIR" in done.stdout
