"""`rigor-eval` on real small runs: numbers, figures and videos."""

import csv
import json
import shutil
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from evaluations import check_figure, command

import rigor
from rigor.cli import eval as rigor_eval
from rigor.errors import UserError
from rigor.runs.directory import RunDirectory

PICTURES = ("calibration.png", "weights.png", "paths.png")


def evaluated(directory, *arguments, capsys):
    """Evaluate in this process; return the directory, eval.json and what was printed."""
    rigor_eval.run([str(directory), *arguments])
    shown = capsys.readouterr().out
    place = RunDirectory(shown.splitlines()[-1]).path.parent
    return place, json.loads((place / "eval.json").read_text()), shown


def rows_of(place):
    with (place / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


def frames_of(path):
    """Decode a video: [L, height, width, 3]."""
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(one, np.uint8) for one in reader]).reshape(-1, height, width, 3)


def test_help_is_quick():
    code = (
        "import sys; from rigor.cli.eval import run\n"
        "try: run(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'numpy', 'hydra', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    for flag in ("--episodes", "--video", "--seed", "--epsilon", "--sticky", "--noops", "--out"):
        assert flag in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "the following arguments are required: RUN"),
        (("nowhere",), "nowhere: no such directory"),
        (("x", "--episodes", "0"), "0: must be a whole number, 1 or more"),
        (("x", "--episodes", "ten"), "ten: must be a whole number"),
        (("x", "--epsilon", "2"), "2: must lie in [0, 1]"),
        (("x", "--sticky", "a"), "a: must lie in [0, 1]"),
        (("x", "--seed", "-1"), "--seed"),
        (("x", "--movie"), "--movie"),
    ],
)
def test_a_mistake_is_one_line(arguments, part):
    with pytest.raises(UserError) as refused:
        rigor_eval.run(arguments)
    assert part in str(refused.value)


def test_a_mistake_ends_with_code_2(tmp_path):
    done = command(tmp_path, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"rigor-eval: {tmp_path}: not a run's directory (no config.yaml); "
        "name the directory of one run"
    ]


def test_progress_shows_the_time_left(capsys, monkeypatch):
    now = [0.0]
    progress = rigor_eval.EvaluationProgress("x", clock=lambda: now[0])
    with progress:
        now[0] = 5.0
        progress(0, 100, 1000)
        now[0] = 20.0
        progress(0, 100, 4000)
        now[0] = 25.0
        progress(20, 100, 5000)
        now[0] = 40.0
        progress(25, 100, 8000)
    # a line every ten seconds; 40 s for a quarter of the episodes leave 120 s
    assert capsys.readouterr().err.splitlines() == [
        "0/100 episodes  4,000 steps  200 steps/s  eta -:--:--",
        "25/100 episodes  8,000 steps  200 steps/s  eta 0:02:00",
    ]


@pytest.mark.slow
def test_cartpole_with_a_video(trained, capsys):
    run = trained("cartpole")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    place, found, shown = evaluated(run, "--episodes", "7", "--video", capsys=capsys)
    assert place == run / "evaluation" / "step_300-episodes_7-seed_0"
    assert {path.name for path in place.iterdir()} == {
        *PICTURES[:2],
        "episode.mp4",
        "episodes.csv",
        "eval.json",
        ".lock",
    }
    for name in PICTURES[:2]:
        check_figure(place / name)
    rows = rows_of(place)
    assert len(rows) == 7
    score = [float(row["score"]) for row in rows]
    assert score == [float(row["length"]) for row in rows]
    assert found["estimates"]["score"]["value"] == pytest.approx(np.mean(score))
    low, high = (found["estimates"]["score"][end] for end in ("low", "high"))
    assert low <= np.mean(score) <= high
    assert high - low > 0
    # nothing cuts a game of CartPole, so the realised return is the return under the mixture
    for row in rows:
        assert float(row["realised_return"]) == pytest.approx(float(row["learner"]))
        assert 0 <= float(row["probability_below"]) <= 1
    calibration = found["calibration"]
    realised_returns = np.mean([float(row["realised_return"]) for row in rows])
    assert calibration["realised_mean"] == pytest.approx(realised_returns)
    assert calibration["wasserstein"] > 0
    assert any("comonotone" in note for note in found["notes"])
    assert found["steps"] == 300
    assert found["protocol"]["epsilon"] == 0.0
    assert found["protocol"]["sentence"] in shown
    frames = frames_of(place / "episode.mp4")
    assert frames.shape[1:] == (544, 960, 3)
    assert 5 < len(frames) < 500
    frame, beside = frames[:, 100:500, :420], frames[:, :, 440:]
    for part in (frame, beside):
        assert (np.abs(np.diff(part.astype(int), axis=0)) > 40).any(axis=(1, 2, 3)).mean() > 0.8
    assert (place / "episode.mp4").stat().st_size < 500_000
    # what the run had is as it was
    after = {path: path.stat().st_mtime_ns for path in before if path != run}
    assert after == {path: time for path, time in before.items() if path != run}


