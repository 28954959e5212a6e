"""Writing that is whole or absent, and a refusing disk told in one line."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rigor.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system refuses inside the block into a `UserError` that names `path`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if error.errno in _FULL:
            way_out = "free some (or raise the quota), then start the same command again to go on"
            if error.errno != errno.ENOSPC:
                reason = f"no space left on device ({reason})"
        elif error.errno in _UNWRITABLE:
            reason = f"not writable ({reason})"
            way_out = "choose another place with out=DIR"
        else:
            way_out = "mend it or choose another place with out=DIR"
        raise UserError(f"{path}: {reason}; {way_out}") from error


def atomic_write(path: Path | str, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part.

    Raises:
      UserError: the disk is full or the place not writable; the old content is then still there.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    # The process id keeps two writers apart; the dot keeps the half-written file out of listings.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def append_text(path: Path | str, text: str) -> None:
    """Append `text` and a newline where it has none; a refusing disk is a `UserError`."""
    path = Path(path)
    with disk_errors(path), open(path, "ab", buffering=0) as file:
        write_all(file.fileno(), (text if text.endswith("\n") else text + "\n").encode())


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, past the partial writes of a disk that is filling up."""
    while data:
        data = data[os.write(descriptor, data) :]
