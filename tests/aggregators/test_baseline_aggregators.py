"""The mathematics of the baseline aggregators: worked examples, limits, and NumPy in float64."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toys
from scipy.optimize import minimize, nnls
from scipy.stats import trim_mean

from fedjax_geo import aggregators as agg
from fedjax_geo import layers
from fedjax_geo.aggregators._fedfv import _first_kept
from fedjax_geo.aggregators._fedlf import _scale
from fedjax_geo.batches import Work
from fedjax_geo.clients import local_sgd
from fedjax_geo.types import Method, Reports
from fedjax_geo.weightings import by_examples, uniform


def info(m, **given):
    """Everything a round offers, by keyword."""
    dtype = jnp.zeros(()).dtype
    offered = {
        "weights": np.full(m, 1 / m),
        "losses": np.arange(1.0, m + 1),
        "num_examples": np.full(m, 10),
        "num_steps": np.full(m, 5),
        "client_ids": np.arange(m),
        "reports": Reports(client=(), score=()),
        "server_data": None,
        "round": 0,
        "key": jax.random.key(0),
    }
    offered |= given

    def as_jax(x):
        if isinstance(x, jax.Array):
            return x
        x = np.asarray(x)
        return jnp.asarray(x, dtype if x.dtype.kind == "f" else jnp.int32)

    def is_vector(x):
        return isinstance(x, list)

    return {name: jax.tree.map(as_jax, value, is_leaf=is_vector) for name, value in offered.items()}


@functools.cache
def jitted(link):
    return jax.jit(link.update)


# One link for equal arguments, so that what is compiled for it is shared.
config, feddyn_server, fedfv, fedlf, fedmgda, fednova, krum, qfedavg = map(
    functools.cache,
    (agg.config, agg.feddyn_server, agg.fedfv, agg.fedlf, agg.fedmgda, agg.fednova, agg.krum, agg.qfedavg),
)


def apply(link, updates, state=None, **given):
    """One update, jitted -> (direction, state), in the precision in force."""
    updates = jax.tree.map(lambda u: jnp.asarray(u, jnp.zeros(()).dtype), updates)
    m = jax.tree.leaves(updates)[0].shape[0]
    params = jax.tree.map(lambda u: jnp.zeros(u.shape[1:], u.dtype), updates)
    state = link.init(params) if state is None else state
    return jitted(link)(updates, state, params, **info(m, **given))


def check(link, updates, expected, *, rtol=1e-5, **given):
    """The direction in both precisions; ``expected`` given to about nine digits."""
    for x64, tolerance in ((True, 1e-9), (False, rtol)):
        with jax.enable_x64(x64):
            direction, _ = apply(link, updates, **given)
            direction = jax.tree.map(np.asarray, direction)
        jax.tree.map(
            lambda d, e, t=tolerance: np.testing.assert_allclose(d, e, atol=t, rtol=t), direction, expected
        )


A = np.array([[2.0, 0, 0], [-1, 1, 0]])
CONFLICT3 = np.array([[1.0, 0], [-1, 1], [0, -2]])
C6 = np.array([[1.0, 2, 2, 0], [-2, 1, 0, 2], [0, -3, 4, 0]])


# FedNova


def test_fednova_example():
    g = np.array([[0.2, 0.4], [1.0, -0.5]])
    given = {"weights": [0.25, 0.75], "num_steps": [2, 5]}
    check(fednova(), g, [0.74375, -0.10625], **given)
    check(agg.weighted_mean(), g, [0.8, -0.275], **given)


@pytest.mark.parametrize("kind", [agg.plain_steps, agg.momentum_steps(0.9), agg.proximal_steps(0.1, 1.0)])
def test_fednova_of_equal_work_is_the_weighted_mean(kind):
    g = np.random.default_rng(0).normal(size=(4, 3))
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    check(fednova(kind), g, weights @ g, weights=weights, num_steps=[7] * 4)


def test_fednova_accumulated_weights_follow_their_recursions():
    steps = np.array([1.0, 2, 3, 10, 50])
    momentum, proximal = [], []
    for count in steps.astype(int):
        velocity = total = a = 0.0
        for _ in range(count):
            velocity = 0.8 * velocity + 1
            total += velocity
            a = (1 - 0.05) * a + 1
        momentum.append(total)
        proximal.append(a)
    with jax.enable_x64(True):
        np.testing.assert_allclose(agg.momentum_steps(0.8)(jnp.asarray(steps)), momentum, rtol=1e-12)
        np.testing.assert_allclose(agg.proximal_steps(0.1, 0.5)(jnp.asarray(steps)), proximal, rtol=1e-12)
    np.testing.assert_allclose(agg.proximal_steps(0.1, 1e-6)(jnp.asarray(steps)), steps, rtol=1e-4)


def test_fednova_through_a_round_undoes_unequal_work():
    """LIN(1) with 1 step and LIN(-1) with 10, equal weights: the objective is flat, FedAvg drifts to 0.45."""
    data = toys.federation([[[1.0]], [[-1.0]] * 10])
    finals = []
    for aggregator in (agg.fednova(), agg.weighted_mean()):
        method = Method(local_sgd(optax.sgd(0.1)), uniform(), optax.chain(aggregator, optax.sgd(1.0)))
        state, _ = toys.run(method, toys.lin, data, work=Work(batch_size=1))
        finals.append(float(state.variables.params["w"]))
    np.testing.assert_allclose(finals, [0.0, 0.45], atol=1e-6)


# q-FedAvg


@pytest.mark.parametrize(
    ("q", "expected"),
    [(1, [0.028571429, 0.114285714]), (0.1, [0.047546394, 0.101917926]), (0, [0.05, 0.1])],
)
def test_qfedavg_example(q, expected):
    g = np.array([[0.1, 0], [0, 0.2]])
    check(qfedavg(q, lr=0.1), g, expected, losses=[1.0, 2.0], weights=[0.1, 0.9])
    check(qfedavg(q, lr=lambda round: 0.4 * 0.5**round), g, expected, losses=[1.0, 2.0], round=2)


def test_qfedavg_survives_losses_of_zero():
    direction, _ = apply(qfedavg(0.1, lr=0.1), np.eye(2), losses=[0.0, 0.0])
    assert np.all(np.isfinite(direction))


# FedFV


def fedfv_oracle(g, losses, alpha, stored=()):
    """Algorithm 1-3 as written; ``stored`` lists the updates of each age, oldest first."""
    m = len(g)
    order = np.argsort(losses)
    keep = set(order[int(np.ceil((m - 1) * (1 - alpha))) :]) if alpha > 0 else set()
    projected = g.copy()
    for i in set(range(m)) - keep:
        for j in order:
            if j != i and g[j] @ projected[i] < 0:
                projected[i] -= g[j] @ projected[i] / (g[j] @ g[j]) * g[j]
    mean = projected.mean(0)
    for rows in stored:
        opposed = [row for row in rows if row @ mean < 0]
        if opposed:
            s = np.sum(opposed, 0)
            mean = mean - mean @ s / (s @ s) * s
    return mean / np.linalg.norm(mean) * np.linalg.norm(g.mean(0))


@pytest.mark.parametrize(
    ("g", "losses", "alpha", "expected"),
    [
        (CONFLICT3, [0.5, 1, 2], 0.1, [0.080845208, -0.323380833]),
        (CONFLICT3, [0.5, 1, 2], 0.0, [-0.149071198, -0.298142397]),
        (A, [1.0, 2], 0.0, [0.316227766, 0.632455532, 0]),
    ],
)
def test_fedfv_examples(g, losses, alpha, expected):
    for link in (fedfv(alpha), fedfv(alpha, tau=0)):
        check(link, g, expected, losses=losses, round=0)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("m", [1, 4, 11])
def test_fedfv_against_numpy(alpha, m):
    rng = np.random.default_rng(m)
    g, losses = rng.normal(size=(m, 5)), rng.permutation(m) + 0.5
    check(fedfv(alpha), g, fedfv_oracle(g, losses, alpha), losses=losses, round=0, rtol=1e-4)
    check(fedfv(alpha), g, fedfv_oracle(g, losses, alpha, [g]), losses=losses, round=1, rtol=1e-4)


def test_fedfv_keeps_the_share_of_clients_with_the_largest_losses():
    kept = [
        m - _first_kept(m, alpha) for m, alpha in [(3, 0.1), (10, 0.1), (11, 0.1), (100, 0.1), (9, 0.0), (1, 0.1)]
    ]
    assert kept == [1, 1, 2, 10, 0, 1]


def test_fedfv_looks_back_at_clients_of_past_rounds():
    rng = np.random.default_rng(0)
    link = fedfv(0.1, tau=3, num_clients=5)
    seen, state = {}, None
    with jax.enable_x64(True):
        for t, ids in enumerate([[0, 1], [2, 3], [1, 4], [0, 2], [3, 1]]):
            g, losses = rng.normal(size=(2, 4)), rng.random(2)
            seen |= {i: (t, row) for i, row in zip(ids, g, strict=True)}
            ages = [[row for when, row in seen.values() if when == t - age] for age in (2, 1, 0)] if t >= 3 else []
            direction, state = apply(link, g, state, losses=losses, client_ids=ids, round=t)
            np.testing.assert_allclose(direction, fedfv_oracle(g, losses, 0.1, ages), rtol=1e-9)
    assert state.seen.tolist() == [3, 4, 3, 4, 2]


def test_fedfv_of_updates_that_cancel_is_zero():
    check(fedfv(0.0), np.array([[1.0, 3, 0], [-1, -3, 0]]), [0.0, 0, 0])
    check(fedfv(0.0), np.array([[2.0, 6, 0], [-1, -3, 0]]), [0.0, 0, 0])


# FedMGDA+


@pytest.mark.parametrize(
    ("weights", "eps", "expected"),
    [
        ([0.5, 0.5], 0.1, [0.2, 0.4]),
        ([0.2, 0.8], 0.1, [-0.12, 0.56]),
        ([0.2, 0.8], 1.0, [0.2, 0.4]),
        ([0.2, 0.8], 0.0, [-0.28, 0.64]),
    ],
)
def test_fedmgda_examples(weights, eps, expected):
    check(fedmgda(eps), np.array([[2.0, 0], [-3, 4]]), expected, weights=weights)


def test_fedmgda_without_a_box_descends_for_everybody():
    rng = np.random.default_rng(0)
    for m, d in [(5, 20), (30, 40)]:
        g = rng.normal(size=(m, d)) * rng.uniform(0.1, 10, (m, 1))
        with jax.enable_x64(True):
            direction = np.asarray(apply(fedmgda(1.0), g, weights=rng.dirichlet(np.ones(m)))[0])
        dots = g @ direction / np.linalg.norm(g, axis=1)
        assert np.all(dots >= direction @ direction - 1e-12) and direction @ direction > 0.01


# FedLF


@pytest.mark.parametrize(
    ("g", "losses", "grouping", "expected"),
    [
        (
            {"a": np.array([[2.0, 0], [-1, 1]]), "b": np.array([[1.0, 0], [0, 2]])},
            [1.0, 2],
            layers.leaf,
            {"a": [0.089944962, 0.700248645], "b": [0.257031991, 1.088804985]},
        ),
        (A, [1.0, 3], layers.model, [0.066538978, 0.70396915, 0]),
    ],
)
def test_fedlf_examples(g, losses, grouping, expected):
    check(fedlf(layers=grouping), g, expected, losses=losses)


def fedlf_oracle(g, losses, history=()):
    """One layer, the quadratic program by non-negative least squares."""
    p, length = np.full(len(g), len(g) ** -0.5), np.linalg.norm(losses)
    h = ((losses @ p) * losses / length - p * length) / length**2
    mu = np.linalg.norm(g, axis=1).mean()
    rows = g / np.linalg.norm(g, axis=1, keepdims=True)
    rows = np.vstack([rows, h @ rows, *history])
    rows *= mu / np.linalg.norm(rows, axis=1, keepdims=True)
    y, _ = nnls(np.vstack([rows.T, np.ones(len(rows))]), np.append(np.zeros(g.shape[1]), 1.0))
    d = rows.T @ (y / y.sum())
    short = d
    d = d / np.linalg.norm(d) * np.linalg.norm(g.mean(0))
    while np.max(-(g @ d)) > 1e-6:
        if np.linalg.norm(d) <= 2 * np.linalg.norm(short):
            return short
        d = d / 2
    return d


def test_fedlf_against_numpy_with_history():
    rng = np.random.default_rng(1)
    link = fedlf(num_clients=6)
    seen, state = {}, None
    with jax.enable_x64(True):
        for t, ids in enumerate([[0, 1], [2, 3], [0, 4], [5, 1], [3, 4], [0, 1]]):
            g, losses = rng.normal(size=(2, 12)) + 0.5, rng.uniform(0.5, 2, 2)
            limit = len(seen) // 2
            old = [row for i, (when, row) in seen.items() if t - when <= limit and i not in ids]
            direction, state = apply(link, g, state, losses=losses, client_ids=ids, round=t)
            np.testing.assert_allclose(direction, fedlf_oracle(g, losses, old), rtol=1e-6)
            seen |= {i: (t, row) for i, row in zip(ids, g, strict=True)}


@pytest.mark.parametrize("losses", [[0.3, 0.3], [0.0, 0.0]])
def test_fedlf_of_equal_losses_has_no_fairness_row(losses):
    check(fedlf(), np.eye(2), [0.5, 0.5], losses=losses)


def test_fedlf_of_a_single_client_is_its_update():
    check(fedlf(), np.array([[3.0, 4]]), [3.0, 4])


def test_fedlf_leaves_a_layer_alone_that_nobody_moves():
    g = {"a": np.eye(2), "b": np.zeros((2, 2))}
    check(fedlf(), g, {"a": [0.5, 0.5], "b": [0.0, 0]}, losses=[0.3, 0.3])


def test_fedlf_shortens_a_step_that_opposes_a_client():
    with jax.enable_x64(True):
        found = [float(_scale(*map(jnp.asarray, (1.0, 8.0, worst, 1e-9)))) for worst in (0.1, -1.0, -2e-7, -1e-7)]
    assert found == [8, 1, 4, 8]


# ConFIG


def config_oracle(g):
    unit = g / np.linalg.norm(g, axis=1, keepdims=True)
    u = np.linalg.pinv(unit) @ np.ones(len(g))
    u /= np.linalg.norm(u)
    return (g @ u).sum() * u


@pytest.mark.parametrize(
    ("g", "expected"),
    [
        (A, [0.5, 1.207106781, 0]),
        (C6, [-1.833333333, 1.01372549, 5.047058824, 2.803921569]),
        (np.vstack([A, np.zeros(3)]), [0.5, 1.207106781, 0]),
        (np.array([[3.0, 4]]), [3.0, 4]),
    ],
)
def test_config_examples(g, expected):
    check(config(), g, expected)


def test_config_has_the_direction_of_craft_and_groups_layers():
    rng = np.random.default_rng(0)
    g = {"a": rng.normal(size=(3, 2, 4)), "b": rng.normal(size=(3, 5))}
    flat = {name: rows.reshape(3, -1) for name, rows in g.items()}
    whole = config_oracle(np.hstack([flat["a"], flat["b"]]))
    check(config(), g, {"a": whole[:8].reshape(2, 4), "b": whole[8:]})
    each = {name: config_oracle(rows).reshape(g[name].shape[1:]) for name, rows in flat.items()}
    check(config(layers=layers.leaf), g, each)
    with jax.enable_x64(True):
        crafted, _ = apply(agg.craft(layers=layers.model, reference=agg.no_reference), g)
        crafted = np.concatenate([np.ravel(crafted["a"]), crafted["b"]])
    np.testing.assert_allclose(crafted / np.linalg.norm(crafted), whole / np.linalg.norm(whole), rtol=1e-9)


# FedDyn and elastic aggregation


def test_feddyn_server_example():
    g = np.array([[0.4, -0.2], [0.2, 0.4]])
    check(feddyn_server(0.1), g, [0.45, 0.15], num_clients=4)
    check(
        feddyn_server(0.1),
        g,
        [0.9 * 0.4 + 0.1 * 0.2 + 0.15, -0.18 + 0.04 + 0.05],
        weights=[0.9, 0.1],
        num_clients=4,
    )
    with jax.enable_x64(True):
        link = feddyn_server(0.1)
        _, state = apply(link, g, num_clients=4)
        np.testing.assert_allclose(state.correction, [0.015, 0.005])
        direction, state = apply(link, g, state, num_clients=4)  # h doubles
        np.testing.assert_allclose(direction, [0.6, 0.2])
        still, kept = apply(link, g * np.nan, state, num_clients=4)
    np.testing.assert_allclose(still, 0)
    np.testing.assert_allclose(kept.correction, state.correction)


def test_elastic_example():
    g = {"a": np.array([[1.0], [-1]]), "b": np.array([[2.0], [2]])}
    report = Reports(client={"a": np.array([4.0, 2]), "b": np.array([1.0, 1])}, score=())
    given = {"weights": [0.25, 0.75], "reports": report}
    check(agg.elastic(), g, {"a": [-0.4375], "b": [1.0]}, **given)
    nobody = Reports(client={"a": np.zeros(2), "b": np.array([1.0, 1])}, score=())
    check(agg.elastic(), g, {"a": [-0.5], "b": [1.0]}, **(given | {"reports": nobody}))


def test_elastic_names_a_missing_sensitivity():
    with pytest.raises(ValueError, match=r"sensitivity per tensor.*'b'"):
        apply(agg.elastic(), {"a": np.ones((2, 1)), "b": np.ones((2, 1))}, reports=Reports({"a": np.ones(2)}, ()))


# The robust family


@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_coordinate_median_is_the_median(m):
    g = np.random.default_rng(m).normal(size=(m, 2, 3))
    check(agg.coordinate_median(), g, np.median(g, axis=0))


def test_trimmed_mean_drops_both_ends():
    g = np.random.default_rng(0).normal(size=(10, 3))
    for fraction in (0.1, 0.25, 0.29, 0.49):
        check(agg.trimmed_mean(fraction), g, trim_mean(g, fraction, axis=0))
    holed = np.where(np.arange(10)[:, None] < 3, np.nan, g)  # as many values go, the NaNs beforehand
    check(agg.trimmed_mean(0.25), holed, np.sort(g[3:], axis=0)[2:-2].mean(0))


def test_trimmed_mean_that_trims_nobody_is_refused():
    with pytest.raises(ValueError, match="trims nobody in a cohort of 4"):
        apply(agg.trimmed_mean(0.2), np.ones((4, 2)))
    apply(agg.trimmed_mean(0.25), np.ones((4, 2)))


def test_geometric_median_minimises_the_sum_of_distances():
    rng = np.random.default_rng(0)
    g, weights = rng.normal(size=(9, 3)), rng.dirichlet(np.ones(9))
    best = minimize(
        lambda v: weights @ np.linalg.norm(g - v, axis=1),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-12, "fatol": 1e-14, "maxiter": 4000},
    ).x
    with jax.enable_x64(True):
        exact = apply(agg.geometric_median(iterations=300), g, weights=weights)[0]
        np.testing.assert_allclose(exact, best, atol=1e-7)
        np.testing.assert_allclose(apply(agg.geometric_median(), g, weights=weights)[0], best, atol=0.02)
    line = np.array([[0.0], [0], [0], [1e6]])
    assert abs(float(apply(agg.geometric_median(), line)[0][0])) < 1e-6  # nu / 3


def krum_oracle(g, f, k):
    m = len(g)
    squares = ((g[:, None] - g[None]) ** 2).sum(-1)
    scores = [np.sort(np.delete(squares[i], i))[: m - f - 2].sum() for i in range(m)]
    return g[np.argsort(scores)[:k]].mean(0)


@pytest.mark.parametrize(("m", "f", "k"), [(5, 1, 1), (9, 2, 1), (9, 2, 4), (12, 4, 8)])
def test_krum_against_numpy(m, f, k):
    g = 100 + np.random.default_rng(m).normal(size=(m, 6))
    g[:f] += 50
    check(krum(f, num_selected=k), g, krum_oracle(g, f, k))


def test_krum_preconditions():
    for m, f, k in [(3, 1, 1), (6, 2, 1), (5, 1, 5)]:
        with pytest.raises(ValueError, match="needs a cohort of at least"):
            apply(krum(f, num_selected=k), np.ones((m, 2)))
    apply(krum(1, num_selected=4), np.ones((5, 2)))


def test_krum_breaks_ties_by_client_id():
    g, ids = np.array([[0.0], [1], [10]]), np.array([7, 3, 5])  # the two closest tie
    for order in itertools.permutations(range(3)):
        order = list(order)
        check(krum(0), g[order], [1.0], client_ids=ids[order])


@pytest.mark.parametrize("hostile", [1e4, 1e18, 3e38, np.inf, np.nan])
@pytest.mark.parametrize(
    "link",
    [
        agg.coordinate_median(),
        agg.trimmed_mean(0.3),
        agg.geometric_median(),
        krum(2),
        krum(2, num_selected=4),
    ],
)
def test_hostile_clients_do_not_win(link, hostile):
    g = np.random.default_rng(0).normal(size=(8, 4))
    g[[1, 5]] = hostile
    direction, _ = apply(link, g)
    assert np.all(np.isfinite(direction)) and np.linalg.norm(direction) < 3


def test_norm_bound_keeps_directions_and_short_updates():
    link = agg.norm_bound(1.0)
    g = {"a": np.array([[3.0], [0.3], [np.nan], [3e38], [0]]), "b": np.array([[4.0], [0.4], [1], [0], [0]])}
    bounded, _ = apply(link, g)
    np.testing.assert_allclose(bounded["a"][:, 0], [0.6, 0.3, 0, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(bounded["b"][:, 0], [0.8, 0.4, 0, 0, 0], rtol=1e-6)
    assert bounded["a"][1] == np.float32(0.3)


# Arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agg.qfedavg(-1, lr=0.1), "q must"),
        (lambda: agg.qfedavg(lr=0), "lr must"),
        (lambda: agg.fedfv(1.0), "alpha must"),
        (lambda: agg.fedfv(tau=2), "num_clients"),
        (lambda: agg.fedfv(tau=-1), "tau must"),
        (lambda: agg.fedmgda(-0.1), "eps must"),
        (lambda: agg.fedlf(tau=3), "num_clients"),
        (lambda: agg.momentum_steps(1.0), "momentum must"),
        (lambda: agg.proximal_steps(0.1, 10.0), r"lr \* mu must"),
        (lambda: agg.feddyn_server(0.0), "alpha must"),
        (lambda: agg.elastic(-0.1), "tau must"),
        (lambda: agg.trimmed_mean(0.5), "fraction must"),
        (lambda: agg.trimmed_mean(0.0), "fraction must"),
        (lambda: agg.geometric_median(iterations=0), "iterations must"),
        (lambda: agg.geometric_median(nu=0), "nu must"),
        (lambda: agg.krum(-1), "num_byzantine must"),
        (lambda: agg.krum(1, num_selected=0), "num_selected must"),
        (lambda: agg.norm_bound(float("nan")), "max_norm must"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("link", [agg.krum(1), agg.fedfv(tau=2, num_clients=8)], ids=["krum", "looking back"])
def test_they_compose_in_a_round(link):
    """Eight clients on one parameter, whose weights, losses and ids come from the round."""
    data = toys.federation([[[1.0, float(i + 1)]] * i for i in range(8)])
    server = optax.chain(agg.norm_bound(5.0), link, optax.sgd(0.5))
    state, history = toys.run(Method(local_sgd(optax.sgd(0.1)), by_examples(), server), toys.quad, data, rounds=2)
    assert float(state.variables.params["w"]) > 0.01 and not history[-1]["skipped"]
