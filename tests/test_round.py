"""A round does what its formula says: weighting, local work, participation, state."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys

from fedjax_geo import tree
from fedjax_geo.aggregators import craft, weighted_mean
from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd, local_steps
from fedjax_geo.models import mlp
from fedjax_geo.objective import cross_entropy, masked_mean, training_loss
from fedjax_geo.round import cohort_size, make_round
from fedjax_geo.types import ClientAlgorithm, ClientOutput, Method, Task, Weighting
from fedjax_geo.weightings import fedvg, uniform


def w(state):
    return float(state.variables.params["w"])


def lin_clients(*gradients, sizes=None):
    sizes = [1] * len(gradients) if sizes is None else sizes
    return toys.federation([np.full((n, 1), g) for g, n in zip(gradients, sizes, strict=True)])


# --- weighting -----------------------------------------------------------------------------------------------


def test_weights_count_examples_not_batches():
    data = lin_clients(1.0, -1.0, sizes=[33, 32])
    state, _ = toys.run(toys.averaging(), toys.lin, data, work=Work(batch_size=40))
    assert w(state) == pytest.approx(-0.1 * (33 - 32) / 65, abs=1e-7)


def test_uniform_weights_ignore_sizes():
    data = lin_clients(1.0, -1.0, sizes=[30, 10])
    state, _ = toys.run(toys.averaging(weighting=uniform()), toys.lin, data, work=Work(batch_size=40))
    assert w(state) == pytest.approx(0.0, abs=1e-7)


def test_local_steps_are_epochs_times_batches_with_the_last_one_kept():
    data = lin_clients(1.0, sizes=[33])
    state, _ = toys.run(toys.averaging(), toys.lin, data, work=Work(batch_size=10, epochs=3))
    assert w(state) == pytest.approx(-0.1 * 3 * 4, rel=1e-6)
    state, _ = toys.run(toys.averaging(), toys.lin, data, work=Work(batch_size=10, epochs=None, steps=7))
    assert w(state) == pytest.approx(-0.7, rel=1e-6)


def test_a_client_smaller_than_a_batch_trains_on_its_examples():
    data = toys.federation([np.array([[1.0], [2.0], [6.0]])])
    state, _ = toys.run(toys.averaging(), toys.lin, data, work=Work(batch_size=10))
    assert w(state) == pytest.approx(-0.1 * 3.0, rel=1e-6)  # the true mean of three


def test_an_empty_client_counts_nothing():
    data = toys.federation([np.zeros((0, 1)), np.full((5, 1), 1.0)])
    state, _ = toys.run(toys.averaging(), toys.lin, data)
    assert w(state) == pytest.approx(-0.1, rel=1e-6)
    state, _ = toys.run(toys.averaging(weighting=uniform()), toys.lin, data)
    assert w(state) == pytest.approx(-0.1, rel=1e-6)


def test_a_cohort_that_counts_nothing_changes_nothing_and_says_so():
    nobody = Weighting(lambda info, state: (jnp.zeros_like(info.losses), state))
    data = lin_clients(1.0, 2.0)
    method = toys.averaging(None, nobody, optax.sgd(1.0, momentum=0.9))
    state, history = toys.run(method, toys.lin, data, rounds=2)
    assert w(state) == 0.0 and int(state.round) == 2
    assert all(m["skipped"] for m in history)
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(state.server))


def test_a_masked_batch_has_loss_zero_and_gradient_zero():
    value, gradient = jax.value_and_grad(lambda v: masked_mean(v, jnp.zeros(3, bool)))(jnp.ones(3))
    assert value == 0 and np.all(np.asarray(gradient) == 0)


# --- the compiled cohort equals a plain loop -----------------------------------------------------------------


@pytest.fixture(scope="module")
def ragged():
    return toys.ragged()


SMALL = mlp(3, hidden=(5,))


def plain_loop(optimizer, data, model, key, state, work):
    """Every client by itself in Python, from the round's own keys and batches."""
    from fedjax_geo.batches import serve

    task = Task(model, data.prepare, cross_entropy)
    round_key = jax.random.fold_in(jax.random.fold_in(key, 1), state.round)
    _, clients_key, _ = jax.random.split(round_key, 3)
    ends = []
    for i in range(data.num_clients):
        shuffle_key, train_key, _ = jax.random.split(jax.random.fold_in(clients_key, i), 3)
        batches = serve(data.examples, data.train.indices[i], data.train.sizes[i], shuffle_key, work)
        params, opt_state = state.variables.params, optimizer.init(state.variables.params)
        for k in range(int(batches.num_steps)):
            batch = batches.get(k)
            rows = np.flatnonzero(np.asarray(batch.mask))

            def loss(params, batch=batch, rows=rows, k=k):
                logits, _ = model.apply(
                    state.variables._replace(params=params),
                    batch.x[rows],
                    train=True,
                    key=jax.random.fold_in(train_key, k),
                    mask=jnp.ones(len(rows), bool),
                )
                return jnp.mean(task.example_loss(logits, batch.y[rows]))

            gradient = jax.grad(loss)(params)
            change, opt_state = optimizer.update(gradient, opt_state, params)
            params = optax.apply_updates(params, change)
        ends.append(params)
    return ends


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1, momentum=0.9), optax.adamw(0.01)], ids=["momentum", "adamw"])
def test_every_client_equals_a_plain_python_loop(ragged, optimizer):
    """Padding changes neither parameters, moments nor step counts, whatever the optimizer."""
    work = Work(batch_size=8, epochs=2)
    keep_all = optax.GradientTransformationExtraArgs(
        lambda params: jax.tree.map(lambda p: jnp.zeros((8, *p.shape)), params),
        lambda updates, state, params=None, **_: (tree.zeros_like(params), updates),
    )
    method = Method(local_sgd(optimizer), uniform(), keep_all)
    task = Task(SMALL, ragged.prepare, cross_entropy)
    data = jax.tree.map(jnp.asarray, ragged)
    process = make_round(method, task, cohort=8, work=work)
    key = jax.random.key(3)
    start = process.init(key, data)
    end, _ = jax.jit(process.step)(start, key, data)
    expected = plain_loop(optimizer, data, SMALL, key, start, work)
    order = np.argsort(-np.asarray(2 * -(-ragged.train.sizes // 8)), kind="stable")
    for slot, client in enumerate(order):
        ours = tree.subtract(start.variables.params, tree.take(end.server, slot))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected[client]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


# --- randomness ----------------------------------------------------------------------------------------------


def test_clients_with_equal_data_draw_different_dropout():
    def noisy(w, x):
        return x[:, 0] * w

    model = toys.scalar_model(noisy)
    dropped = model._replace(
        apply=lambda v, x, *, train, key, mask: (
            (v.params["w"] * jax.random.bernoulli(key, 0.5, (x.shape[0],)) * x[:, 0])[:, None],
            v.stats,
        )
    )
    collect = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros(6), lambda u, s, p=None, **_: (tree.zeros_like(p), u["w"])
    )
    data = lin_clients(*[1.0] * 6, sizes=[20] * 6)
    state, _ = toys.run(Method(local_sgd(optax.sgd(0.1)), uniform(), collect), dropped, data)
    assert len(np.unique(np.asarray(state.server))) > 3


def test_the_seed_reaches_model_cohort_and_shuffles(ragged):
    def trace(seed):
        seen = optax.GradientTransformationExtraArgs(
            lambda params: jnp.zeros(3, jnp.int32),
            lambda u, s, p=None, *, client_ids, **_: (tree.zeros_like(p), client_ids),
        )
        method = Method(local_sgd(optax.sgd(0.1)), uniform(), seen)
        state, _ = toys.run(method, SMALL, ragged, cohort=3, seed=seed, example_loss=cross_entropy)
        return np.asarray(state.server), jax.device_get(state.variables.params)

    (ids0, p0), (ids0_again, p0_again), (ids1, p1) = trace(0), trace(0), trace(1)
    np.testing.assert_array_equal(ids0, ids0_again)
    jax.tree.map(np.testing.assert_array_equal, p0, p0_again)
    assert not np.array_equal(np.sort(ids0), np.sort(ids1)) or not np.array_equal(ids0, ids1)
    assert not np.array_equal(p0["fc1"]["kernel"], p1["fc1"]["kernel"])


def test_the_global_numpy_generator_is_neither_read_nor_written(ragged):
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    state, _ = toys.run(toys.averaging(), SMALL, ragged, example_loss=cross_entropy)
    np.testing.assert_array_equal(before, np.random.get_state()[1])
    np.random.seed(77)
    again, _ = toys.run(toys.averaging(), SMALL, ragged, example_loss=cross_entropy)
    jax.tree.map(np.testing.assert_array_equal, state.variables.params, again.variables.params)


def test_learning_rate_follows_rounds_not_clients():
    client = local_sgd(lambda round: optax.sgd(0.5**round))
    data = lin_clients(*[1.0] * 10)
    rates = []
    state, _ = toys.run(toys.averaging(client), toys.lin, data, rounds=0)
    for rounds in (1, 2, 3):
        previous = w(state)
        state, _ = toys.run(toys.averaging(client), toys.lin, data, rounds=rounds)
        rates.append(previous - w(state))
    assert rates == pytest.approx([1.0, 0.5, 0.25], rel=1e-6)


# --- participation -------------------------------------------------------------------------------------------


def test_fractions_round_up_and_never_to_nobody():
    assert [cohort_size(100, f) for f in (0.29, 0.07, 0.005, 1.0)] == [29, 7, 1, 100]
    assert cohort_size(25, 0.1) == 3
    with pytest.raises(ValueError, match="fraction must be above 0"):
        cohort_size(10, 0.0)


def test_every_cohort_is_drawn_without_replacement_and_all_clients_come_up():
    seen = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros(4, jnp.int32),
        lambda u, s, p=None, *, client_ids, **_: (tree.zeros_like(p), client_ids),
    )
    method = Method(local_sgd(optax.sgd(0.1)), uniform(), seen)
    data = lin_clients(*[1.0] * 10)
    process = make_round(method, Task(toys.lin, data.prepare, toys.loss_is_output), cohort=4)
    data, key = jax.tree.map(jnp.asarray, data), jax.random.key(0)
    step, state = jax.jit(process.step), process.init(key, data)
    counts = np.zeros(10)
    for _ in range(50):
        state, _ = step(state, key, data)
        ids = np.asarray(state.server)
        assert len(set(ids)) == 4
        counts[ids] += 1
    assert counts.min() > 8 and counts.max() < 33  # 20 expected, std 3.5


# --- the slots of a method -----------------------------------------------------------------------------------


def counting_client():
    """State: rounds trained, per client. Shared: their mean over the population, kept incrementally."""

    def train(task, variables, shared, state, batches, *, round, key):
        result = local_steps(training_loss(task), variables, batches, optax.sgd(0.1), key=key)
        return ClientOutput(result.update, result.stats, state + 1.0, report={"shared": shared})

    def share(shared, before, after, n):
        return shared + jnp.sum(after - before) / n

    return ClientAlgorithm(
        train, lambda variables: jnp.zeros(()), lambda params: jnp.zeros(()), share, lambda v, s: v
    )


def test_client_state_follows_the_client_and_the_shared_mean_follows_the_states():
    data = lin_clients(*[1.0] * 10)
    process = make_round(
        toys.averaging(counting_client()), Task(toys.lin, data.prepare, toys.loss_is_output), cohort=2
    )
    data, key = jax.tree.map(jnp.asarray, data), jax.random.key(0)
    state, step = process.init(key, data), jax.jit(process.step)
    for t in range(1, 8):
        before = np.asarray(state.clients)
        state, _ = step(state, key, data)
        after = np.asarray(state.clients)
        assert (after - before).sum() == 2 and ((after == before).sum() == 8)
        assert float(state.shared) == pytest.approx(2 * t / 10)
    assert step._cache_size() == 1


def test_an_empty_client_keeps_its_state():
    data = toys.federation([np.zeros((0, 1)), np.full((5, 1), 1.0)])
    state, _ = toys.run(toys.averaging(counting_client()), toys.lin, data)
    assert np.asarray(state.clients).tolist() == [0.0, 1.0]


def test_a_stateful_weighting_reads_losses_and_keeps_one_number_per_client():
    """Weights proportional to the sum of the losses that each client has shown so far."""

    def weigh(info, state):
        state = state.at[info.client_ids].add(info.losses)
        return state[info.client_ids], state

    weighting = Weighting(weigh, init=lambda n: jnp.zeros(n))
    # loss (w - a)^2 / 2 at w = 0: 0.5 and 2, gradient -a: -1 and -2
    data = toys.federation([np.array([[1.0, 1.0]]), np.array([[1.0, 2.0]])])
    state, _ = toys.run(toys.averaging(weighting=weighting), toys.quad, data)
    assert np.asarray(state.weighting).tolist() == pytest.approx([0.5, 2.0])
    assert w(state) == pytest.approx(0.1 * (0.5 * 1 + 2 * 2) / 2.5, rel=1e-6)


def test_reports_reach_the_server():
    """A client reports the size of its update; a server link divides by it (normalised averaging)."""

    def train(task, variables, shared, state, batches, *, round, key):
        result = local_steps(training_loss(task), variables, batches, optax.sgd(0.1), key=key)
        return ClientOutput(result.update, result.stats, state, report=tree.norm(result.update))

    normalise = optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(),
        lambda u, s, p=None, *, reports, **_: (jax.tree.map(lambda x: x / reports.client, u), s),
    )
    method = Method(ClientAlgorithm(train), uniform(), optax.chain(normalise, weighted_mean(), optax.sgd(1.0)))
    state, _ = toys.run(method, toys.lin, lin_clients(1.0, 5.0, -2.0))
    assert w(state) == pytest.approx(-1 / 3, rel=1e-6)