@pytest.mark.slow
def test_a_repeat_gives_the_same_and_another_protocol_another_place(trained, capsys):
    run = trained("cartpole")
    place, found, _ = evaluated(run, "--episodes", "3", capsys=capsys)
    episodes = (place / "episodes.csv").read_text()
    (place / "episode.mp4").write_text("of an earlier --video")
    again, same, _ = evaluated(run, "--episodes", "3", "--epsilon", "0", capsys=capsys)
    assert (again, same) == (place, found)
    assert (place / "episodes.csv").read_text() == episodes
    assert (place / "episode.mp4").read_text() == "of an earlier --video"
    other, _, _ = evaluated(run, "--episodes", "3", "--epsilon", "0.5", capsys=capsys)
    assert other.name == "step_300-episodes_3-seed_0-epsilon_0.5"
    assert (other / "episodes.csv").read_text() != episodes
    seeded, _, _ = evaluated(run, "--episodes", "3", "--seed", "1", capsys=capsys)
    assert (seeded / "episodes.csv").read_text() != episodes


@pytest.mark.slow
def test_a_running_run_keeps_its_lock_and_is_not_disturbed(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained("cartpole"), run, ignore=shutil.ignore_patterns("evaluation"))
    config = RunDirectory(run).config()
    digest = (run / "config.yaml").read_text().split()[3]
    with RunDirectory.open(run, config, digest) as running:
        running.write_status("running", step=300)
        status = (run / "status.json").read_bytes()
        _, found, _ = evaluated(run, "--episodes", "2", "--out", str(tmp_path), capsys=capsys)
        assert running.is_locked()
        assert (run / "status.json").read_bytes() == status
    assert "the run is still training; this is its newest checkpoint" in found["notes"]
    assert not (run / "evaluation").exists()
    assert (tmp_path / "run" / "step_300-episodes_2-seed_0").is_dir()


@pytest.mark.slow
def test_two_at_once_in_one_place_are_refused(trained, capsys):
    from rigor.runs.lock import Lock

    run = trained("cartpole")
    place, _, _ = evaluated(run, "--episodes", "2", capsys=capsys)
    lock = Lock(place)
    lock.acquire()
    with pytest.raises(UserError, match="another rigor-eval writes there"):
        rigor_eval.run([str(run), "--episodes", "2"])
    lock.release()


@pytest.mark.slow
def test_without_a_policy_it_says_so(trained, tmp_path):
    for name, line in (
        ("cartpole", "no checkpoint that can be read; a run writes its first one within a tenth"),
        ("gbwm", "policy.npz: not a readable policy"),
    ):
        run = tmp_path / name
        run.mkdir()
        shutil.copy(trained(name) / "config.yaml", run)
        with pytest.raises(UserError) as refused:
            rigor_eval.run([str(run)])
        assert line in str(refused.value)
        assert not (run / "evaluation").exists()


@pytest.mark.slow
def test_gbwm_shows_wealth_and_is_calibrated(trained, capsys):
    run = trained("gbwm")
    place, found, shown = evaluated(run, "--episodes", "200", "--video", capsys=capsys)
    assert place.name == "exact-episodes_200-seed_0"
    check_figure(place / "paths.png")
    assert "no video: env=gbwm has no frames; paths.png shows its episodes" in shown
    assert not (place / "episode.mp4").exists()
    # the exact distribution is the true one
    calibration = found["calibration"]
    assert calibration["wasserstein"] < calibration["wasserstein_95"]
    assert calibration["ks_p"] > 0.01
    objective = rigor.load(run).result["objective"]
    assert calibration["predicted_mean"] == pytest.approx(objective)
    ends = found["estimates"]["objective"]
    assert ends["low"] < objective < ends["high"]
    assert {int(row["length"]) for row in rows_of(place)} == {11}


