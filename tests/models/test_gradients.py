"""Every large model forward and backward once, on few and small images."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_geo import models
from fedjax_geo.types import Variables

CASES = {
    "resnet20": (models.resnet(10), (8, 8, 3)),
    "resnet56": (models.resnet(10, 56), (8, 8, 3)),
    "resnet110": (models.resnet(10, 110), (8, 8, 3)),
    "resnet18": (models.resnet18(10), (8, 8, 3)),
    "resnet50": (models.resnet50(10), (8, 8, 3)),
    "imagenet18": (models.imagenet_resnet(10), (32, 32, 3)),
    "imagenet50": (models.imagenet_resnet(10, 50), (32, 32, 3)),
    "vit_s16": (models.vit_s16(4), (32, 32, 3)),
    "vit_b16": (models.vit_b16(4), (32, 32, 3)),
    "lenet5": (models.lenet5(10), (16, 16, 1)),
    "fedavg_cnn": (models.fedavg_cnn(10), (8, 8, 1)),
}


def loss_of(model, x, y):
    def loss(params, stats):
        logits, stats = model.apply(Variables(params, stats), x, train=True, mask=jnp.ones(len(x), bool))
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), stats

    return loss


def examples(count, shape, num_classes):
    random = np.random.default_rng(0)
    return random.normal(size=(count, *shape)).astype(np.float32), random.integers(num_classes, size=count)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_every_parameter(name):
    model, shape = CASES[name]
    x, y = examples(2, shape, 4)
    variables = model.init(jax.random.key(0), x)
    (value, stats), gradient = jax.jit(jax.value_and_grad(loss_of(model, x, y), has_aux=True))(*variables)
    assert jnp.isfinite(value)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert jnp.isfinite(leaf).all(), jax.tree_util.keystr(path)
        assert leaf.any(), jax.tree_util.keystr(path)
    assert jax.tree.structure(stats) == jax.tree.structure(variables.stats)


@pytest.mark.slow
def test_resnet20_starts_with_a_loss_of_the_published_size():
    """About 5.5 is reported after the first round on CIFAR-10."""
    model = models.resnet(10)
    x, y = examples(20, (32, 32, 3), 10)
    variables = model.init(jax.random.key(0), x)
    value, _ = jax.jit(loss_of(model, x, y))(*variables)
    assert 3 < value < 12
