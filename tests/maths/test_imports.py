import subprocess
import sys

import pytest

MODULES = ["discount", "discrete", "horizons", "utility", "stock", "objective", "quantile", "outer"]


@pytest.mark.parametrize("foreign", ["hydra", "gymnasium", "wandb", "torch"])
def test_the_maths_imports_neither_framework_nor_torch(foreign: str) -> None:
    program = (
        "import importlib, sys\n"
        f"for name in {MODULES}: importlib.import_module('rigor.maths.' + name)\n"
        f"sys.exit({foreign!r} in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
