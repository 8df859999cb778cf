import jax
import jax.numpy as jnp
import pytest

from fedjax_geo import layers, models


def conv(size, fan_in, fan_out):
    return {"kernel": jnp.zeros((size, size, fan_in, fan_out))}


def norm(width):
    return {"scale": jnp.zeros(width), "bias": jnp.zeros(width)}


def dense(fan_in, fan_out):
    return {"kernel": jnp.zeros((fan_in, fan_out)), "bias": jnp.zeros(fan_out)}


def resnet20():
    params = {"stem": {"conv": conv(3, 3, 16), "norm": norm(16)}, "fc": dense(64, 10)}
    fan_in = 16
    for stage, width in enumerate((16, 32, 64), start=1):
        blocks = params[f"layer{stage}"] = {}
        for i in range(3):
            blocks[str(i)] = {
                "conv1": conv(3, fan_in, width),
                "norm1": norm(width),
                "conv2": conv(3, width, width),
                "norm2": norm(width),
            }
            fan_in = width
    return params


def test_resnet20_has_twenty_layers_as_published():
    params = resnet20()
    labels = layers.module(params)
    found = layers.widths(params, labels)
    assert sum(found.values()) == 269_722
    wanted = [464] + [2336] * 6 + [4672] + [9280] * 5 + [18560] + [36992] * 5 + [650]
    assert sorted(found.values()) == sorted(wanted)
    assert labels["layer2"]["0"]["norm2"] == {"scale": "layer2/0/conv2", "bias": "layer2/0/conv2"}


def test_blocks_of_resnet20():
    params = resnet20()
    found = layers.widths(params, layers.block(params))
    assert list(found) == ["fc", "layer1", "layer2", "layer3", "stem"]
    assert sum(found.values()) == 269_722
    assert found["stem"] == 464


@pytest.mark.parametrize(
    ("model", "shape", "wanted"),
    [
        (models.mlp(62), (28, 28, 1), {"fc1": 157_000, "fc2": 40_200, "fc3": 12_462}),
        (
            models.cnn(10),
            (32, 32, 3),
            {"conv1": 4864, "conv2": 102_464, "fc1": 614_784, "fc2": 73_920, "fc3": 1930},
        ),
        (
            models.cnn(62),
            (28, 28, 1),
            {"conv1": 1664, "conv2": 102_464, "fc1": 393_600, "fc2": 73_920, "fc3": 11_966},
        ),
    ],
)
def test_published_widths(model, shape, wanted):
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape))).params
    assert layers.widths(params, layers.module(params)) == wanted
    assert layers.widths(params, layers.block(params)) == wanted


@pytest.mark.parametrize(
    ("norm_name", "conv_name", "joins"),
    [
        ("norm1", "conv1", True),
        ("bn1", "conv1", True),
        ("gn", "conv", True),
        ("GroupNorm_0", "Conv_0", True),
        ("LayerNorm_12", "Conv_12", True),
        ("BatchNorm_0", "Conv_1", False),
        ("shortcut_norm", "shortcut_conv", True),
        ("shortcut_norm", "conv", False),
        ("norm2", "conv1", False),
    ],
)
def test_a_norm_joins_the_convolution_of_its_name(norm_name, conv_name, joins):
    labels = layers.module({"stage": {norm_name: norm(4), conv_name: conv(3, 4, 4)}})
    owner = conv_name if joins else norm_name
    assert labels["stage"][norm_name] == {"scale": f"stage/{owner}", "bias": f"stage/{owner}"}


def test_a_norm_joins_convolutions_only_and_only_beside_it():
    params = {"norm1": norm(4), "linear1": dense(4, 4), "fc": dense(4, 4), "inner": {"conv1": conv(1, 4, 4)}}
    assert layers.names(layers.module(params)) == ["fc", "inner/conv1", "linear1", "norm1"]


def test_a_bare_scale_is_not_a_norm_of_the_model():
    params = {"scale": jnp.zeros(()), "conv": conv(3, 1, 4)}
    assert layers.module(params)["scale"] != layers.module(params)["conv"]["kernel"]


def test_leaves_that_belong_to_no_module_are_alone():
    params = {"token": jnp.zeros(4), "patch": {"kernel": jnp.zeros((4, 4)), "position": jnp.zeros(4)}}
    assert layers.module(params) == {
        "token": "token",
        "patch": {"kernel": "patch", "position": "patch/position"},
    }


@pytest.mark.parametrize("grouping", [layers.leaf, layers.module, layers.block, layers.model])
@pytest.mark.parametrize(
    "params", [jnp.zeros((3, 2)), [(jnp.zeros((3, 2)), jnp.zeros(2))], dense(3, 2), {}, resnet20()]
)
def test_any_tree_gets_labels_that_cover_it(grouping, params):
    labels = grouping(params)
    assert jax.tree.structure(labels) == jax.tree.structure(params)
    assert all(layers.names(labels))
    total = sum(x.size for x in jax.tree.leaves(params))
    assert sum(layers.widths(params, labels).values()) == total


def test_leaf_labels_are_distinct():
    params = resnet20()
    assert len(layers.names(layers.leaf(params))) == len(jax.tree.leaves(params))


def test_labels_are_static_under_jit():
    @jax.jit
    def total(params):
        labels = layers.module(params)
        labels = jax.tree.leaves(labels)
        return sum(x.sum() for x, name in zip(jax.tree.leaves(params), labels, strict=True) if name == "fc")

    assert total({"fc": norm(3), "head": norm(3)}) == 0
