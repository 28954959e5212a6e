import subprocess
import sys
from pathlib import Path

import rigor.maths

MODULES = sorted(path.stem for path in Path(rigor.maths.__path__[0]).glob("*.py"))
FOREIGN = {"hydra", "gymnasium", "wandb", "torch", "scipy"}


def test_the_maths_imports_neither_frameworks_nor_torch() -> None:
    # composing and `--help` must be quick: torch and scipy are imported where they are used
    program = (
        "import importlib, sys\n"
        f"for name in {MODULES}: importlib.import_module('rigor.maths.' + name)\n"
        f"print({FOREIGN} & set(sys.modules) or 'none')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "none"
