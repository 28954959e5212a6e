"""Recording, with a recorder that keeps the call: what a GPU does, but for the kernels."""

import gc
import weakref

import numpy as np
import pytest
import torch
from scripted import CallRecorder

from rigor.learning.engine import LARGEST, MOST, WARM_UP, CudaGraphs, Recorded

CPU = torch.device("cpu")


def weighted(x, y):
    return (x * y).sum()


def test_without_a_recorder_the_function_is_called():
    doubled = Recorded(lambda x: 2 * x, CPU, None)
    assert doubled(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert doubled(torch.tensor([3])).tolist() == [6]


def test_a_recording_answers_for_the_arguments_of_each_call():
    recorder = CallRecorder()
    function = Recorded(weighted, CPU, recorder)
    for k in range(WARM_UP + 4):
        x, y = np.array([1.0, k]), np.array([k, 2.0])
        assert function(x, y).item() == 3 * k
    assert recorder.replays == 4


def test_each_shape_and_type_has_its_own_recording():
    recorder = CallRecorder()
    function = Recorded(weighted, CPU, recorder)
    for k in range(WARM_UP + 1):
        assert function(np.ones(2), np.full(2, k)).item() == 2 * k
        assert function(np.ones(3), np.full(3, k)).item() == 3 * k
        assert function(np.ones(3, np.float32), np.full(3, k)).dtype == torch.float32
    assert recorder.replays == 3


def test_arguments_may_be_views_and_are_not_kept():
    function = Recorded(weighted, CPU, CallRecorder())
    window = np.arange(12.0).reshape(3, 4)
    for _ in range(WARM_UP + 2):
        given = torch.from_numpy(window)[:, 1:]
        assert function(given, given).item() == (window[:, 1:] ** 2).sum()
        window += 1


def test_arguments_of_all_types_cross_in_one_block():
    """Of odd sizes, so that none would start where its type may without padding."""
    given = [
        np.array([True, False, True]),
        np.array([[1.5], [2.5]]),
        np.array([7], np.uint8),
        np.array(3, np.int64),
        np.arange(5, dtype=np.float32),
        torch.zeros(0, 4),
    ]
    seen = []
    function = Recorded(lambda *tensors: seen.append(tensors) or tensors[3], CPU, CallRecorder())
    for _ in range(2):
        assert function(*given).item() == 3
    for tensor, array in zip(seen[-1], given, strict=True):
        expected = torch.as_tensor(array)
        assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
        assert torch.equal(tensor, expected)
    blocks = {tensor.untyped_storage().data_ptr() for tensor in seen[-1]}
    assert len(blocks) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_no_call_on_a_gpu_reads_the_arguments_of_another():
    """Nothing waits between the calls, so each one's arguments must survive those of the next."""
    device = torch.device("cuda")
    on_device = torch.ones(512, 512, device=device)
    n = 4 * WARM_UP + 300
    results = []

    def slow(flag, count, level, matrix):
        for _ in range(20):  # the copies of the next call come while this works
            matrix = matrix @ matrix / 512.0
        return matrix[0, 0] * (flag.sum() + count.sum() + level)

    function = Recorded(slow, device, CudaGraphs())
    flag, count, level = np.zeros(3, bool), np.zeros(2, np.uint8), np.array(0.0)
    for k in range(n):
        flag[:], count[:], level[...] = k % 2, k % 100, k
        results.append(function(flag, count, level, on_device).clone())
    assert function.n_recorded == 1
    expected = [3 * (k % 2) + 2 * (k % 100) + k for k in range(n)]
    assert torch.stack(results).tolist() == pytest.approx(expected, rel=1e-5)


def test_no_garbage_is_collected_while_a_call_is_recorded():
    """A graph that the collector frees during a recording of CUDA would end that recording."""

    class Cycle:
        pass

    left = Cycle()
    left.itself = left
    before = weakref.ref(left)
    seen = []

    class Watching(CallRecorder):
        def record(self, call):
            seen.append((before() is None, gc.isenabled()))
            return super().record(call)

    function = Recorded(weighted, CPU, Watching())
    gc.disable()  # the cycle stays until it is collected on purpose
    try:
        del left
        for _ in range(WARM_UP):
            function(np.ones(2), np.ones(2))
        gc.enable()
        function(np.ones(2), np.ones(2))
        assert seen == [(True, False)]
        assert gc.isenabled()
    finally:
        gc.enable()


def test_a_recording_that_runs_out_of_memory_says_so():
    class Full(CallRecorder):
        def record(self, call):
            raise torch.OutOfMemoryError("20 MiB")

    function = Recorded(weighted, CPU, Full())
    for _ in range(WARM_UP):
        function(np.ones(2), np.ones(2))
    with pytest.raises(torch.OutOfMemoryError, match="20 MiB"):
        function(np.ones(2), np.ones(2))


def test_what_cannot_be_recorded_is_called_with_one_warning():
    class Refusing(CallRecorder):
        def record(self, call):
            raise RuntimeError("operation not permitted when stream is capturing\nat 0x0")

    function = Recorded(weighted, CPU, Refusing())
    for k in range(WARM_UP):
        assert function(np.ones(2), np.full(2, k)).item() == 2 * k
    with pytest.warns(UserWarning, match="kernel by kernel.*not permitted when stream is"):
        assert function(np.ones(2), np.full(2, 7)).item() == 14
    for shape in (2, 3):
        assert function(np.ones(shape), np.ones(shape)).item() == shape


class Spoilt(CallRecorder):
    """A recording whose end raises too, as `torch.cuda.graph` does, and hides what came before."""

    def __init__(self, cause):
        super().__init__()
        self.cause = cause

    def record(self, call):
        try:
            raise self.cause
        finally:
            raise RuntimeError("capture was invalidated")


def test_a_failed_recording_names_its_cause_and_not_its_end():
    function = Recorded(weighted, CPU, Spoilt(RuntimeError("a synchronous copy\nat 0x0")))
    for _ in range(WARM_UP):
        function(np.ones(2), np.ones(2))
    with pytest.warns(UserWarning, match="kernel by kernel.*slower: a synchronous copy$"):
        assert function(np.ones(2), np.ones(2)).item() == 2
    function = Recorded(weighted, CPU, Spoilt(torch.OutOfMemoryError("20 MiB")))
    for _ in range(WARM_UP):
        function(np.ones(2), np.ones(2))
    with pytest.raises(torch.OutOfMemoryError, match="20 MiB"):
        function(np.ones(2), np.ones(2))


def test_large_calls_and_shapes_beyond_the_first_are_not_recorded():
    recorder = CallRecorder()
    function = Recorded(weighted, CPU, recorder)
    for _ in range(WARM_UP + 2):
        assert function(np.ones(LARGEST + 1), np.ones(LARGEST + 1)).item() == LARGEST + 1
    assert recorder.replays == 0
    for n in range(1, MOST + 3):
        for _ in range(WARM_UP + 1):
            assert function(np.ones(n), np.ones(n)).item() == n
    assert recorder.replays == MOST
