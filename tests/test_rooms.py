"""Imports between the rooms of the package go one way, and `maths` is pure.

`python tests/test_rooms.py` prints the graph of the rooms.
"""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

ROOMS = (
    "rigor.errors",
    "rigor.cores",
    "rigor.maths",
    "rigor.envs",
    "rigor.config",
    "rigor.gym",  # importing it registers rigor's problems with Gymnasium
    "rigor.runs",
    "rigor.exact",
    "rigor.learning",
    "rigor.report",
    "rigor.launch",
    "hydra_plugins",  # Hydra accepts plugins from this package only
    "rigor.cli",
    "rigor.__main__",
    "rigor",  # `rigor/__init__.py`, which exports names for notebooks
)
"""A room may import itself and the rooms before it."""

REPORT_ROOMS = (
    ("rigor.report.data",),
    ("rigor.report.tables",),
    ("rigor.report.figures",),
    ("rigor.report.page", "rigor.report.evaluation"),  # neither may import the other
)

PURE = {"array_api_compat", "numpy", "rigor", "scipy", "torch"}
SLOW = {"scipy", "torch"}
"""Packages that take long to import; composing a config and `--help` must not wait for them."""

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Return the path of each module, by its dotted name; a package has the name of its folder."""
    paths = [*(SOURCE / "rigor").rglob("*.py"), *(SOURCE / "hydra_plugins").rglob("*.py")]
    dotted = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in paths}
    return {name.removesuffix(".__init__"): path for name, path in sorted(dotted.items())}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import in a file, wherever it stands; name may be empty."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            yield from ((node.module, alias.name) for alias in node.names)


def file_graph() -> Graph:
    """Return the modules of ours that each module imports, under TYPE_CHECKING too."""
    known = modules()
    graph: Graph = {name: set() for name in known}
    for name, path in known.items():
        for module, member in imported(path):
            target = f"{module}.{member}" if f"{module}.{member}" in known else module
            if target in known and target != name:
                graph[name].add(target)
    return graph


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] != "rigor" else ".".join(parts[:2])


def report_room_of(module: str) -> str:
    return ".".join(module.split(".")[:3])


def grouped(graph: Graph, group) -> Graph:
    """Return which groups of modules import which other ones."""
    found: Graph = defaultdict(set)
    for name, targets in graph.items():
        found[group(name)] |= {group(target) for target in targets} - {group(name)}
    return dict(found)


def circles(graph: Graph) -> list[list[str]]:
    """Return the sets of nodes that import each other, by Tarjan's algorithm."""
    found: list[list[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def shown(graph: Graph) -> str:
    """Return the graph of the rooms as text, one room on each line."""
    by_room = grouped(graph, room_of)
    lines = ["Each room, and the rooms that it imports:"]
    lines += [
        f"  {room:<15} {', '.join(r for r in ROOMS if r in by_room[room]) or '-'}" for room in ROOMS
    ]
    within = {name: targets for name, targets in graph.items() if room_of(name) == "rigor.report"}
    by_part = grouped(within, report_room_of)
    lines.append("Within rigor.report:")
    for part in (part for rank in REPORT_ROOMS for part in rank):
        own = sorted(
            target for target in by_part.get(part, ()) if target.startswith("rigor.report")
        )
        lines.append(f"  {part:<24} {', '.join(own) or '-'}")
    return "\n".join(lines)


def against_the_order(graph: Graph, group, rank: dict[str, int]) -> list[str]:
    """Return the imports of a group that does not come before the importing one."""
    return [
        f"{name} imports {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if group(name) != group(target) and rank[group(target)] >= rank[group(name)]
    ]


def test_every_module_belongs_to_a_room():
    assert {room_of(name) for name in modules()} == set(ROOMS) | {"hydra_plugins"}


def test_rooms_import_only_the_rooms_before_them():
    graph = file_graph()
    rank = {room: number for number, room in enumerate(ROOMS)}
    wrong = against_the_order(graph, room_of, rank)
    assert not wrong, "\n".join([*wrong, shown(graph)])


def test_report_has_rooms_of_its_own_which_import_only_those_before_them():
    graph = file_graph()
    rank = {part: number for number, parts in enumerate(REPORT_ROOMS) for part in parts}
    within = {
        name: {target for target in targets if report_room_of(target) in rank}
        for name, targets in graph.items()
        if report_room_of(name) in rank
    }
    assert {part for name in within for part in [report_room_of(name)]} == set(rank)
    wrong = against_the_order(within, report_room_of, rank)
    assert not wrong, "\n".join([*wrong, shown(graph)])


def test_no_circle_between_rooms_nor_between_files():
    graph = file_graph()
    found = circles(graph) + circles(grouped(graph, room_of))
    assert not found, "\n".join([*map(str, found), shown(graph)])


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_maths_imports_arrays_and_nothing_else():
    allowed = PURE | set(sys.stdlib_module_names)
    for name, path in modules().items():
        if room_of(name) == "rigor.maths":
            found = {module for module, _ in imported(path)}
            foreign = {module for module in found if module.partition(".")[0] not in allowed}
            outside = {m for m in found if m.startswith("rigor") and room_of(m) != "rigor.maths"}
            assert not foreign | outside, f"{name} imports {sorted(foreign | outside)}"


def test_maths_loads_slow_packages_only_when_they_are_used():
    names = [name for name in modules() if room_of(name) == "rigor.maths"]
    unwanted = SLOW | {"gymnasium", "hydra", "omegaconf", "wandb"}
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        f"print(sorted({unwanted} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_class_names_are_unique():
    places: dict[str, list[str]] = defaultdict(list)
    for folder in ("src", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    doubles = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not doubles, "\n".join(doubles)


def test_names_of_test_files_are_unique():
    # pytest imports test files without packages by their bare names
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, count in counts.items() if count > 1]


if __name__ == "__main__":
    print(shown(file_graph()))