def test_every_part_of_the_vocabulary_is_offered(ragged):
    from fedjax_geo.types import RoundInfo

    offered = {}

    def update(updates, state, params=None, **info):
        offered.update(info)
        return tree.zeros_like(params), state

    look = optax.GradientTransformationExtraArgs(lambda params: (), update)
    toys.run(Method(local_sgd(optax.sgd(0.1)), fedvg(), look), SMALL, ragged, cohort=5, example_loss=cross_entropy)
    assert set(offered) == set(RoundInfo._fields)
    for name in ("weights", "num_examples", "num_steps", "losses", "client_ids"):
        assert offered[name].shape == (5,), name


def test_losses_are_those_of_the_server_model_over_all_examples(ragged):
    collect = optax.GradientTransformationExtraArgs(
        lambda params: (jnp.zeros(8), jnp.zeros(8, jnp.int32)),
        lambda u, s, p=None, *, losses, client_ids, **_: (tree.zeros_like(p), (losses, client_ids)),
    )
    method = Method(local_sgd(optax.sgd(0.1)), uniform(), collect)
    state, _ = toys.run(method, SMALL, ragged, example_loss=cross_entropy, work=Work(batch_size=4))
    losses, ids = map(np.asarray, state.server)
    for loss, i in zip(losses, ids, strict=True):
        rows = ragged.train.indices[i][: ragged.train.sizes[i]]
        if len(rows) == 0:
            assert loss == 0
            continue
        logits, _ = SMALL.apply(
            state.variables,
            jnp.asarray(ragged.examples.x[rows]),
            train=False,
            key=jax.random.key(0),
            mask=jnp.ones(len(rows), bool),
        )
        assert loss == pytest.approx(float(cross_entropy(logits, ragged.examples.y[rows]).mean()), rel=1e-5)


