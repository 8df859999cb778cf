import fedvg_setup as setup
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo import layers
from fedjax_geo.weightings import client_update, fedvg, graph_average, moving_average

ROWS = {"l0": [0.9, 0.1], "l1": [0.5, 0.5], "l2": [0.3, 0.7], "l3": [0.2, 0.8]}


def rows(weights):
    return {name: jnp.array(row) for name, row in weights.items()}


def first(smoothed):
    """Every row sums to one; its first component."""
    for row in smoothed.values():
        np.testing.assert_allclose(jnp.sum(row), 1, rtol=1e-6)
    return [float(row[0]) for row in smoothed.values()]


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        (1, [0.9, 0.5, 0.3, 0.2]),
        (3, [0.766667, 0.566667, 0.333333, 0.233333]),
        (5, [0.70, 0.56, 0.42, 0.28]),
    ],
)
def test_moving_average_repeats_the_rows_at_the_edges(window, wanted):
    np.testing.assert_allclose(first(moving_average(window)(rows(ROWS))), wanted, atol=1e-6)


@pytest.mark.parametrize("window", [0, 2, -3, 2.5])
def test_windows_without_a_middle_are_an_error(window):
    with pytest.raises(ValueError, match="window must be"):
        moving_average(window)


def test_graph_average_takes_own_row_and_those_of_neighbours():
    smoothed = graph_average({"l0": ["l1", "l3"], "l2": ["l0"]})(rows(ROWS))
    wanted = [(0.9 + 0.5 + 0.2) / 3, 0.5, (0.3 + 0.9) / 2, 0.2]
    np.testing.assert_allclose(first(smoothed), wanted, atol=1e-6)


def test_a_neighbour_without_weights_changes_nothing_after_renormalisation():
    smoothed = graph_average({"l0": ["bn/mean", "l1"]})(rows(ROWS))
    np.testing.assert_allclose(first(smoothed), [0.7, 0.5, 0.3, 0.2], atol=1e-6)


def test_rows_of_zeros_stay_finite():
    smoothed = moving_average()({name: jnp.zeros(2) for name in ROWS})
    for row in smoothed.values():
        np.testing.assert_array_equal(row, [0, 0])


def test_fedvg_smooths_weights_that_differ_by_leaf():
    """Norms whose inverses have the rows above for shares."""
    updates = {name: 1 / jnp.array(row) for name, row in ROWS.items()}
    options = {"measure": client_update(), "layers": layers.leaf}
    smoothed = setup.weigh(fedvg(smoothing=moving_average(5), **options), updates)
    np.testing.assert_allclose(first(smoothed), [0.70, 0.56, 0.42, 0.28], atol=1e-6)


def test_one_weight_per_client_has_nothing_to_smooth():
    updates = {name: 1 / jnp.array(row) for name, row in ROWS.items()}
    with pytest.raises(ValueError, match="give layers"):
        setup.weigh(fedvg(measure=client_update(), smoothing=moving_average()), updates)