@pytest.mark.slow
def test_the_put_shows_prices(trained, capsys):
    place, found, _ = evaluated(trained("american_put"), "--episodes", "100", capsys=capsys)
    check_figure(place / "paths.png")
    assert found["calibration"]["ks_p"] > 0.01
    assert max(int(row["length"]) for row in rows_of(place)) == 21


@pytest.mark.slow
def test_a_learned_policy_with_a_stock(trained, capsys):
    run = trained("learned_put")
    place, found, _ = evaluated(run, "--episodes", "20", capsys=capsys)
    check_figure(place / "paths.png")
    assert found["protocol"]["initial_stock"] == rigor.load(run).policy().initial_stock
    assert "no weights.png, because the agent has one horizon" in found["notes"]


@pytest.mark.slow
def test_an_agent_that_predicts_one_number_is_held_to_its_mean(trained, capsys):
    run = trained("utility")
    place, found, shown = evaluated(run, "--episodes", "20", capsys=capsys)
    assert found["calibration"].keys() == {"predicted_mean", "realised_mean"}
    assert "gain in utility at the start: predicted" in shown
    assert "Wasserstein" not in shown
    assert not (place / "calibration.png").exists()
    # f(S_T) − f(c0) of each episode: f = min(x, 0)/.1
    c0 = found["protocol"]["initial_stock"]
    for row in rows_of(place):
        total = c0 + float(row["discounted"])
        assert float(row["realised_return"]) == pytest.approx(10 * (min(total, 0) - min(c0, 0)))


@pytest.mark.slow
def test_tabular_has_numbers_and_no_frames(trained, capsys):
    place, found, shown = evaluated(
        trained("tabular"), "--episodes", "100", "--video", capsys=capsys
    )
    assert "no video: env=tabular has no frames" in shown
    assert found["calibration"]["ks_p"] > 0.01
    assert {path.name for path in place.iterdir() if path.suffix == ".png"} == {"calibration.png"}


@pytest.mark.slow
def test_an_exact_policy_without_end(trained, capsys):
    run = trained("endless")
    _, found, _ = evaluated(run, "--episodes", "50", capsys=capsys)
    objective = rigor.load(run).result["objective"]
    assert found["calibration"]["predicted_mean"] == pytest.approx(objective, rel=1e-6)
    ends = found["estimates"]["objective"]
    assert ends["low"] < objective < ends["high"]
    assert any("50 of 50 episodes were cut" in note for note in found["notes"])


@pytest.mark.slow
def test_flags_of_atari_are_refused_elsewhere(trained):
    with pytest.raises(
        UserError, match=r"--sticky 0.25: belongs to Atari .* env=tabular; leave it"
    ):
        rigor_eval.run([str(trained("tabular")), "--sticky", "0.25"])


@pytest.mark.slow
def test_a_game_that_always_repeats_is_refused(trained):
    with pytest.raises(UserError, match=r"env.sticky=1.0: a probability in \[0, 1\)"):
        rigor_eval.run([str(trained("breakout")), "--sticky", "1"])


@pytest.mark.slow
def test_breakout_with_a_video(trained, capsys):
    run = trained("breakout")
    flags = ("--episodes", "2", "--video", "--sticky", "0.25", "--noops", "0")
    place, found, shown = evaluated(run, *flags, capsys=capsys)
    assert place.name.endswith("-episodes_2-seed_0-sticky_0.25-noops_0")
    protocol = found["protocol"]
    assert (protocol["sticky"], protocol["noop_max"], protocol["epsilon"]) == (0.25, 0, 0.01)
    assert "sticky actions 0.25, no no-ops" in shown
    assert any("up to the first lost life" in note for note in found["notes"])
    frames = frames_of(place / "episode.mp4")
    # 400 emulator frames of a game are 100 agent steps
    assert frames.shape == (100, 544, 960, 3)
    screen = frames[:, 100:500, 50:360]
    assert np.ptp(screen[0].astype(int), axis=2).max() > 100  # in colour
    assert not (screen[0] == screen[-1]).all()
    check_figure(place / "weights.png")
