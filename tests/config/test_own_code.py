import subprocess
import sys

import pytest

from rigor.config.own_code import own_code, refuse_changed_code
from rigor.errors import UserError

CODE = (
    "import json, sys; from rigor.config.own_code import own_code; "
    "print(json.dumps(own_code(json.loads(sys.argv[1])), sort_keys=True))"
)


def digests(folder, config: str) -> str:
    """Return what a process in `folder` finds; another process, as digests are cached in one."""
    command = [sys.executable, "-c", CODE, config]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def mine(tmp_path):
    """A module of the user with a helper, and a package with a relative import."""
    (tmp_path / "mine.py").write_text("import json\nfrom helper import f\nclass Delayed: ...\n")
    (tmp_path / "helper.py").write_text("def f(): return 1\n")
    (tmp_path / "unused.py").write_text("")
    package = tmp_path / "kit" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "kit" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "risk.py").write_text("from ..base import g\nclass Soft:\n  def make(): ...\n")
    (tmp_path / "kit" / "base.py").write_text("g = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('{"discount": {"_target_": "mine.Delayed", "k": 1}}', "mine.py"),
        ('{"discount": {"_target_": "mine.Delayed", "k": 1}}', "helper.py"),
        ('{"env": {"id": "mine:Fragile-v0", "_target_": "rigor.envs.gymnasium.X"}}', "mine.py"),
        ('{"env": {"kwargs": {"wrappers": [{"_target_": "mine.Delayed"}]}}}', "helper.py"),
        ('{"env": {"wrappers": ["gymnasium.wrappers.X", "mine.Delayed"]}}', "mine.py"),
        ('{"env": {"wrappers": [{"wrapper": "mine.Delayed", "k": 1}]}}', "helper.py"),
        ('{"risk": {"_target_": "kit.inner.risk.Soft.make"}}', "kit/inner/risk.py"),
        ('{"risk": {"_target_": "kit.inner.risk.Soft"}}', "kit/base.py"),
    ],
)
def test_an_edit_of_the_code_changes_its_digest(mine, config, file):
    before = digests(mine, config)
    assert before != "{}"
    assert digests(mine, config) == before
    (mine / "unused.py").write_text("x = 1\n")
    assert digests(mine, config) == before
    (mine / file).write_text((mine / file).read_text() + "\n# edited\n")
    assert digests(mine, config) != before


def test_code_has_the_same_digest_in_another_folder(mine, tmp_path_factory):
    config = '{"discount": {"_target_": "mine.Delayed"}}'
    before = digests(mine, config)
    moved = mine.rename(tmp_path_factory.mktemp("other") / "place")
    assert digests(moved, config) == before


def test_code_of_rigor_and_of_python_has_no_digest():
    assert (
        own_code({"a": {"_target_": "rigor.maths.discount.Hyperbolic"}, "env": {"id": "X"}}) == {}
    )
    assert own_code({"env": {"wrappers": ["gymnasium.wrappers.FlattenObservation"]}}) == {}
    assert own_code({"a": {"_target_": "collections.OrderedDict"}, "b": {"id": "no:where"}}) == {}
    assert own_code({"a": {"_target_": "builtins.dict"}, "b": {"_target_": "nothing"}}) == {}


def test_an_installed_module_has_that_of_its_file():
    assert list(own_code({"a": {"_target_": "hydra.utils.get_class"}})) == ["hydra.utils"]


def test_other_code_than_that_of_a_stored_config_is_refused():
    config = {"a": {"_target_": "hydra.utils.get_class"}}
    code = own_code(config)
    refuse_changed_code("run", config | {"code": code})
    with pytest.raises(UserError, match=r"^run: the code of hydra\.utils has changed .* 1a2b then"):
        refuse_changed_code("run", config | {"code": {"hydra.utils": "1a2b"}})
