"""Imports follow the layers of the library: up the list only, and rooms of one level do not know one another."""

import ast
from pathlib import Path

import pytest

import fedjax_geo

ROOT = Path(fedjax_geo.__file__).parent
LEVELS = {
    "types": 0,
    "tree": 0,
    "shuffle": 0,
    "_validate": 0,
    "parallel": 1,
    "layers": 1,
    "batches": 1,
    "objective": 1,
    "diagnostics": 2,
    "weightings": 2,
    "aggregators": 2,
    "transforms": 2,
    "clients": 2,
    "models": 2,
    "data": 2,
    "methods": 3,
    "round": 3,
    "evaluate": 3,
    "stream": 4,
    "simulate": 5,
    "record": 6,
    "checkpoint": 6,
    "sweep": 6,
    "tune": 6,
}
# The vocabulary comes before the arithmetic written in it, and so on down each level.
WITHIN = {("tree", "types"), ("shuffle", "types"), ("objective", "batches")}
FORBIDDEN = {"tyro", "matplotlib", "experiments", "sklearn", "torch"}
FLAX_ONLY_IN = {"models"}

FILES = sorted(ROOT.rglob("*.py"))


def room(path):
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_up(path):
    here = room(path)
    if here == "__init__":
        return
    assert here in LEVELS, f"give {here} a level"
    for name in imported(path):
        top, *rest = name.split(".")
        assert top not in FORBIDDEN, f"{path} imports {name}"
        assert top != "flax" or here in FLAX_ONLY_IN, f"{path} imports flax"
        if top != "fedjax_geo" or not rest or rest[0] == here:
            continue
        there = rest[0]
        allowed = LEVELS[there] < LEVELS[here] or (here, there) in WITHIN
        assert allowed, f"{here} (level {LEVELS[here]}) imports {there} (level {LEVELS[there]})"


@pytest.mark.parametrize(
    "package", ["weightings", "aggregators", "transforms", "clients", "models", "methods", "data"]
)
def test_files_of_a_room_start_with_an_underscore(package):
    names = [p.name for p in (ROOT / package).glob("*.py")]
    assert all(n.startswith("_") for n in names), names
