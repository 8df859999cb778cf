"""Stragglers and clients that never answer."""

import jax
import numpy as np
import optax
import pytest
import toys
from client_runs import CLASSIFY, SMALL, averaged, by_size, plain, process, ragged, remember, rounds, same, w

from fedjax_geo.aggregators import weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import ditto, dropout, local_sgd, scaffold, straggler
from fedjax_geo.types import Method
from fedjax_geo.weightings import uniform

SGD = optax.sgd(0.1)


def lin(*gradients, size=1):
    return toys.federation([np.full((size, 1), g) for g in gradients])


def listening(client, count, *names):
    """Uniform averaging whose server remembers entries of the round's vocabulary."""
    return Method(client, uniform(), optax.chain(remember(count, *names), weighted_mean(), optax.sgd(1.0)))


def test_all_late_by_a_fixed_share():
    """K = 10, share 0.3: three steps."""
    client = straggler(local_sgd(SGD), 1.0, fraction=0.3)
    state, _ = rounds(1, averaged(client), toys.lin, lin(1.0, 1.0), work=Work(1, 10))
    assert w(state) == pytest.approx(-0.3, rel=1e-6)


def test_one_step_is_done_even_so():
    """E = 1 and a single batch: a straggler does its only step."""
    client = straggler(local_sgd(SGD), 0.5, fraction=0.1)
    state, _ = rounds(1, averaged(client), toys.lin, lin(*[1.0] * 6))
    assert w(state) == pytest.approx(-0.1, rel=1e-6)


def test_the_server_is_told_the_true_steps():
    client = straggler(local_sgd(SGD), 0.5, fraction=jax.random.uniform)
    data = toys.federation([np.ones((20, 1))] * 63 + [np.zeros((0, 1))])
    method = listening(client, 64, "num_steps")
    state, step, key, data = process(method, toys.lin, data, work=Work(1, 1))
    seen = []
    for _ in range(3):
        state, _ = step(state, key, data)
        seen.append(np.asarray(state.server[0][0]))
    assert step._cache_size() == 1
    counts = np.stack(seen)
    assert np.all(counts[:, -1] == 0) and np.all(counts[:, :-1] >= 1)
    late = counts[:, :-1] < 20
    assert 0.35 < late.mean() < 0.62  # half, less the late ones that round up to all
    assert not np.array_equal(late[0], late[1])  # anew each round
    assert 5 < counts[:, :-1][late].mean() < 14  # uniform shares


def test_control_variates_divide_by_the_steps_that_were_taken():
    client = straggler(scaffold(0.125), 1.0, fraction=0.3)
    state, _ = rounds(1, averaged(client), toys.lin, lin(3.0, -2.0, size=10), work=Work(1, 1))
    assert np.asarray(state.clients["w"]).tolist() == [3.0, -2.0]


def test_nobody_answers():
    client = dropout(scaffold(0.1), 1.0)
    method = averaged(client, optax.adam(0.1))
    state, history = rounds(2, method, toys.lin, lin(1.0, 2.0))
    assert w(state) == 0 and int(state.round) == 2
    assert all(m["skipped"] and m["examples"] == 0 for m in history)
    assert not np.any(state.clients["w"]) and float(state.shared["w"]) == 0


def test_who_does_not_answer_does_not_count():
    """All answers agree, so the mean is theirs whoever they are; the others' entries are zero."""
    client = dropout(scaffold(0.125), 0.5)
    method = listening(client, 16, "num_examples", "num_steps", "losses", "weights")
    data = toys.federation([np.array([[1.0, 1.0]])] * 16)
    state, history = rounds(1, method, toys.quad, data)
    own = np.asarray(state.clients["w"])
    answered = own != 0
    assert 3 < answered.sum() < 13 and np.all(own[answered] == -1)
    assert w(state) == 0.125 and history[0]["examples"] == answered.sum()
    assert float(state.shared["w"]) == -answered.sum() / 16
    sizes, steps, losses, weights = np.asarray(state.server[0])
    assert np.all(sizes == answered) and np.all(steps == answered) and np.all(losses == 0.5 * answered)
    np.testing.assert_allclose(weights, answered / answered.sum(), rtol=1e-6)


def test_others_are_bit_identical_without_the_mishap():
    """A wrapper that spares everybody is not there."""
    client = straggler(dropout(local_sgd(SGD), 0.0), 0.0)
    state, _ = rounds(2, by_size(client), SMALL, ragged(), **CLASSIFY)
    same(state.variables, plain()[2].variables)


def test_wrappers_compose_and_keep_states():
    """A personal model is kept as it was by a client that does not answer."""
    client = dropout(straggler(ditto(scaffold(0.1), SGD), 0.5), 0.9)
    state, step, key, data = process(averaged(client), toys.lin, lin(*[1.0] * 12), work=Work(1, 4))
    first, _ = step(state, key, data)
    kept = ~np.asarray(first.clients.personal.trained)
    assert 6 < kept.sum() <= 12
    assert np.all(np.asarray(first.clients.personal.model.params["w"])[kept] == 0)
    step(first, key, data)
    assert step._cache_size() == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dropout(local_sgd(SGD), 1.5), "probability must be at least 0 and at most 1, got 1.5"),
        (lambda: straggler(local_sgd(SGD), -0.1), "probability must be"),
        (lambda: straggler(local_sgd(SGD), 0.5, fraction=0.0), "fraction must be"),
        (lambda: straggler(local_sgd(SGD), 0.5, fraction=2.0), "fraction must be"),
    ],
)
def test_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
