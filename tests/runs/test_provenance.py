import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rigor.runs.provenance as provenance


def test_versions_come_without_imports():
    code = (
        "import sys, json; from rigor.runs.provenance import versions; found = versions(); "
        "assert not {'torch', 'wandb', 'gymnasium', 'numpy'} & set(sys.modules); "
        "print(found['torch'], found['python'], bool(found['platform']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.match(r"\d+\.\d+\S* 3\.\d+\.\d+ True\n", done.stdout)


def test_a_missing_package_is_none(monkeypatch):
    monkeypatch.setitem(provenance.PACKAGES, "torch", "no-such-distribution-of-ours")
    assert provenance.versions()["torch"] is None


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def test_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")  # as in a hook of another repository
    copy = tmp_path / "provenance.py"
    shutil.copy(provenance.__file__, copy)
    monkeypatch.setattr(provenance, "__file__", str(copy))
    assert provenance.commit() is None  # no repository
    monkeypatch.delenv("GIT_DIR")
    git(tmp_path, "init")
    (tmp_path / "other").write_text("x")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-m", "x")
    assert provenance.commit() is None  # a repository that does not track the file
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "y")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert re.fullmatch("[0-9a-f]{40}", provenance.commit())
    (tmp_path / "untracked").write_text("x")
    assert not provenance.commit().endswith("+dirty")
    (tmp_path / "other").write_text("y")
    first = provenance.commit()
    assert re.fullmatch(r"[0-9a-f]{40}\+dirty\.[0-9a-f]{8}", first)
    (tmp_path / "other").write_text("z")
    assert provenance.commit()[:46] == first[:46]
    assert provenance.commit() != first


def test_commit_without_git(monkeypatch):
    monkeypatch.setitem(os.environ, "PATH", "")
    assert provenance.commit() is None


def test_changes_name_what_differs():
    here = provenance.source()
    assert provenance.changes(here, here) == ""
    there = {"commit": "1a2b", "versions": here["versions"] | {"torch": "1.0", "platform": "x"}}
    assert provenance.changes(there, here) == (
        f"commit 1a2b before, {here['commit']} now; "
        f"torch 1.0 before, {here['versions']['torch']} now"
    )
