"""Work for a GPU without waiting: a function of arrays whose kernels are recorded once.

An update of these networks is some two hundred small kernels, and a GPU would wait for Python to
launch each. A recording (a CUDA graph) launches them all at once.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

WARM_UP = 3  # calls in the ordinary way: libraries choose their kernels, Adam makes its moments

Call = Callable[[], Tensor]


class Recorder(Protocol):
    """What records a call's work on a device."""

    def rehearse(self, call: Call) -> Tensor:
        """Do the call's work in the ordinary way, and return its answer."""
        ...

    def record(self, call: Call) -> tuple[Callable[[], None], Tensor]:
        """Record the call without doing it; return what replays it, and its answer's memory.

        Raises:
          RuntimeError: it does something that cannot be recorded.
        """
        ...


@dataclass
class _Recording:
    """One shape of arguments: where they lie, how often it was called, and what was recorded."""

    arguments: list[Tensor]
    calls: int = 0
    recorded: tuple[Callable[[], None], Tensor] | None = None


class Recorded:
    """Calls a function of tensors; on a GPU records it for each shape of its arguments.

    A recording reads its arguments where they lay and leaves its answer where it lay, so the answer
    is good until the next call. Whatever else the function reads or writes must stay where it is,
    and it must not wait for the device. Where a recording fails the function is called as it is,
    with a warning.

    Args:
      function: of tensors on the device, to a tensor there.
      device: where it works.
      recorder: `CudaGraphs`; None records nothing.
    """

    def __init__(
        self, function: Callable[..., Tensor], device: torch.device, recorder: Recorder | None
    ) -> None:
        self._function, self._device, self._recorder = function, device, recorder
        self._recordings: dict[tuple[object, ...], _Recording] = {}

    def __call__(self, *arguments: np.ndarray | Tensor) -> Tensor:
        """Return the function's answer for arrays of the machine's memory or of the device's."""
        given = [torch.as_tensor(one) for one in arguments]
        if self._recorder is None:
            return self._function(*(upload(one, self._device) for one in given))
        key = tuple((one.shape, one.dtype) for one in given)
        if key not in self._recordings:
            still = [torch.empty_like(one, device=self._device) for one in given]
            self._recordings[key] = _Recording(still)
        found = self._recordings[key]
        for place, one in zip(found.arguments, given, strict=True):
            place.copy_(_pinned(one, self._device), non_blocking=True)
        if found.recorded is None:
            found.calls += 1
            if found.calls <= WARM_UP:
                return self._recorder.rehearse(lambda: self._function(*found.arguments))
            try:
                found.recorded = self._recorder.record(lambda: self._function(*found.arguments))
            except torch.OutOfMemoryError:
                raise  # kernel by kernel would not help
            except RuntimeError as error:
                return self._refused(error, found)
        replay, answer = found.recorded
        replay()  # recording alone does not run it
        return answer

    def _refused(self, error: RuntimeError, found: _Recording) -> Tensor:
        reason = str(error).partition("\n")[0]
        warnings.warn(
            f"the GPU cannot record this work and runs it kernel by kernel, some four times "
            f"slower: {reason}",
            stacklevel=3,
        )
        self._recorder = None
        return self._function(*found.arguments)


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on the device, without waiting for the copy."""
    return _pinned(tensor, device).to(device, non_blocking=True)


class CudaGraphs:
    """Records calls as CUDA graphs."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def rehearse(self, call: Call) -> Tensor:
        """Do the work on a stream of its own, for autograd remembers where it worked first."""
        usual, own = torch.cuda.current_stream(), self._stream
        own.wait_stream(usual)
        with torch.cuda.stream(own), warnings.catch_warnings():
            # Adam's, that it was made to be recorded and is not being recorded: it soon is
            warnings.filterwarnings("ignore", message=".*capturable=True.*")
            answer = call()
        usual.wait_stream(own)
        answer.record_stream(usual)
        return answer

    def record(self, call: Call) -> tuple[Callable[[], None], Tensor]:
        """Record the call as a graph; return what replays it, and its answer's memory."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = call()
        return graph.replay, answer


def _pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Return whole memory that a GPU copies by itself; torch reuses it once the copy is done."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.contiguous().pin_memory()
    return tensor
