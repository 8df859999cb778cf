"""CRAFT against directions that the authors' code recorded over five chained rounds.

The rounds hold a client without an update in a group, a group with one usable client and a group with none.
"""

import ast
import pathlib

import craft_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import layers

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
ROUNDS = 5


class Recording:
    """Arrays of one recording, and the tree of parameters that its flat vectors stand for."""

    def __init__(self, name):
        with np.load(FIXTURES / f"craft_{name}.npz") as arrays:
            self.updates = arrays["updates"]  # [rounds, m, D]
            self.weights = arrays["num_examples"] / arrays["num_examples"].sum(axis=1, keepdims=True)
            self.direction = arrays["direction"]  # [rounds, D]
            self.groups = arrays["groups"]  # [start, stop) of each
            self.shapes = [ast.literal_eval(str(shape)) for shape in arrays["shapes"]]
            self.paths = [self._path(*str(name).split(".")) for name in arrays["names"]]

    @staticmethod
    def _path(module, tensor):
        """The name that a module of this library gives to a tensor."""
        if tensor == "weight":
            tensor = "scale" if module.startswith("norm") else "kernel"
        return module, tensor

    def tree(self, flat):
        found, start = {}, 0
        for (module, tensor), shape in zip(self.paths, self.shapes, strict=True):
            stop = start + int(np.prod(shape))
            found.setdefault(module, {})[tensor] = flat[..., start:stop].reshape(flat.shape[:-1] + tuple(shape))
            start = stop
        return found

    def flat(self, tree):
        return np.concatenate([np.ravel(tree[module][tensor]) for module, tensor in self.paths])


RECORDINGS = {name: Recording(name) for name in ("well", "aligned", "wide")}


@pytest.mark.parametrize("name", RECORDINGS)
def test_modules_are_the_recorded_groups(name):
    recording = RECORDINGS[name]
    params = recording.tree(recording.direction[0])
    labels = layers.module(params)
    owners = jax.tree.map(lambda label, leaf: np.full(leaf.shape, label, dtype="<U9"), labels, params)
    owners = recording.flat(owners)
    found = [set(owners[start:stop]) for start, stop in recording.groups]
    assert found == [{"conv1"}, {"fc1"}, {"fc2"}]
    assert recording.groups[-1, 1] == owners.size


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_systems_are_well_posed(name):
    """No group has more usable clients than numbers, nor a singular value below .05 of the largest.

    So the pseudo-inverse is not in doubt anywhere, though ``wide`` has 20 clients in a group of 24 numbers: in
    float64 every group deserves 1e-9. In float32 the known error of one round is 1e-5 of the direction at a ratio
    of .0545 (and 3e-4 at .0218); five chained rounds get 5e-5.
    """
    recording = RECORDINGS[name]
    for updates in recording.updates:
        for start, stop in recording.groups:
            rows, usable = oracle.unit_rows(updates[:, start:stop])
            if usable.any():
                singular = np.linalg.svd(rows, compute_uv=False)
                assert len(singular) == usable.sum() <= stop - start
                assert singular[-1] > 0.05 * singular[0]


@pytest.mark.parametrize("solver", oracle.SOLVERS)
@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 5e-5)])
def test_directions_equal_the_recorded_ones(name, solver, dtype, tolerance):
    recording = RECORDINGS[name]
    aggregator, update = oracle.compiled(solver=solver)
    with jax.enable_x64(dtype == "float64"):
        state = aggregator.init(recording.tree(jnp.zeros(recording.direction.shape[1], dtype)))
        for round in range(ROUNDS):
            updates = recording.tree(jnp.asarray(recording.updates[round], dtype))
            step, state = update(updates, state, weights=jnp.asarray(recording.weights[round], dtype))
            found, wanted = recording.flat(step), recording.direction[round]
            assert found.dtype == dtype
            for start, stop in recording.groups:
                error = np.linalg.norm(found[start:stop] - wanted[start:stop])
                assert error <= tolerance * np.linalg.norm(wanted[start:stop])
