"""The wheel works in an empty virtual environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "conf")


def call(*command, cwd, timeout=600):
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path):
    source = tmp_path / "source"  # because a build writes files into its source tree
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    for left in source.glob("src/*.egg-info"):
        shutil.rmtree(left)
    call(sys.executable, "-m", "build", "--wheel", source, "--outdir", tmp_path, cwd=tmp_path)
    (wheel,) = tmp_path.glob("rigor_rl-*.whl")

    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    quick = ("--quiet", "--disable-pip-version-check", "--no-compile")
    call(*pip, *quick, "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = python.with_name("rigor-train")
    text = call(command, "--help", cwd=elsewhere)
    assert "atari/<game> (57 games)" in text
    assert "cartpole" in text
    where = call(python, "-c", "import rigor; print(rigor.__file__)", cwd=elsewhere)
    assert where.startswith(str(tmp_path / "empty"))
    tiny = ("evaluate.every=0.5", "evaluate.episodes=2", "evaluate.final_episodes=2")
    out = call(command, "env=cartpole", "tracker=none", "train.steps=300", *tiny, cwd=elsewhere)
    assert " done " in out
    (run,) = (elsewhere / "runs").iterdir()
    assert '"state": "done"' in (run / "status.json").read_text()
    assert '"commit": null' in (run / "result.json").read_text()  # a wheel has none
    call(python.with_name("rigor-report"), run, cwd=elsewhere)
    assert "cartpole" in (run / "report" / "report.html").read_text()
