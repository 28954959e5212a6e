import errno
import fcntl
import os
import warnings

import pytest

from rigor.errors import UserError
from rigor.runs.lock import Lock


@pytest.fixture(params=[errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def no_locks(request, monkeypatch):
    """A file system that is mounted without locks."""

    def refuse(descriptor, operation):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_lock_is_held_from_acquire_to_release(tmp_path):
    lock = Lock(tmp_path)
    assert Lock(tmp_path).is_held() is False
    lock.acquire()
    assert Lock(tmp_path).is_held() is True
    assert lock.holder() == (os.getpid(), os.uname().nodename)
    lock.release()
    lock.release()
    assert Lock(tmp_path).is_held() is False
    assert Lock(tmp_path / "nowhere").is_held() is False
    assert Lock(tmp_path / ".lock").is_held() is False  # the path of a file


def test_without_locks_the_state_is_unknown_and_acquire_succeeds(tmp_path, no_locks):
    with pytest.warns(UserWarning, match="this file system has no locks"):
        Lock(tmp_path).acquire()
    assert Lock(tmp_path).is_held() is None
    assert Lock(tmp_path / "nowhere").is_held() is False


def test_without_locks_a_sweep_warns_once(tmp_path, no_locks):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for name in "abc":
            (tmp_path / name).mkdir()
            Lock(tmp_path / name).acquire()
    assert len(said) == 1


def test_the_state_of_an_unreadable_lock_is_unknown(tmp_path, monkeypatch):
    Lock(tmp_path).acquire()

    def refuse(path, flags):
        raise PermissionError(errno.EACCES, "permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert Lock(tmp_path).is_held() is None


def test_a_new_lock_has_no_holder(tmp_path):
    with pytest.raises(UserError, match="names no process"):
        Lock(tmp_path).holder()
