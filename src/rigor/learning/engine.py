"""How an agent's arithmetic runs: uploads, CUDA graphs, precision, Adam's memory.

Nothing here changes the algorithm. An update of these networks is some two hundred small kernels,
and a GPU would wait for Python to launch each one. A CUDA graph launches all of them at once.
"""

import functools
import gc
import inspect
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rigor.config.schemas import Train, TrainParallel
from rigor.learning.networks import QuantileNetwork
from rigor.runs.memory import no_garbage_collection

WARM_UP = 3  # calls without recording: libraries choose their kernels, Adam allocates its moments
LARGEST = 4096  # rows of a call that is recorded; its results keep their memory
_ALIGNED = 512  # bytes, as torch aligns its own; libraries choose kernels by it
MOST = 16  # recordings of one function; each keeps its memory

Call = Callable[[], Tensor]


class Engine:
    """The device, the precision and the optimiser of an agent.

    Args:
      train: `precision`, `graph`, `fast` and the values of the optimiser.
      device: where the networks live.
    """

    def __init__(self, train: Train, device: torch.device) -> None:
        self.device, self._train = device, train
        self._half = train.fast and train.precision == "bf16"
        if device.type == "cuda":
            _set_tf32(train.precision == "tf32")
        self._records = train.fast and train.graph and device.type == "cuda"

    def record(self, function: Callable[..., Tensor]) -> "Recorded":
        """Return a function of arrays that works on the device, recorded where that is possible."""
        return Recorded(function, self.device, CudaGraphs() if self._records else None)

    def upload(self, array: np.ndarray | Tensor) -> Tensor:
        """Return an array as a tensor on the device, without waiting for the copy."""
        return upload(torch.as_tensor(array), self.device)

    def hidden(
        self, network: QuantileNetwork, observation: Tensor, t: Tensor, stock: Tensor
    ) -> Tensor:
        """Return the hidden units [B, H] of an update, in half precision if the config asks."""
        with (
            # A cache of converted weights would outlive the weights in a CUDA graph.
            torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
            if self._half
            else nullcontext()
        ):
            hidden = network.hidden(observation, t, stock)
        return hidden.to(network.head.linear.weight.dtype)

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the learner's optimiser of a network: Adam, or RAdam for the parallel one.

        Adam is fused, because one kernel is fastest; torch has no such RAdam.
        """
        train = self._train
        rate: float | Tensor = train.learning_rate
        if self._records:  # a CUDA graph reads the rate from memory of the device
            rate = torch.tensor(rate, device=self.device)
            # the optimiser warns where it is capturable and not being captured: before a recording,
            # and where a call is too large for one
            warnings.filterwarnings("ignore", message=".*capturable=True.*")
        parameters = list(network.parameters())
        optimizer: torch.optim.Optimizer
        if isinstance(train, TrainParallel):
            optimizer = _uncompiled(torch.optim.RAdam)(
                parameters, lr=rate, eps=train.adam_eps, foreach=True, capturable=self._records
            )
        else:
            optimizer = _uncompiled(torch.optim.Adam)(
                parameters, lr=rate, eps=train.adam_eps, fused=True, capturable=self._records
            )
        # Fused Adam changes parameters without counting it, and `FastHead` relies on the counters.
        optimizer.register_step_post_hook(
            lambda *_: torch.autograd.graph.increment_version(parameters)
        )
        return optimizer


def _uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return a class of optimisers without the wrappers that torch needs for `torch.compile`.

    The wrappers import the compiler, which takes as long as importing torch itself.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


def _set_tf32(allowed: bool) -> None:
    """Let a GPU multiply float32 numbers with 10 bits of their fractions, or with all 23.

    Otherwise torch would do so in convolutions and not elsewhere.
    """
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def lacks_bf16(device: torch.device) -> bool:
    """Tell whether bf16 would be emulated on a device: a CPU without AVX-512 or AMX."""
    return device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the step size of an optimiser."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def restore_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Restore the optimiser's moments as a checkpoint holds them.

    There parameter numbers are strings. The learning rate and the epsilon are the config's.
    """
    state = {int(number): moments for number, moments in saved.items()}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    # Fused Adam walks parameters and moments side by side in memory. A convolution's moments must
    # have the memory layout of its weight (channels last), which a file does not keep.
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)


@torch.no_grad()
def move(network: nn.Module, towards: nn.Module, fraction: float) -> None:
    """Move a network's parameters a fraction of the way to another's: θ ← (1 − α) θ + α θ′."""
    torch._foreach_lerp_(tuple(network.parameters()), tuple(towards.parameters()), fraction)


class Recorder(Protocol):
    """Records the work of a call on a device."""

    def warm_up(self, call: Call) -> Tensor:
        """Do the call's work without recording, and return its result."""
        ...

    def record(self, call: Call) -> tuple[Callable[[], None], Tensor]:
        """Record the call without doing it; return a replay function and the result's memory.

        Raises:
          RuntimeError: the call does something that cannot be recorded.
        """
        ...


