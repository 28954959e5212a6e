"""What a process that runs a run asks for before torch is imported."""

import os


def one_thread() -> None:
    """Ask for one thread in this process and its children, unless the user has asked for another.

    With two threads a process on a busy machine is slower than with one, and threads that spin
    while they wait take the core of another run.
    """
    for name, value in (
        ("OMP_NUM_THREADS", "1"),
        ("OMP_WAIT_POLICY", "passive"),
        ("TORCHINDUCTOR_COMPILE_THREADS", "1"),  # its compiler starts one for each core
    ):
        os.environ.setdefault(name, value)
