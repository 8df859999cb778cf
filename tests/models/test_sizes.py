"""Published counts and layers of every model, without compiling anything."""

import jax
import jax.numpy as jnp
import pytest

from fedjax_geo import layers, models

MNIST, CIFAR, LARGE = (28, 28, 1), (32, 32, 3), (224, 224, 3)


def shapes(model, shape):
    return jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))


def count(tree):
    return sum(x.size for x in jax.tree.leaves(tree))


CASES = {
    "resnet20": (models.resnet(10), CIFAR, 269_722, 0),
    "resnet20-100": (models.resnet(100, 20), CIFAR, 275_572, 0),
    "resnet32": (models.resnet(10, 32), CIFAR, 464_154, 0),
    "resnet32-100": (models.resnet(100, 32), CIFAR, 470_004, 0),
    "resnet44": (models.resnet(10, 44), CIFAR, 658_586, 0),
    "resnet44-100": (models.resnet(100, 44), CIFAR, 664_436, 0),
    "resnet56": (models.resnet(10, 56), CIFAR, 853_018, 0),
    "resnet56-100": (models.resnet(100, 56), CIFAR, 858_868, 0),
    "resnet110": (models.resnet(10, 110), CIFAR, 1_727_962, 0),
    "resnet110-100": (models.resnet(100, 110), CIFAR, 1_733_812, 0),
    "resnet18": (models.resnet18(10), CIFAR, 11_173_962, 0),
    "resnet18-100": (models.resnet18(100), CIFAR, 11_220_132, 0),
    "resnet50": (models.resnet50(10), CIFAR, 23_520_842, 0),
    "resnet50-100": (models.resnet50(100), CIFAR, 23_705_252, 0),
    # The published 9,620 and 53,173 statistics count one number of batches for each of 20 and 53 norms.
    "imagenet18": (models.imagenet_resnet(10), CIFAR, 11_181_642, 9_620 - 20),
    "imagenet18-11": (models.imagenet_resnet(11), (28, 28, 3), 11_182_155, 9_620 - 20),
    "imagenet50-4": (models.imagenet_resnet(4, 50), LARGE, 23_516_228, 53_173 - 53),
    "imagenet50-7": (models.imagenet_resnet(7, 50), LARGE, 23_522_375, 53_173 - 53),
    "imagenet50-200": (models.imagenet_resnet(200, 50), (64, 64, 3), 23_917_832, 53_173 - 53),
    "vit_s16": (models.vit_s16(4), LARGE, 21_667_204, 0),
    "vit_b16": (models.vit_b16(7), LARGE, 85_804_039, 0),
    "fedavg_cnn": (models.fedavg_cnn(10), MNIST, 1_663_370, 0),
    "fedavg_cnn-valid": (models.fedavg_cnn(10, padded=False), MNIST, 582_026, 0),
    "lenet5": (models.lenet5(10), CIFAR, 62_050, 44),
    "lenet5-mnist": (models.lenet5(10), MNIST, 44_470, 44),
}


@pytest.mark.parametrize("name", CASES)
def test_published_counts(name):
    model, shape, params, stats = CASES[name]
    variables = shapes(model, shape)
    assert (count(variables.params), count(variables.stats)) == (params, stats)


@pytest.mark.parametrize(("depth", "equal"), [(20, 3), (56, 9), (110, 18)])
def test_layers_of_small_resnets_are_as_published(depth, equal):
    params = shapes(models.resnet(10, depth), CIFAR).params
    labels = layers.module(params)
    found = layers.widths(params, labels)
    assert len(found) == depth
    n = 2 * equal
    wanted = [464] + [2336] * n + [4672] + [9280] * (n - 1) + [18560] + [36992] * (n - 1) + [650]
    assert sorted(found.values()) == sorted(wanted)
    assert labels["layer2"]["0"]["norm2"] == {"scale": "layer2/0/conv2", "bias": "layer2/0/conv2"}
    assert found["stem/conv"] == 464
    assert layers.names(layers.block(params)) == ["fc", "layer1", "layer2", "layer3", "stem"]


@pytest.mark.parametrize(("model", "modules"), [(models.resnet18(10), 21), (models.resnet50(10), 54)])
def test_a_shortcut_is_a_layer_with_its_norm(model, modules):
    params = shapes(model, CIFAR).params
    labels = layers.module(params)
    assert len(layers.names(labels)) == modules
    assert labels["layer2"]["0"]["shortcut_norm"]["scale"] == "layer2/0/shortcut_conv"


def tensors(params, labels):
    """Number of leaves of each group."""
    every = jax.tree.leaves(labels)
    return {name: every.count(name) for name in layers.names(labels)}


def test_blocks_of_fedvg_in_a_resnet():
    params = shapes(models.imagenet_resnet(10), CIFAR).params
    assert tensors(params, layers.block(params)) == {
        "stem": 3,
        "layer1": 12,
        "layer2": 15,
        "layer3": 15,
        "layer4": 15,
        "fc": 2,
    }
    assert len(jax.tree.leaves(shapes(models.imagenet_resnet(10, 50), CIFAR).params)) == 161


def test_blocks_of_fedvg_in_a_vision_transformer():
    params = shapes(models.vit_s16(4), LARGE).params
    wanted = {"base": 6, "classifier": 2, **{f"blocks/{i}": 12 for i in range(12)}}
    assert tensors(params, models.vit_blocks(params)) == wanted


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.resnet(0), "num_classes"),
        (lambda: models.resnet(10, 18), "depth must be 6 k"),
        (lambda: models.resnet(10, 2), "depth must be 6 k"),
        (lambda: models.resnet18(-1), "num_classes"),
        (lambda: models.resnet50(1.5), "num_classes"),
        (lambda: models.imagenet_resnet(10, 34), r"depth must be one of \[18, 50\]"),
        (lambda: models.lenet5(0), "num_classes"),
        (lambda: models.fedavg_cnn(0), "num_classes"),
        (lambda: models.vit_s16(0), "num_classes"),
        (lambda: models.vit(10, width=10, heads=3), "heads must divide width"),
        (lambda: models.vit(10, width=12, heads=3, patch=0), "patch"),
        (lambda: models.group_norm(0), "num_groups"),
        (lambda: models.batch_norm(1.0), "momentum"),
        (lambda: shapes(models.resnet(10), (64,)), r"needs images \[h, w, c\]"),
        (lambda: shapes(models.resnet18(10), (64,)), r"needs images \[h, w, c\]"),
        (lambda: shapes(models.lenet5(10), (15, 16, 1)), "at least 16 x 16"),
        (lambda: shapes(models.fedavg_cnn(10), (3, 4, 1)), "at least 4 x 4"),
        (lambda: shapes(models.fedavg_cnn(10, padded=False), (15, 16, 1)), "at least 16 x 16"),
        (lambda: shapes(models.vit_s16(4), CIFAR[:1]), r"needs images \[h, w, c\]"),
        (lambda: shapes(models.vit_s16(4), (32, 40, 3)), "divide into patches"),
        (lambda: shapes(models.resnet(10, norm=models.group_norm(3)), CIFAR), "does not divide"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
