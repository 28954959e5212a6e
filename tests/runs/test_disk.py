import errno
import os
import subprocess
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rigor.errors import UserError
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import append_text, as_yaml, atomic_write
from rigor.runs.identity import config_hash
from rigor.runs.metrics import MetricsFile
from rigor.runs.progress import Progress


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 64 kB with 4 kB left."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    with open(place / "ballast", "wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                return


def test_atomic_write_replaces_the_content_and_leaves_no_other_file(tmp_path):
    atomic_write(tmp_path / "a", "old")
    atomic_write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_atomic_write_keeps_the_old_content_when_it_fails(tmp_path, monkeypatch):
    atomic_write(tmp_path / "a", "old")

    def refuse(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UserError, match="a: no space left on device; free some"):
        atomic_write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left on device"),
        (errno.EDQUOT, "no space left on device"),
        (errno.EACCES, "not writable"),
        (errno.EROFS, "not writable"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_disk_error_is_one_line(tmp_path, monkeypatch, number, words):
    def refuse(source, target):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError) as caught:
        atomic_write(tmp_path / "a", "x")
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.startswith(f"{tmp_path}/a: ")


def test_every_writer_reports_a_full_disk(full_disk):
    config = {"seed": 0, "name": "x" * 100}
    run = RunDirectory.open(full_disk / "run", config, config_hash(config))
    run.write_status("running")
    metrics = MetricsFile(run.metrics_path, ["steps", "loss"]).open(0)
    before = run.status()
    fill(full_disk)
    words = "no space left on device"
    with pytest.raises(UserError, match=words):
        run.write_status("running", step=1)
    assert run.status() == before
    with pytest.raises(UserError, match=words):
        run.write_result({"objective": 1.0})
    with pytest.raises(UserError, match=words):
        run.write_traceback("x" * 10_000)
    # The last page of the file still has room for some rows and lines.
    with pytest.raises(UserError, match=words):
        [metrics.append({"steps": step, "loss": 0.1}) for step in range(1, 1000)]
    progress = Progress(10, "x", run.log_path)
    with pytest.raises(UserError, match=words):
        [progress.note("x" * 100) for _ in range(1000)]
    with pytest.raises(UserError, match=words):
        RunDirectory.open(full_disk / "other", config, config_hash(config))
    run.close()
    metrics.close()
    # With free space the same run resumes, and the incomplete line is gone.
    (full_disk / "ballast").unlink()
    with RunDirectory.open(full_disk / "run", config, config_hash(config)) as again:
        MetricsFile(again.metrics_path, ["steps", "loss"]).open(0).close()
        assert again.metrics_path.read_text() == "steps,loss\n"


def test_append_text_adds_one_newline(tmp_path):
    append_text(tmp_path / "log", "a")
    append_text(tmp_path / "log", "b\n")
    assert (tmp_path / "log").read_text() == "a\nb\n"


def test_yaml_is_as_omegaconf_writes_it():
    config = {
        "a": [1, 2.5, 1e-08, None, True],
        "b": {"c": "1e-3", "d": "yes", "e": "007", "f": "", "g": "é: #x", "h": "${a}"},
        "empty": {},
        "none": [],
        "long": "x" * 200,
        "lines": "one\ntwo",
        "nan": float("inf"),
    }
    config["same"] = config["a"]  # no anchor
    assert as_yaml(config) == OmegaConf.to_yaml(OmegaConf.create(config))
    assert OmegaConf.to_container(OmegaConf.create(as_yaml(config))) == config
