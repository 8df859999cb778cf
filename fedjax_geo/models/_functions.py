"""Adapter from two bare functions to ``Model``."""

from collections.abc import Callable

from fedjax_geo.models._calls import floating
from fedjax_geo.types import Array, Key, Model, PyTree, Variables


def from_functions(init: Callable[[Key, Array], PyTree], apply: Callable[[PyTree, Array], Array]) -> Model:
    """Makes a model of two functions, for models without statistics and without randomness.

    Args:
      init: ``(key, x [b, ...]) -> params``.
      apply: ``(params, x [b, ...]) -> logits [b, c]``.

    Returns:
      A model.

    Raises:
      ValueError: in use, if a parameter is not floating point.

    >>> import jax
    >>> model = from_functions(lambda key, x: jax.numpy.zeros((x.shape[1], 10)), lambda w, x: x @ w)
    >>> model.init(jax.random.key(0), jax.numpy.ones((1, 4))).params.shape
    (4, 10)
    """

    def init_variables(key: Key, x: Array) -> Variables:
        return Variables(floating(init(key, x)))

    def apply_variables(
        variables: Variables, x: Array, *, train: bool, key: Key | None = None, mask: Array | None = None
    ) -> tuple[Array, PyTree]:
        del train, key, mask
        return apply(variables.params, x), variables.stats

    return Model(init_variables, apply_variables)