# --- the server step -----------------------------------------------------------------------------------------


def test_the_server_step_keeps_shapes():
    collapsed = optax.GradientTransformationExtraArgs(
        lambda params: (), lambda u, s, p=None, **_: (jax.tree.map(lambda x: x.mean(), u), s)
    )
    data = toys.ragged()
    with pytest.raises(ValueError, match="exactly one aggregator"):
        toys.run(Method(local_sgd(optax.sgd(0.1)), uniform(), collapsed), SMALL, data, example_loss=cross_entropy)
    with pytest.raises(ValueError, match="exactly one aggregator"):
        toys.run(
            Method(local_sgd(optax.sgd(0.1)), uniform(), optax.sgd(1.0)), SMALL, data, example_loss=cross_entropy
        )


def test_integer_params_are_refused_by_name():
    model = toys.lin._replace(
        init=lambda key, x: toys.Variables({"w": jnp.zeros(()), "steps": jnp.zeros((), jnp.int32)})
    )
    with pytest.raises(ValueError, match="steps is int32"):
        toys.run(toys.averaging(), model, lin_clients(1.0))


def test_statistics_are_averaged_and_counters_take_the_maximum():
    """Two clients with variance 1 and 3: the server has 2, whatever the server optimizer does to parameters."""

    def apply(variables, x, *, train, key, mask):
        stats = variables.stats
        if train:
            stats = {"var": x[0, 1], "batches": stats["batches"] + x[0, 2].astype(jnp.int32)}
        return (x[:, 0] * variables.params["w"])[:, None], stats

    model = toys.Model(
        lambda key, x: toys.Variables(
            {"w": jnp.zeros(())}, {"var": jnp.ones(()), "batches": jnp.zeros((), jnp.int32)}
        ),
        apply,
    )
    data = toys.federation([np.array([[1.0, 1.0, 2.0]]), np.array([[1.0, 3.0, 5.0]])])
    state, _ = toys.run(toys.averaging(None, None, optax.adam(0.1)), model, data)
    assert float(state.variables.stats["var"]) == 2.0
    assert int(state.variables.stats["batches"]) == 5


