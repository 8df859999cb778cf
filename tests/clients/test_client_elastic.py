"""Elastic: which examples are held, what is measured on them, what is trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from client_runs import SMALL_TASK, alone, ragged, scalar_task, vector_model

from fedjax_geo.batches import Work, serve
from fedjax_geo.clients import elastic, label_loss, local_sgd
from fedjax_geo.clients._elastic import _split
from fedjax_geo.types import Examples, Variables

START = Variables({"w": jnp.zeros(())})


@pytest.mark.parametrize(
    ("size", "held", "steps"),
    [(10, 3, 2 * 3), (20, 6, 2 * 4), (2, 1, 2), (1, 0, 2), (15, 4, 2 * 3)],  # batches of 4, two epochs
)
def test_held_and_trained_examples_are_a_partition(size, held, steps):
    """30 % to the nearest whole number (4.5 to 4), and every local epoch serves exactly the others."""
    examples = Examples(jnp.arange(size, dtype=jnp.float32)[:, None], jnp.zeros(size, jnp.int32))
    rows = jnp.arange(size, dtype=jnp.int32)
    batches = serve(examples, rows, jnp.int32(size), jax.random.key(3), Work(4, 2))
    held_batches = -(-held // 4)

    @jax.jit
    def serve_all():
        count, measured, training = _split(batches, 0.3)
        own = jax.vmap(measured)(jnp.arange(held_batches, dtype=jnp.int32))
        return count, training.num_steps, own, jax.vmap(training.get)(jnp.arange(steps, dtype=jnp.int32))

    def true_rows(batch, chosen=slice(None)):
        return np.asarray(batch.x)[chosen][np.asarray(batch.mask)[chosen]][:, 0]

    count, num_steps, own, others = serve_all()
    assert (int(count), int(num_steps)) == (held_batches, steps) and len(true_rows(own)) == held
    for epoch in range(2):
        trained = true_rows(others, slice(epoch * steps // 2, (epoch + 1) * steps // 2))
        np.testing.assert_array_equal(np.sort(np.concatenate([true_rows(own), trained])), np.arange(size))


def test_sensitivities_against_numpy():
    """Loss <x, w> with two parameters: the gradient of a held batch is its mean example."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    model, work = vector_model([1.0, 2.0]), Work(5, 1)
    out = alone(
        elastic(optax.sgd(0.1), objective=label_loss), scalar_task(model), model.init(None, None), x, work=work
    )

    key = jax.random.fold_in(jax.random.key(0), 7)
    batches = serve(Examples(jnp.asarray(x), jnp.zeros(40, jnp.int32)), jnp.arange(40), jnp.int32(40), key, work)
    order = np.concatenate([np.asarray(batches.get(jnp.int32(k)).x) for k in range(8)])
    omega = 0.0
    for part in (order[0:5], order[5:10], order[10:12]):
        omega = 0.95 * omega + 0.05 * np.sum(part.mean(0) ** 2)
    assert out.report["w"].shape == ()
    assert float(out.report["w"]) == pytest.approx(omega, rel=1e-5)
    trained = [order[12:15], *np.split(order[15:], 5)]
    np.testing.assert_allclose(out.update["w"], 0.1 * sum(b.mean(0) for b in trained), rtol=1e-5)
    assert int(out.num_steps) == 6


def test_the_published_objective_needs_no_labels():
    """Outputs h/2 (w - a)^2 with h = 2, a = 1 at w = 0: output 1, gradient of its square 2 * 1 * (-2) = -4."""
    out = alone(elastic(optax.sgd(0.1), fraction=0.5), scalar_task(), START, [[2.0, 1.0]] * 4)
    assert float(out.report["w"]) == pytest.approx(0.05 * 16, rel=1e-6)


def test_a_client_of_one_example_trains_and_reports_zero():
    out = alone(elastic(optax.sgd(0.1)), scalar_task(toys.lin), START, [[3.0]])
    assert float(out.report["w"]) == 0 and float(out.update["w"]) == pytest.approx(0.3)


def test_each_tensor_has_a_sensitivity_and_nothing_held_is_plain_training():
    data = ragged()
    rows = data.train.indices[6][: data.train.sizes[6]]
    x, y = data.examples.x[rows], data.examples.y[rows]
    variables = SMALL_TASK.model.init(jax.random.key(0), jnp.asarray(x))
    out = alone(elastic(optax.sgd(0.1), fraction=0.4), SMALL_TASK, variables, x, y, work=Work(4))
    assert jax.tree.structure(out.report) == jax.tree.structure(variables.params)
    assert all(leaf.shape == () and leaf > 0 for leaf in jax.tree.leaves(out.report))
    nothing, plain = (
        alone(client, SMALL_TASK, variables, x, y, work=Work(4)).update
        for client in (elastic(optax.sgd(0.1), fraction=0.0), local_sgd(optax.sgd(0.1)))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), nothing, plain)


@pytest.mark.parametrize("options", [{"fraction": 1.0}, {"decay": 1.0}, {"fraction": -0.1}])
def test_arguments(options):
    with pytest.raises(ValueError, match="must be at least 0 and below 1"):
        elastic(optax.sgd(0.1), **options)
