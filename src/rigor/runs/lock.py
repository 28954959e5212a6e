"""A lock on a directory; the kernel releases it when its process ends for any reason."""

import errno
import fcntl
import os
import socket
import time
import warnings
from pathlib import Path

from rigor.errors import UserError
from rigor.runs import disk
from rigor.runs.disk import disk_errors, write_all

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)
_PATIENCE = 0.5  # seconds; `is_held` in another process holds the lock for an instant


class Lock:
    """The lock of one directory: the file `.lock` in it, created by `acquire`."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / ".lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and write the process id and the host name into it.

        Raises:
          UserError: a live process (perhaps this one) holds it, or the directory is not writable.
        """
        directory = self.path.parent
        with disk_errors(directory):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._flock(descriptor)
            with disk_errors(directory):
                os.ftruncate(descriptor, 0)
                write_all(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_held(self) -> bool | None:
        """Return whether a live process (perhaps this one) holds the lock.

        None means unknown: the file system has no locks, or the lock file cannot be read.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> tuple[int, str]:
        """Return the process id and the host that took the lock last.

        Raises:
          UserError: the lock file names none.
        """
        try:
            _, pid, _, host = self.path.read_text().split()
            return int(pid), host
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path}: names no process") from error

    def _flock(self, descriptor: int) -> None:
        directory = self.path.parent
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{directory}: another process runs there ({_holder(descriptor)}); "
                        f"wait for it, end it, or {disk.way_out}"
                    ) from error
                time.sleep(0.05)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                # Some cluster file systems are mounted without locks; rigor must run there too.
                warnings.warn(
                    # without the directory, Python shows the warning once for a sweep
                    "this file system has no locks; "
                    "a second process could run in the same directory unnoticed",
                    stacklevel=2,
                )
                return None


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "just starting"