def test_the_fedprox_gradient_can_be_written_as_an_adjustment():
    """QUAD(1, 1), two steps of 0.1, mu = 1: 0.18, where FedAvg has 0.19."""

    def client(mu):
        def train(task, variables, shared, state, batches, *, round, key):
            def pull(gradient, update):
                return jax.tree.map(lambda g, u: g - mu * u, gradient, update)

            out = local_steps(training_loss(task), variables, batches, optax.sgd(0.1), key=key, adjust=pull)
            return ClientOutput(out.update, out.stats, state)

        return ClientAlgorithm(train)

    data = toys.federation([np.array([[1.0, 1.0]])])
    work = Work(epochs=2)
    near, _ = toys.run(toys.averaging(client(1.0)), toys.quad, data, work=work)
    free, _ = toys.run(toys.averaging(client(0.0)), toys.quad, data, work=work)
    plain, _ = toys.run(toys.averaging(), toys.quad, data, work=work)
    assert w(near) == pytest.approx(0.18, rel=1e-6)
    assert w(free) == w(plain) == pytest.approx(0.19, rel=1e-6)


# --- checks --------------------------------------------------------------------------------------------------


def test_errors_come_before_compilation_and_say_what_to_do(ragged):
    task = Task(SMALL, ragged.prepare, cross_entropy)
    with pytest.raises(ValueError, match="population of 8 clients, got 9"):
        make_round(toys.averaging(), task, cohort=9).init(jax.random.key(0), ragged)
    import dataclasses

    bare = dataclasses.replace(ragged, validation=None)
    with pytest.raises(ValueError, match="validation set"):
        make_round(toys.averaging(weighting=fedvg()), task, cohort=2).init(jax.random.key(0), bare)
    with pytest.raises(ValueError, match="check its learning rate"):
        local_sgd(optax.sgd(float("nan")))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        make_round(toys.averaging(), task, cohort=2, work=Work(batch_size=0))
    with pytest.raises(ValueError, match="either epochs or steps"):
        make_round(toys.averaging(), task, cohort=2, work=Work(steps=3))


def test_one_trace_for_many_rounds(ragged):
    method = Method(local_sgd(optax.sgd(0.1)), fedvg(), optax.chain(craft(), optax.adam(0.1)))
    process = make_round(method, Task(SMALL, ragged.prepare, cross_entropy), cohort=4)
    data, key = jax.tree.map(jnp.asarray, ragged), jax.random.key(0)
    state, step = jax.jit(process.init)(key, data), jax.jit(process.step)
    for _ in range(4):
        state, _ = step(state, key, data)
    assert step._cache_size() == 1
