"""Many runs in one program equal separate runs."""

import jax
import numpy as np
import optax
import pytest
import toys

from fedjax_geo import Strategy, Work, simulate, sweep
from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.clients import local_sgd
from fedjax_geo.models import mlp
from fedjax_geo.parallel import clients_mesh
from fedjax_geo.types import Method
from fedjax_geo.weightings import by_examples, fedvg

DATA = toys.ragged()
MODEL = mlp(3, hidden=(5,))
OPTIONS = {"rounds": 3, "cohort": 5, "eval_every": 2, "work": Work(batch_size=8)}
SEEDS = [0, 7, 3]
RATES = np.array([1.0, 0.5, 0.1], np.float32)


def make_method(setting):
    return Method(local_sgd(optax.sgd(0.1)), fedvg(), optax.chain(weighted_mean(), optax.sgd(setting["rate"])))


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_runs_equal_separate_ones(side_by_side):
    """Two side by side leaves a chunk that is not full."""
    together = sweep(
        make_method, MODEL, DATA, seeds=SEEDS, settings={"rate": RATES}, side_by_side=side_by_side, **OPTIONS
    )
    assert len(together) == len(SEEDS)
    for result, seed, rate in zip(together, SEEDS, RATES, strict=True):
        alone = simulate(make_method({"rate": rate}), MODEL, DATA, seed=seed, **OPTIONS)
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # noqa: E731
        jax.tree.map(close, result.state, alone.state)
        assert [e.round for e in result.evaluations] == [0, 2, 3]
        for got, expected in zip(result.evaluations, alone.evaluations, strict=True):
            close(got.accuracies["global"], expected.accuracies["global"])
            close(got.summaries["global"]["loss"], expected.summaries["global"]["loss"])
        for got, expected in zip(result.metrics, alone.metrics, strict=True):
            assert got.keys() == expected.keys() and got["round"] == expected["round"]
            assert got["examples"] == expected["examples"]  # the same cohort
            close(got["train_loss"], expected["train_loss"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds must hold at least one seed"),
        ({"settings": {"rate": RATES[:2]}}, r"leading axis of the 3 seeds, got shape \(2,\)"),
        ({"side_by_side": 0}, "side_by_side must be a whole number of at least 1, got 0"),
        ({"side_by_side": 2, "strategy": Strategy(mesh=clients_mesh(2))}, "side_by_side must be 1 with a mesh"),
        ({"cohort": 9}, "cohort must be between 1 and the population of 8 clients, got 9"),
        ({"data": toys.federation([np.ones((1, 6))] * 8)}, "needs a validation set at the server"),
    ],
)
def test_wrong_arguments_fail_before_compilation(change, message):
    arguments = {"data": DATA, "seeds": SEEDS, "settings": {"rate": RATES}, **OPTIONS, **change}
    with pytest.raises(ValueError, match=message):
        sweep(make_method, MODEL, **arguments)


def test_a_setting_that_a_constructor_refuses_is_found_before_compilation():
    with pytest.raises(ValueError, match="learning rate"):
        sweep(
            lambda rate: Method(
                local_sgd(optax.sgd(rate)), by_examples(), optax.chain(weighted_mean(), optax.sgd(1.0))
            ),
            MODEL,
            DATA,
            seeds=SEEDS,
            settings=np.array([0.1, np.nan, 0.1], np.float32),
            **OPTIONS,
        )


def test_a_run_that_diverges_says_so_and_does_not_disturb_the_others():
    rates = np.array([0.5, np.inf], np.float32)
    with pytest.warns(UserWarning, match="run 1: no client that answered in round"):
        fine, broken = sweep(
            make_method, MODEL, DATA, seeds=[0, 0], settings={"rate": rates}, side_by_side=2, **OPTIONS
        )
    assert fine.diverged_at is None and broken.diverged_at == 2
