"""The loop over pairs of `rigor.learning.fast_loss`, compiled.

On a CPU a process of its own compiles the loop into a file, which runs load. The compiler is a
Python program: it would cost each run 9 s and 130 MB that a process never gives back. The file
stays in the user's cache for later runs on machines of the kind.
"""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from rigor.learning.fast_loss import SumOverPairs

Shapes = tuple[tuple[int, int], tuple[int, int]]
"""Of predictions, (R, N), and of targets, (R, N')."""


class Pairs(nn.Module):
    """`sum_over_pairs` over all pairs at once, for a compiler.

    Args:
      kappa: κ >= 0.
    """

    def __init__(self, kappa: float) -> None:
        super().__init__()
        self.kappa = kappa

    def forward(self, x: Tensor, y: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the total and the slopes, of predictions [R, N] and targets [R, N']."""
        errors, kappa = y.unsqueeze(-2) - x.unsqueeze(-1), self.kappa
        slope = errors.clamp(-kappa, kappa) if kappa > 0.0 else errors.sign()
        weights = torch.where(errors < 0.0, 1.0 - levels[:, None], levels[:, None])
        losses = weights * slope * (errors - (0.5 if kappa > 0.0 else 0.0) * slope)
        # Sum each row first: a sum of ten million terms would lose digits.
        return losses.sum((-2, -1)).sum(), (weights * slope).sum(-1)


def compiled_sum_over_pairs(
    n_rows: int, n_targets: int, levels: Tensor, kappa: float
) -> SumOverPairs:
    """Return `sum_over_pairs` compiled for float32 arguments of one shape.

    Compiling takes half a minute the first time, so it pays in long runs.

    Args:
      n_rows: R. n_targets: N'. levels: τ_j, [N], on the device of the arguments. kappa: κ >= 0.

    Raises:
      Exception: whatever the compiler raises; there may be no compiler.
    """
    shapes = (n_rows, len(levels)), (n_rows, n_targets)
    on_cpu = levels.device.type == "cpu"
    kernel = _from_file(shapes, kappa) if on_cpu else compiled_in_process(kappa)
    # Separate tensors: given one tensor twice, the compiler would assume that they are always the
    # same.
    predictions, targets = (levels.new_zeros(shape) for shape in shapes)
    kernel(predictions, targets, levels, kappa)
    return kernel


def compiled_in_process(kappa: float) -> SumOverPairs:
    """Return `sum_over_pairs` compiled by this process, for every shape that it is called with."""
    pairs = torch.compile(Pairs(kappa), dynamic=False)

    def kernel(x: Tensor, y: Tensor, levels: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
        total, slopes = pairs(x, y, levels)
        return total, slopes

    return kernel


def _from_file(shapes: Shapes, kappa: float) -> SumOverPairs:
    # `torch._inductor.aoti_load_package` makes the same object, and imports the compiler to do so
    pairs = torch._C._aoti.AOTIModelPackageLoader(str(_file(shapes, kappa)), "model", False, 1, -1)

    def kernel(x: Tensor, y: Tensor, levels: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
        assert (x.shape, y.shape) == shapes, (x.shape, y.shape)  # it would read on behind them
        total, slopes = pairs.run([x.contiguous(), y.contiguous(), levels])
        return total, slopes

    return kernel


def _file(shapes: Shapes, kappa: float) -> Path:
    """Return the file of the compiled loop, which is compiled if it is not there."""
    # short runs compile nothing, and need not import these
    from filelock import FileLock
    from platformdirs import user_cache_path

    (n_rows, n), (_, n_targets) = shapes
    arguments = [n_rows, n, n_targets, kappa, torch.get_num_threads()]
    made_for = _instructions().encode() + Path(__file__).read_bytes()
    digest = hashlib.sha256(made_for).hexdigest()[:8]
    name = "-".join(map(str, ["loss", *arguments, "torch", torch.__version__, digest]))
    file = user_cache_path("rigor", appauthor=False, ensure_exists=True) / f"{name}.pt2"
    with FileLock(f"{file}.lock"):  # one of the runs that start together compiles
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                unfinished = Path(folder) / file.name
                command = [sys.executable, "-P", "-m", __name__, str(unfinished)]
                command += map(str, arguments)
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError((done.stderr.strip() or str(done)).splitlines()[-1])
                os.replace(unfinished, file)
    return file


def _instructions() -> str:
    """Return what tells apart processors that cannot run each other's files."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))


def _compile(file: str, n_rows: int, n: int, n_targets: int, kappa: float, threads: int) -> None:
    torch.set_num_threads(threads)  # the compiler writes their number into the loop
    arguments = torch.zeros(n_rows, n), torch.zeros(n_rows, n_targets), torch.zeros(n)
    exported = torch.export.export(Pairs(kappa), arguments)
    torch._inductor.aoti_compile_and_package(exported, package_path=file)


if __name__ == "__main__":
    path, rows, columns, others, bend, n_threads = sys.argv[1:]
    _compile(path, int(rows), int(columns), int(others), float(bend), int(n_threads))
