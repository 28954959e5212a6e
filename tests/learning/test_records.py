"""The files that a run leaves: a result, checkpoints of its own, and their origin."""

import json
import shutil

import pytest
from scripted import session
from test_resume import StopAt, at

from rigor.cli import eval as rigor_eval
from rigor.errors import UserError
from rigor.launch.execute import execute, run
from rigor.learning import checkpoint
from rigor.learning.replay_file import ReplayFile
from rigor.learning.schedule import position
from rigor.report.data.labels import curve_labels
from rigor.report.data.load import load
from rigor.report.evaluation.protocol import EvaluationRequest, load_policy
from rigor.report.evaluation.summary import reading_notes
from rigor.runs.directory import RunDirectory

QUICK = ["train.steps=80", "train.schedule_steps=80", "evaluate.final_episodes=2"]
RISKY = ["risk=cvar", "outer.low=-9", "outer.high=-1"]


def test_a_deleted_result_is_made_again_as_it_was(compose, capsys):
    job = compose(*QUICK, *RISKY)
    run(job, None)
    directory = RunDirectory(job.path)
    before, saved = directory.result(), checkpoint.checkpoints(directory.checkpoints)
    stamps = [path.stat().st_mtime_ns for path in saved]
    (job.path / "result.json").unlink()
    assert directory.state() == "lost"
    run(job, None)
    assert directory.result() == before  # its seconds too: they are of the training
    assert directory.state() == "done"
    assert [path.stat().st_mtime_ns for path in saved] == stamps
    run(job, None)
    assert "done, skipped" in capsys.readouterr().out


def test_a_done_run_without_its_replay_is_evaluated_but_not_extended(compose):
    job = compose(*QUICK)
    execute(job, None)
    before = RunDirectory(job.path).result()
    (job.path / "checkpoints" / "replay.bin").unlink()
    (job.path / "result.json").unlink()
    execute(job, None)
    assert RunDirectory(job.path).result() == before
    with pytest.raises(UserError, match=r"replay\.bin: missing; no checkpoint resumes without"):
        execute(compose(*QUICK, "train.steps=90"), None)
    assert RunDirectory(job.path).result() == before


def test_an_edited_config_of_a_done_run_is_refused(compose):
    job = compose(*QUICK)
    execute(job, None)
    text = (job.path / "config.yaml").read_text()
    (job.path / "config.yaml").write_text(text.replace("gamma: 0.99", "gamma: 0.5"))
    with pytest.raises(UserError, match=r"another config.*discount\.gamma: 0\.5 there, 0\.99 here"):
        run(job, None)
    from rigor.report.data.runs import load as load_record

    assert "config.yaml is another one than that of result.json" in load_record(job.path).problem


@pytest.mark.parametrize("other", ["agent.quantiles=7", "network.hidden=[8]", "risk=cvar"])
def test_a_checkpoint_of_another_run_is_one_line(compose, tmp_path, other):
    job, strange = compose(*QUICK), compose(*QUICK, other, f"out={tmp_path / 'other'}")
    for one in (job, strange):
        session(one, StopAt(at(40)))
    shutil.rmtree(job.path / "checkpoints")
    shutil.copytree(strange.path / "checkpoints", job.path / "checkpoints")
    if other == "risk=cvar":  # of the same shapes, but the agent's state has a key less
        saved = checkpoint.checkpoints(job.path / "checkpoints")[-1]
        state = json.loads((saved / "state.json").read_text())
        del state["agent"]["initial_stock"]
        (saved / "state.json").write_text(json.dumps(state))
        (saved / "digests.json").write_text(json.dumps(checkpoint._digests(saved)))
    with pytest.raises(UserError, match="not a checkpoint of this run's agent") as caught:
        session(job)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="not a checkpoint of this run's agent"):
        load(job.path).policy()
    assert checkpoint.checkpoints(job.path / "checkpoints")  # nothing was removed


def test_other_code_on_resuming_is_noted_and_every_commit_is_kept(compose, monkeypatch):
    job = compose(*QUICK)
    for commit, stop in (("1a2b", 30), ("1a2b", 40), ("3c4d", 50), ("5e6f", None)):
        source = {"commit": commit, "versions": {"torch": "2"}}
        monkeypatch.setattr("rigor.learning.training.source", lambda source=source: source)
        end = session(job, StopAt(at(stop)) if stop else lambda training, state: False)
    assert [one["commit"] for one in end.training.sources] == ["1a2b", "3c4d", "5e6f"]
    assert [one["step"] for one in end.training.sources] == [0, 40, 50]
    assert any("commit 3c4d before, 5e6f now" in note for note in end.notes)


def test_a_result_names_every_commit(compose):
    job = compose(*QUICK)
    execute(job, None)
    result = RunDirectory(job.path).result()
    (one,) = result["sources"]
    assert one == {"step": 0, "commit": result["commit"], "versions": result["versions"]}
    assert RunDirectory(job.path).status()["commit"] == result["commit"]


def test_a_schedule_that_restarts_begins_again_at_its_end():
    assert [position(step, 10, False) for step in (0, 9, 10, 25)] == [0, 9, 10, 25]
    assert [position(step, 10, True) for step in (0, 9, 10, 25)] == [0, 9, 0, 5]


