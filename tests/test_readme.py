"""What the README says works: its programs run, its two set-up commands are the only ones."""

import re
from pathlib import Path

import optax
import pytest

from fedjax_geo import Method, simulate
from fedjax_geo.clients import local_sgd
from fedjax_geo.data import load_federated
from fedjax_geo.models import mlp
from fedjax_geo.weightings import by_examples

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text() if README.exists() else ""
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

pytestmark = pytest.mark.skipif(not TEXT, reason="the README is not beside the tests")


def test_there_are_two_set_up_commands():
    commands = re.findall(r"^pip install .*$", TEXT, re.MULTILINE)
    assert commands == [
        'pip install -e ".[experiments]" && python -m experiments.quickstart',
        'pip install -e ".[test]" && python -m pytest',
    ]


def test_the_composed_method_runs(capsys):
    program = PROGRAMS[0]
    assert "rounds=50" in program
    exec(compile(program.replace("rounds=50", "rounds=2"), "README.md", "exec"), {})
    assert "client_mean" in capsys.readouterr().out


def test_the_aggregator_of_the_reader_runs():
    scope = {}
    exec(compile(PROGRAMS[1], "README.md", "exec"), scope)
    body = PROGRAMS[1].split("def agreement_mean", 1)[1]
    assert len(body.splitlines()) <= 20
    server = optax.chain(scope["agreement_mean"](), optax.sgd(1.0))
    method = Method(local_sgd(optax.sgd(0.1)), by_examples(), server)
    result = simulate(method, mlp(10, hidden=(8,)), load_federated("digits_forms"), rounds=2, cohort=5)
    assert {"worst_cosine", "constraint_residual"} <= set(result.metrics[-1])
