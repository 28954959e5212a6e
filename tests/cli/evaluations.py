"""`rigor-eval` in a process of its own, and what its pictures hold."""

import numpy as np
from command_line import finish, start
from PIL import Image


def command(*arguments, cwd):
    return finish(start(*arguments, cwd=cwd, name="eval"))


def check_figure(path):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 400
    assert pixels.std() > 5
    assert path.stat().st_size < 600_000
