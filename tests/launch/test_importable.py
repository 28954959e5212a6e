import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import environment, finish, subprocess

from rigor.errors import UserError
from rigor.launch.importable import refuse_unimportable


@dataclass
class FakeJob:
    """A job's config, of which only the classes count."""

    plain: dict[str, Any] = field(default_factory=dict)


def job(discount="rigor.maths.discount.Hyperbolic", id="CartPole-v1"):
    env = {"_target_": "rigor.envs.gymnasium.Gymnasium", "id": id}
    return FakeJob({"env": env, "discount": {"_target_": discount, "k": 0.1}, "seed": 0})


def test_what_a_worker_finds_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise RuntimeError  # is not imported")
    refuse_unimportable([job()])
    refuse_unimportable([job("mine.Delayed"), job("numpy.ndarray", "mine:Corridor-v0")])


@pytest.mark.parametrize("module", ["elsewhere", "__main__", "elsewhere.deep"])
def test_a_class_that_only_this_process_has_is_refused(tmp_path, monkeypatch, module):
    monkeypatch.chdir(tmp_path)
    beside = tmp_path / "scripts"
    beside.mkdir()
    (beside / "elsewhere.py").write_text("")
    monkeypatch.syspath_prepend(beside)
    with pytest.raises(UserError) as caught:
        refuse_unimportable([job(), job(f"{module}.Delayed")])
    top = module.partition(".")[0]
    assert str(caught.value) == (
        f"discount={module}.Delayed: a worker process cannot import the module {top}; move it to "
        f"{tmp_path}, install it, or add its directory to PYTHONPATH"
    )
    monkeypatch.setenv("PYTHONPATH", str(beside))
    if module == "elsewhere":
        refuse_unimportable([job("elsewhere.Delayed")])


@pytest.mark.parametrize("wrapper", ["elsewhere.Crop", {"wrapper": "elsewhere.Crop", "top": 2}])
def test_a_wrapper_that_only_this_process_has_is_refused(wrapper):
    cropped = job()
    cropped.plain["env"]["wrappers"] = ["gymnasium.wrappers.FlattenObservation", wrapper]
    with pytest.raises(UserError, match=r"^env\.wrappers=elsewhere\.Crop: a worker process cannot"):
        refuse_unimportable([cropped])


def test_an_environment_that_only_this_process_has_registered_is_refused(monkeypatch):
    import gymnasium

    monkeypatch.setitem(gymnasium.registry, "Mine-v0", gymnasium.spec("CartPole-v1"))
    refuse_unimportable([job()])
    with pytest.raises(UserError, match=r"^env\.id=Mine-v0: a worker process does not know it"):
        refuse_unimportable([job(), job(id="Mine-v0")])
    with pytest.raises(UserError, match=r"^env\.id=nowhere:Mine-v0: .* the module nowhere; "):
        refuse_unimportable([job(id="nowhere:Mine-v0")])


SCRIPT = """
import sys
from dataclasses import dataclass
from rigor.cli import train
from rigor.maths.discount import Exponential

class Own(Exponential):
    pass

if __name__ == "__main__":
    sys.argv[1:] = [
        "--config-dir", "mine", "env=tabular", "agent=backward_induction", "tracker=none",
        "discount=own", "out=out", "-m", "seed=0", *sys.argv[1:],
    ]
    train.main()
"""


@pytest.mark.slow
def test_a_script_with_a_class_of_its_own_is_refused_before_anything_is_queued(tmp_path: Path):
    (tmp_path / "mine" / "discount").mkdir(parents=True)
    (tmp_path / "mine" / "discount" / "own.yaml").write_text("_target_: __main__.Own\ngamma: 0.9\n")
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*more):
        return finish(
            subprocess.Popen(
                [sys.executable, "script.py", *more],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    done = run("hydra/launcher=local")
    assert done.code == 2, done
    assert "discount=__main__.Own: a worker process cannot import" in done.err
    assert not (tmp_path / "out").exists()
    done = run()  # one run after the other, in the process of the script
    assert done.code == 0, done
