"""Local training in fewer bits."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_geo.types import Array, Model, PyTree, Variables


def in_precision(model: Model, dtype: Any) -> Model:
    """The model computed in another floating-point type, such as ``jnp.bfloat16``; what is trained stays as it is.

    Parameters and inputs are rounded on the way in, logits and features come back in float32 (or wider, if the
    parameters are). Gradients, updates and everything the server makes of them, the Gram products of CRAFT above
    all, keep the type of the parameters. Statistics of batch norm are neither rounded nor gathered in fewer bits.

    Args:
      model: any model.
      dtype: floating-point type of the computation.

    Returns:
      A model with the same parameters.

    Raises:
      ValueError: if ``dtype`` is not floating point.

    >>> from fedjax_geo.models import mlp
    >>> model = in_precision(mlp(10), jnp.bfloat16)
    >>> x = jnp.ones((2, 8, 8, 1))
    >>> variables = model.init(jax.random.key(0), x)
    >>> logits, _ = model.apply(variables, x, train=False)
    >>> str(variables.params["fc1"]["kernel"].dtype), str(logits.dtype)
    ('float32', 'float32')
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype must be floating point, such as jnp.bfloat16, got {dtype}")

    def rounded(values: PyTree) -> PyTree:
        return jax.tree.map(lambda v: v.astype(dtype) if jnp.issubdtype(v.dtype, jnp.floating) else v, values)

    def wide(out: Array, variables: Variables) -> Array:
        return out.astype(jnp.result_type(jnp.float32, *jax.tree.leaves(variables.params)))

    def apply(variables: Variables, x: Array, **options: Any) -> tuple[Array, PyTree]:
        logits, stats = model.apply(variables._replace(params=rounded(variables.params)), rounded(x), **options)
        stats = jax.tree.map(lambda new, old: new.astype(old.dtype), stats, variables.stats)
        return wide(logits, variables), stats

    def features(variables: Variables, x: Array, **options: Any) -> Array:
        assert model.features is not None
        out = model.features(variables._replace(params=rounded(variables.params)), rounded(x), **options)
        return wide(out, variables)

    return Model(model.init, apply, None if model.features is None else features)