def test_an_extended_run_says_that_its_learning_rate_stays_or_starts_it_again(compose):
    longer = [*QUICK, "train.steps=120"]
    execute(compose(*QUICK), None)
    rates = {}
    job = compose(*longer, "train.restart_schedule=true")
    assert job.path == compose(*QUICK).path
    whole = shutil.copytree(job.path, job.path.with_name("whole"))
    for restarts in ("true", "false"):
        shutil.rmtree(job.path)
        shutil.copytree(whole, job.path)
        end = session(compose(*longer, f"train.restart_schedule={restarts}"))
        rates[restarts] = end.training.agent.optimizer.param_groups[0]["lr"]
    first, last = job.config.train.learning_rate, job.config.train.learning_rate_end
    assert float(rates["false"]) == pytest.approx(last)
    # at step 119 the schedule of 80 steps is at its step 39
    assert last < float(rates["true"]) < first
    # past its schedule, a run keeps to the choice that it was trained with
    RunDirectory(job.path).write_status("preempted", step=120)
    with pytest.raises(UserError, match=r"restart_schedule=True, but this run has already gone"):
        run(compose(*QUICK, "train.steps=200", "train.restart_schedule=true"), None)
    assert RunDirectory(job.path).status()["state"] == "preempted"


def test_the_replay_file_of_an_older_run_is_read(compose, monkeypatch):
    """Older files have each column by itself, as one block of all rows."""
    job = compose(*QUICK)

    def older(self, *arguments, made=ReplayFile.__init__):
        made(self, *arguments)
        self.block = self.n_rows

    with monkeypatch.context() as patch:
        patch.setattr(ReplayFile, "__init__", older)
        first = session(job, StopAt(at(50)))
        (saved,) = checkpoint.checkpoints(job.path / "checkpoints")[-1:]
    state = json.loads((saved / "state.json").read_text())
    assert state.pop("replay_block") == first.training.memory._file.n_rows
    (saved / "state.json").write_text(json.dumps(state))
    (saved / "digests.json").write_text(json.dumps(checkpoint._digests(saved)))
    rows = first.training.memory.replay.columns["reward"].copy()
    end = session(job, StopAt(at(50)))
    assert (end.training.memory.replay.columns["reward"] == rows).all()
    assert end.training.memory.block == end.training.memory._file.n_rows


@pytest.mark.parametrize(
    "refused",
    [
        ["env.id=CartPol-v1"],
        ["network=nature_cnn", "network.hidden=16"],
        ["train.next_state_samples=4"],
    ],
)
def test_a_refused_run_leaves_nothing(compose, tmp_path, refused):
    job = compose(*QUICK, *refused, f"out={tmp_path / 'new' / 'out'}")
    with pytest.raises(UserError):
        execute(job, None)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new" / "out").mkdir(parents=True)  # of the user
    (tmp_path / "new" / "out" / "notes").touch()
    with pytest.raises(UserError):
        execute(job, None)
    assert [path.name for path in (tmp_path / "new" / "out").iterdir()] == ["notes"]


def test_a_refusal_keeps_what_was_trained(compose, monkeypatch):
    job = compose(*QUICK)
    session(job, StopAt(at(50)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="device=cuda"):
        execute(compose(*QUICK, "device=cuda"), None)
    assert RunDirectory(job.path).state() == "failed"
    assert checkpoint.checkpoints(job.path / "checkpoints")


def test_rigor_eval_repeats_the_final_evaluation_of_a_trained_run(compose, capsys):
    job = compose(*QUICK)
    session(job, StopAt(at(40)))
    with pytest.raises(UserError, match="has trained 40 of 80 steps; its rigor-train command"):
        rigor_eval.run([str(job.path), "--final"])
    execute(job, None)
    before = RunDirectory(job.path).result()
    (job.path / "result.json").unlink()
    with pytest.raises(UserError, match="--final: evaluates as the run itself does"):
        rigor_eval.run([str(job.path), "--final", "--episodes", "3"])
    moved = job.path.rename(job.path.with_name("best"))
    rigor_eval.run([str(moved), "--final"])
    assert capsys.readouterr().out.endswith(f"{moved / 'result.json'}\n")
    assert RunDirectory(moved).result() == before
    log = (moved / "train.log").read_text()
    assert "all 80 steps are trained; only the final evaluation follows" in log
    assert log.count("resumed at step") == 1
    assert curve_labels([moved])[0] == job.path.name.rpartition("-")[0].replace("-s0", " s0")


def test_an_edited_module_of_the_user_is_noted_in_an_evaluation(compose):
    job = compose(*QUICK)
    session(job, StopAt(at(40)))
    policy = load_policy(job.path, EvaluationRequest())
    assert not any("has changed" in note for note in reading_notes(policy, EvaluationRequest(), []))
    policy.run.config["code"] = {"mine": "1a2b"}
    (note,) = [n for n in reading_notes(policy, EvaluationRequest(), []) if "has changed" in n]
    assert note.startswith("the code of mine has changed since this run was made (digest 1a2b")
