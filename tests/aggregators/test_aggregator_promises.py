"""What every aggregator of the registry promises, whatever its mathematics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from registry import build

from fedjax_geo import aggregators as agg
from fedjax_geo.types import Reports

M, N = 7, 11  # cohort, population

LINKS = {name: functools.partial(build, entry) for name, entry in agg.AGGREGATORS.items()} | {
    "fedfv_looking_back": lambda: agg.fedfv(tau=2, num_clients=N),
    "fedlf_looking_back": lambda: agg.fedlf(num_clients=N),
    "fedmgda_free": lambda: agg.fedmgda(1.0),
    "fedmgda_fixed": lambda: agg.fedmgda(0.0),
    "multi_krum": lambda: agg.krum(1, num_selected=3),
    "craft_spectral": lambda: agg.craft(solver=agg.spectral()),
}
# FedAvg's mean shows a client that breaks (``drop_nonfinite`` leaves it out); CRAFT leaves it out of its group
# alone, keeps the constraint of a client of weight zero, and takes weights that are all zero for equal ones.
OWN_RULE = {"weighted_mean", "craft", "craft_spectral"}
NEEDS_MANY = {"krum", "multi_krum", "trimmed_mean"}  # refuse a cohort of one

PARAMS = {
    "conv": {"kernel": jnp.zeros((2, 3, 2)), "bias": jnp.zeros(2)},
    "scale": jnp.zeros(()),
    "steps": jnp.zeros((2,), jnp.int32),
}


def draw(seed, m=M):
    """Stacked updates, and all that a round offers."""
    rng = np.random.default_rng(seed)

    def rows(p):
        values = rng.normal(size=(m, *p.shape)) + 0.3
        return jnp.asarray(10 * values if p.dtype == jnp.int32 else values, p.dtype)

    updates = jax.tree.map(rows, PARAMS)
    sensitivities = jax.tree.map(lambda p: jnp.asarray(rng.random(m), jnp.float32), PARAMS)
    return updates, {
        "weights": jnp.asarray(rng.dirichlet(np.ones(m)), jnp.float32),
        "losses": jnp.asarray(rng.uniform(0.5, 2, m), jnp.float32),
        "num_examples": jnp.asarray(rng.integers(1, 50, m), jnp.int32),
        "num_steps": jnp.asarray(rng.integers(1, 9, m), jnp.int32),
        "num_clients": N,
        "client_ids": jnp.asarray(rng.permutation(N)[:m], jnp.int32),
        "reports": Reports(client=sensitivities, score=()),
        "server_data": None,
        "round": jnp.asarray(3, jnp.int32),
        "key": jax.random.key(seed),
    }


traces = dict.fromkeys(LINKS, 0)


@functools.cache
def compiled(name):
    """``(init, jitted update)``; the only place where a link of this name is traced at the common shapes."""
    link = LINKS[name]()

    def update(updates, state, info):
        traces[name] += 1
        return link.update(updates, state, PARAMS, **info)

    return link.init, jax.jit(update)


def apply(name, updates, info, state=None):
    init, update = compiled(name)
    return update(updates, init(PARAMS) if state is None else state, info)


def close(a, b, tolerance=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance), a, b)


def types(values):
    return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), values)


def all_zero(values):
    return all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(values))


every = pytest.mark.parametrize("name", LINKS)
by_weight = pytest.mark.parametrize("name", [name for name in LINKS if name not in OWN_RULE])


@every
def test_one_trace_and_unchanged_types(name):
    init, _ = compiled(name)
    state = init(PARAMS)
    before = types(state)
    for seed in range(3):
        direction, state = apply(name, *draw(seed), state)
        assert types(direction) == types(PARAMS) and types(state) == before
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(direction))
    assert not all_zero(direction["conv"]) and all_zero(direction["steps"])
    assert traces[name] == 1


@every
def test_the_order_of_clients_is_immaterial(name):
    updates, info = draw(0)
    order = np.random.default_rng(1).permutation(M)
    shuffled = {
        k: v if k in ("key", "round", "server_data", "num_clients") else jax.tree.map(lambda x: x[order], v)
        for k, v in info.items()
    }
    first, again = (
        apply(name, u, i) for u, i in ((updates, info), (jax.tree.map(lambda x: x[order], updates), shuffled))
    )
    close(first, again, 1e-4)


@every
def test_zero_updates_give_zero(name):
    updates, info = draw(0)
    assert all_zero(apply(name, jax.tree.map(jnp.zeros_like, updates), info)[0])


@by_weight
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_client_that_is_not_finite_counts_as_one_of_weight_zero(name, bad):
    updates, info = draw(0)
    weights = info["weights"].at[2].set(0)
    absent = apply(name, updates, info | {"weights": weights / weights.sum()})
    broken = updates | {"conv": updates["conv"] | {"bias": updates["conv"]["bias"].at[2, 0].set(bad)}}
    close(apply(name, broken, info), absent)
    close(apply(name, broken, info | {"weights": weights / weights.sum()}), absent)


@by_weight
def test_nobody_leaves_a_finite_result(name):
    updates, info = draw(0)
    nobody = apply(name, updates, info | {"weights": jnp.zeros(M)})
    broken = apply(name, jax.tree.map(lambda x: x if x.dtype == jnp.int32 else x * jnp.nan, updates), info)
    for result in (nobody, broken):
        assert all_zero(result[0]) and all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(result[1]))


@every
def test_a_single_client(name):
    if name in NEEDS_MANY:
        with pytest.raises(ValueError, match="cohort of"):
            jax.eval_shape(
                functools.partial(LINKS[name]().update, params=PARAMS, state=(), **draw(0, 1)[1]), draw(0, 1)[0]
            )
        return
    updates, info = draw(0, 1)
    link = LINKS[name]()
    direction, _ = jax.jit(link.update)(updates, link.init(PARAMS), PARAMS, **info)
    inner = sum(float(jnp.sum(d * u[0])) for d, u in zip(*map(jax.tree.leaves, (direction, updates)), strict=True))
    assert np.isfinite(inner) and inner > 0


@every
def test_seeds_as_an_axis_equal_each_alone(name):
    init, update = compiled(name)
    drawn = [draw(seed) for seed in (4, 5)]
    updates, info = jax.tree.map(lambda *x: jnp.stack(x), *drawn)
    link = LINKS[name]()
    batched = jax.jit(jax.vmap(lambda u, i: link.update(u, link.init(PARAMS), PARAMS, **i)))(updates, info)
    for seed, (u, i) in enumerate(drawn):
        alone = update(u, init(PARAMS), i)
        close(jax.tree.map(lambda x, s=seed: x[s], batched), alone, 1e-4)


@every
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float64])
def test_other_precisions_keep_their_dtype(name, dtype):
    with jax.enable_x64(dtype == jnp.float64):
        updates, info = draw(0)

        def cast(values):
            return jax.tree.map(lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, values)

        updates, params, link = cast(updates), cast(PARAMS), LINKS[name]()
        state = link.init(params)
        direction, new = jax.eval_shape(lambda u, s: link.update(u, s, params, **info), updates, state)
        assert [x.dtype for x in jax.tree.leaves(direction)] == [x.dtype for x in jax.tree.leaves(params)]
        assert [x.dtype for x in jax.tree.leaves(new)] == [x.dtype for x in jax.tree.leaves(state)]


@every
def test_a_part_of_the_model(name):
    """``optax.partition`` hands a link some of the leaves; weights by leaf come for all of them."""
    updates, info = draw(0)
    info["weights"] = jax.tree.map(lambda _: info["weights"], PARAMS)
    labels = {"conv": "body", "scale": "head", "steps": "head"}
    link = optax.partition({"body": LINKS[name](), "head": agg.weighted_mean()}, labels)
    direction, _ = jax.eval_shape(lambda u: link.update(u, link.init(PARAMS), PARAMS, **info), updates)
    assert [x.shape for x in jax.tree.leaves(direction)] == [x.shape for x in jax.tree.leaves(PARAMS)]


def test_a_stacked_link_keeps_its_shapes_and_integers():
    updates, info = draw(0)
    link = agg.norm_bound(0.5)
    bounded, state = jax.jit(link.update)(updates, link.init(PARAMS), PARAMS, **info)
    assert types(bounded) == types(updates) and state == optax.EmptyState()
    assert bool(jnp.all(bounded["steps"] == updates["steps"]))
    lengths = sum(
        np.square(np.asarray(x).reshape(M, -1)).sum(1) for x in (*bounded["conv"].values(), bounded["scale"])
    )
    np.testing.assert_allclose(np.sqrt(lengths), 0.5, rtol=1e-5)
