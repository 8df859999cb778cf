"""What a weighting is given, and a task small enough to check by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_geo.objective import cross_entropy
from fedjax_geo.types import Examples, Model, Reports, RoundInfo, Task, Variables

KEY = jax.random.key(0)


def info(score=(), num_examples=None, m=None):
    """A round's vocabulary with these reports; every client has examples unless said."""
    m = m or (len(num_examples) if num_examples is not None else jax.tree.leaves(score)[0].shape[0])
    num_examples = jnp.ones(m, jnp.int32) if num_examples is None else jnp.asarray(num_examples, jnp.int32)
    return RoundInfo(
        weights=None,
        num_examples=num_examples,
        num_steps=jnp.ones(m, jnp.int32),
        losses=jnp.zeros(m),
        client_ids=jnp.arange(m),
        num_clients=m,
        reports=Reports((), score),
        server_data=None,
        round=jnp.zeros((), jnp.int32),
        key=KEY,
    )


def weigh(weighting, updates):
    """Weights of clients whose measured trees are ``updates``, stacked."""
    params = jax.tree.map(lambda leaf: leaf[0], updates)
    score = jax.vmap(lambda update: weighting.score(None, Variables(params), update, None, KEY))(updates)
    m = jax.tree.leaves(updates)[0].shape[0]
    weights, _ = weighting.weigh(info(score, m=m), weighting.init(m))
    return weights


def linear_task(noise=0.0):
    """Softmax of ``W x`` without bias; in training, inputs are disturbed by ``noise`` and statistics move."""

    def apply(variables, x, *, train, key, mask=None):
        stats = variables.stats
        if train:
            x = x + noise * jax.random.normal(key, x.shape)
            stats = jax.tree.map(lambda s: s + 1, stats)
        return x @ variables.params["W"].T, stats

    return Task(Model(None, apply), lambda x, *, train, key: x, cross_entropy)


VALIDATION = Examples(jnp.array([[1.0, 0], [0, 1], [1, 1]]), jnp.array([0, 1, 0]))


def random_examples(size, seed=0):
    rng = np.random.default_rng(seed)
    return Examples(jnp.asarray(rng.normal(size=(size, 4)), jnp.float32), jnp.asarray(rng.integers(0, 3, size)))
