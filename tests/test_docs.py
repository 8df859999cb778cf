"""What the documentation says works: its programs run, its pages, links and tests exist."""

import re
import sys
import types
from pathlib import Path

import pytest

from fedjax_geo import aggregators, clients, methods, weightings
from fedjax_geo.types import RoundInfo

ROOT = Path(__file__).parent.parent
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
TUTORIAL = "adding-a-method.md"
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.skipif(not PAGES, reason="the documentation is not beside the tests")


def blocks(page):
    """(words after ``python``, line of the page above the program, program) of each block."""
    for found in BLOCK.finditer(PAGES[page]):
        yield found[1].split(), PAGES[page].count("\n", 0, found.start()) + 1, found[2]


def files(page):
    """Path -> program of the blocks that are a whole file."""
    named = [(words, code) for words, _, code in blocks(page) if words and words != ["no-run"]]
    return {words[0].removeprefix("file="): code for words, code in named}


def as_module(path, scope, monkeypatch):
    """Make a block importable as the file that it stands for, and its function from the package around it."""
    name = path.removesuffix(".py").replace("/", ".")
    package, _, stem = name.rpartition(".")
    module = types.ModuleType(name)
    module.__dict__.update(scope)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules[package], stem.lstrip("_"), scope[stem.lstrip("_")], raising=False)


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(PAGES[page])])
def test_programs_run(page, monkeypatch):
    scope = {"__name__": "page"}
    for words, line, code in blocks(page):
        if "no-run" in words:
            continue
        exec(compile("\n" * line + code, f"docs/{page}", "exec"), scope)
        for word in words:
            as_module(word.removeprefix("file="), scope, monkeypatch)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    for test in tests:
        test()
    assert bool(tests) == (page == TUTORIAL)


def test_the_tutorial_is_as_short_as_it_says():
    programs = files(TUTORIAL)
    assert list(programs) == [
        "fedjax_geo/aggregators/_centered_clipping.py",
        "fedjax_geo/weightings/_by_power.py",
        "fedjax_geo/clients/_fedsam.py",
    ]
    assert len(programs["fedjax_geo/aggregators/_centered_clipping.py"].splitlines()) <= 40
    assert max(len(line) for code in programs.values() for line in code.splitlines()) <= 115
    assert not any((ROOT / path).exists() for path in programs), "the tutorial adds what exists already"


def test_everything_with_a_name_is_mentioned():
    text = "\n".join(PAGES.values())
    named = [*methods.METHODS, *aggregators.AGGREGATORS, *weightings.WEIGHTINGS, *clients.CLIENTS]
    assert not [name for name in named if not re.search(rf"`{name}\b", text)]
    assert not [name for name in RoundInfo._fields if f"| `{name}` |" not in PAGES["rounds.md"]]


def test_every_page_is_in_the_index():
    assert set(PAGES) - {"README.md"} == set(re.findall(r"^\| \[[\w.-]+\]\(([\w.-]+)\)", PAGES["README.md"], re.M))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_tests_exist(page):
    prose = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", prose) if not t.startswith("https://")]
    assert all((ROOT / "docs" / target.partition("#")[0]).exists() for target in targets), targets
    proofs = re.findall(r"`(tests/[\w/]+\.py)`", prose)
    assert all((ROOT / proof).exists() for proof in proofs), proofs
