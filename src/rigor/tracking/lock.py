"""A lock on a directory, which the kernel frees when its process dies, however it dies."""

import errno
import fcntl
import os
import socket
import time
import warnings
from pathlib import Path

from rigor.errors import UserError
from rigor.tracking.disk import disk_errors, write_all

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)
_PATIENCE = 0.5  # seconds; a reader that asks `is_held` holds the lock for an instant


class Lock:
    """The lock of one directory, the file `.lock` in it; nothing is touched before `acquire`."""

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory) / ".lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and write into it who holds it.

        Raises:
          UserError: a live process (this one too) holds it, or the place is not writable.
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
        """Let go of the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_held(self) -> bool | None:
        """Tell whether a live process (this one too) holds the lock.

        None where nobody can know: the file system has no locks, or refuses to say.
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
        """Return the process and the machine that last took the lock.

        Raises:
          UserError: nobody has.
        """
        try:
            _, pid, _, host = self.path.read_text().split()
            return int(pid), host
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path}: says nobody's name") from error

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
                        "wait for it, end it, or choose another place with out=DIR"
                    ) from error
                time.sleep(0.05)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                # Some cluster file systems are mounted without locks; refusing would shut them out.
                warnings.warn(
                    # without the directory: one line for a sweep, not one for each of its runs
                    "this file system has no locks; "
                    "nothing stops a second process from running in the same directory",
                    stacklevel=2,
                )
                return None


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "starting just now"