class _Arguments:
    """Fixed memory on a device for the arguments of a recording.

    Those that come from the machine's memory lie in one block, which crosses in one copy: an update
    has seven small ones, and each copy costs a launch.

    Args:
      given: the arguments of a first call. device: where the memory is.
    """

    def __init__(self, given: list[Tensor], device: torch.device) -> None:
        self._device = device
        small = [tensor for tensor in given if tensor.device.type == "cpu"]
        sizes = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in small]
        self._places = [sum(sizes[:k]) for k in range(len(sizes))]
        self._block = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
        views = iter(self._views(self._block, small))
        self.tensors = [
            next(views) if tensor.device.type == "cpu" else torch.empty_like(tensor)
            for tensor in given
        ]

    def write(self, given: list[Tensor]) -> None:
        """Copy the arguments of a call there, without waiting for the copy."""
        small = [tensor for tensor in given if tensor.device.type == "cpu"]
        if small:
            # page-locked memory, which a GPU copies by itself; torch reuses it after the copy
            on_gpu = self._device.type == "cuda"
            packed = torch.empty(self._block.shape, dtype=torch.uint8, pin_memory=on_gpu)
            for view, tensor in zip(self._views(packed, small), small, strict=True):
                view.copy_(tensor)
            self._block.copy_(packed, non_blocking=True)
        for memory, tensor in zip(self.tensors, given, strict=True):
            if tensor.device.type != "cpu":
                memory.copy_(tensor)

    def _views(self, block: Tensor, of: list[Tensor]) -> list[Tensor]:
        """Return the parts of a block of bytes as tensors of the shapes and types of others."""
        return [
            block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for start, tensor in zip(self._places, of, strict=True)
        ]


@dataclass
class _Recording:
    """Arguments of one shape, the number of calls, and the recording."""

    arguments: _Arguments
    calls: int = 0
    recorded: tuple[Callable[[], None], Tensor] | None = None


class Recorded:
    """A function of tensors that a GPU records once for each shape of its arguments.

    Inputs are copied into fixed buffers before each replay, and the result lies in a fixed buffer,
    so it is good until the next call. Everything else that the function reads or writes must keep
    its place in memory, and the function must neither wait for the device nor write to its
    arguments. Where recording fails, the function is called directly, with a warning. A call of
    more than `LARGEST` rows, or of a shape beyond the first `MOST`, is not recorded.

    Args:
      function: from tensors on the device to a tensor there.
      device: where it works.
      recorder: `CudaGraphs`; None never records.
    """

    def __init__(
        self, function: Callable[..., Tensor], device: torch.device, recorder: Recorder | None
    ) -> None:
        self._function, self._device, self._recorder = function, device, recorder
        self._recordings: dict[tuple[object, ...], _Recording] = {}

    @property
    def n_recorded(self) -> int:
        """Number of shapes whose calls are recorded; 0 where recording failed."""
        if self._recorder is None:
            return 0
        return sum(recording.recorded is not None for recording in self._recordings.values())

    def __call__(self, *arguments: np.ndarray | Tensor) -> Tensor:
        """Return the function's result for arrays in the machine's memory or on the device."""
        given = [torch.as_tensor(argument) for argument in arguments]
        key = tuple((tensor.shape, tensor.dtype, tensor.device.type) for tensor in given)
        if self._recorder is None or not self._is_recorded(key):
            return self._function(*(upload(tensor, self._device) for tensor in given))
        if key not in self._recordings:
            self._recordings[key] = _Recording(_Arguments(given, self._device))
        found = self._recordings[key]
        found.arguments.write(given)
        call = functools.partial(self._function, *found.arguments.tensors)
        if found.recorded is None:
            found.calls += 1
            if found.calls <= WARM_UP:
                return self._recorder.warm_up(call)
            try:
                gc.collect()  # freeing a graph inside a recording would fail
                with no_garbage_collection():
                    found.recorded = self._recorder.record(call)
            except torch.OutOfMemoryError:
                raise  # running without a recording would not help
            except RuntimeError as error:
                return self._without_recording(error, call)
        replay, result = found.recorded
        replay()  # recording alone does not run the work
        return result

    def _is_recorded(self, key: tuple[tuple[torch.Size, torch.dtype, str], ...]) -> bool:
        """Tell whether calls of these shapes and types are recorded."""
        if key in self._recordings:
            return True
        rows = max((shape[0] for shape, *_ in key if shape), default=0)
        return rows <= LARGEST and len(self._recordings) < MOST

    def _without_recording(self, error: RuntimeError, call: Call) -> Tensor:
        # the end of a failed recording raises too, and hides the error that came before
        cause = error.__context__ or error
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause
        reason = str(cause).partition("\n")[0]
        warnings.warn(
            "the GPU cannot record this work and runs it kernel by kernel, which is slower: "
            f"{reason}",
            stacklevel=3,
        )
        self._recorder = None
        return call()


class CudaGraphs:
    """Records calls as CUDA graphs."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def warm_up(self, call: Call) -> Tensor:
        """Do the work on a stream of its own, because autograd remembers its first stream."""
        usual, own = torch.cuda.current_stream(), self._stream
        own.wait_stream(usual)
        with torch.cuda.stream(own):
            result = call()
        usual.wait_stream(own)
        result.record_stream(usual)
        return result

    def record(self, call: Call) -> tuple[Callable[[], None], Tensor]:
        """Record the call as a graph; return its replay and the memory of its result."""
        graph, usual = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                result = call()
        finally:
            torch.cuda.set_stream(usual)  # a failed recording leaves its own
        return graph.replay, result


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on the device, without waiting for the copy."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        # page-locked memory, which a GPU copies by itself; torch reuses it after the copy
        tensor = tensor.contiguous().pin_memory()
    return tensor.to(device, non_blocking=True)
