import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_geo.models import imagenet_resnet, load_weights, mlp, timm_vit, torchvision_resnet, vit
from fedjax_geo.models._files import read_arrays
from fedjax_geo.types import Variables

TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}


def write(path, arrays, metadata=None):
    """A safetensors file, by its definition."""
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": TYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def zeros(model, shape):
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))
    return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)


def test_every_type_is_read(tmp_path):
    arrays = {name: np.arange(6).reshape(2, 3).astype(jnp.dtype(name)) for name in TYPES}
    arrays |= {"scalar": np.float32(7).reshape(()), "empty": np.zeros((0, 3), np.float32)}
    found = read_arrays(write(tmp_path / "all.safetensors", arrays, {"format": "pt"}))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def entry(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"w": entry(data_offsets=[0, 12])}, r"w of shape \[2\]"),
        ({"w": entry(data_offsets=[4, 12])}, "at bytes"),
        ({"w": entry(data_offsets=[-8, 0])}, "at bytes"),
        ({"w": entry(shape=[3])}, "at bytes"),
        ({"w": entry(dtype="F8_E4M3")}, "type F8_E4M3"),
        ({"w": {"dtype": "F32"}}, "not a whole .safetensors"),
        ({"w": entry(shape=[-1, -2])}, "not a whole .safetensors"),
        ([], "not a JSON object"),
    ],
)
def test_broken_safetensors(tmp_path, header, message):
    text = json.dumps(header).encode()
    path = tmp_path / "broken.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match=message):
        read_arrays(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
@pytest.mark.parametrize(
    "data", [b"", b"short", (1 << 60).to_bytes(8, "little") + b"{}", bytes(8) + b"{}", b"PK\3\4"]
)
def test_no_weights_at_all(tmp_path, suffix, data):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"not a whole {suffix} file"):
        read_arrays(path)


def test_only_two_kinds_of_files(tmp_path):
    with pytest.raises(ValueError, match="converted first"):
        read_arrays(tmp_path / "weights.pth")
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "none.safetensors")


def torchvision(counts):
    """Distinct arrays under torchvision's names and shapes, written out from its layout."""
    arrays, random = {}, np.random.default_rng(0)

    def draw(name, *shape):
        arrays[name] = random.normal(size=shape).astype(np.float32)

    def norm(name, width):
        for part in ("weight", "bias", "running_mean", "running_var"):
            draw(f"{name}.{part}", width)
        arrays[f"{name}.num_batches_tracked"] = np.array(3)

    bottleneck = counts == (3, 4, 6, 3)
    draw("conv1.weight", 64, 3, 7, 7)
    norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(counts, start=1):
        width = 32 * 2**stage
        out = width * (4 if bottleneck else 1)
        for i in range(count):
            at = f"layer{stage}.{i}"
            sizes = [(1, width), (3, width), (1, out)] if bottleneck else [(3, width), (3, width)]
            fan_in = channels
            for j, (size, fan_out) in enumerate(sizes, start=1):
                draw(f"{at}.conv{j}.weight", fan_out, fan_in, size, size)
                norm(f"{at}.bn{j}", fan_out)
                fan_in = fan_out
            if i == 0 and (stage > 1 or bottleneck):
                draw(f"{at}.downsample.0.weight", out, channels, 1, 1)
                norm(f"{at}.downsample.1", out)
            channels = out
    draw("fc.weight", 1000, channels)
    draw("fc.bias", 1000)
    return arrays


@pytest.mark.parametrize(("depth", "counts"), [(18, (2, 2, 2, 2)), (50, (3, 4, 6, 3))])
def test_weights_of_torchvision(depth, counts, monkeypatch):
    variables = zeros(imagenet_resnet(7, depth), (32, 32, 3))
    arrays = torchvision(counts)
    monkeypatch.setattr("fedjax_geo.models._weights.read_arrays", lambda path: arrays)
    params, stats = load_weights(variables, "some.safetensors", torchvision_resnet())
    assert jax.tree.structure(params) == jax.tree.structure(variables.params)
    assert not any(leaf.any() for leaf in params["fc"].values())
    np.testing.assert_array_equal(params["stem"]["conv"]["kernel"], arrays["conv1.weight"].transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(params["stem"]["norm"]["scale"], arrays["bn1.weight"])
    np.testing.assert_array_equal(stats["stem"]["norm"]["var"], arrays["bn1.running_var"])
    np.testing.assert_array_equal(stats["layer4"]["1"]["norm2"]["mean"], arrays["layer4.1.bn2.running_mean"])
    block = params["layer2"]["0"]
    shortcut = arrays["layer2.0.downsample.0.weight"]
    np.testing.assert_array_equal(block["shortcut_conv"]["kernel"], shortcut.transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(block["shortcut_norm"]["bias"], arrays["layer2.0.downsample.1.bias"])
    with pytest.raises(ValueError, match=r"another shape: fc.bias \[1000\] for params/fc/bias \[7\]"):
        load_weights(variables, "some.safetensors", torchvision_resnet(head=True))
    arrays["layer5.0.conv1.weight"] = arrays.pop("layer1.0.conv1.weight")
    with pytest.raises(ValueError, match=r"not in the file: layer1\.0\.conv1.*use: layer5\.0\.conv1\.weight"):
        load_weights(variables, "some.safetensors", torchvision_resnet())


@pytest.mark.parametrize("head", [False, True])
def test_weights_of_timm(tmp_path, head):
    width, random = 4, np.random.default_rng(0)
    shapes = {"cls_token": (1, 1, width), "pos_embed": (1, 5, width)}
    shapes |= {"patch_embed.proj.weight": (width, 3, 2, 2), "patch_embed.proj.bias": (width,)}
    for i in range(2):
        dense = {"attn.qkv": (3, 1), "attn.proj": (1, 1), "mlp.fc1": (4, 1), "mlp.fc2": (1, 4)}
        for name, (out, fan_in) in dense.items():
            shapes[f"blocks.{i}.{name}.weight"] = (out * width, fan_in * width)
            shapes[f"blocks.{i}.{name}.bias"] = (out * width,)
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.{part}": (width,) for part in ("weight", "bias")}
    shapes |= {"norm.weight": (width,), "norm.bias": (width,), "head.weight": (3, width), "head.bias": (3,)}
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    variables = zeros(vit(3, width=width, depth=2, heads=2, patch=2), (4, 4, 3))
    file = write(tmp_path / "vit.safetensors", arrays)
    params, stats = load_weights(variables, file, timm_vit(head=head))
    assert stats == ()
    np.testing.assert_array_equal(params["position"], arrays["pos_embed"])
    np.testing.assert_array_equal(
        params["patch"]["kernel"], arrays["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    )
    np.testing.assert_array_equal(params["blocks"]["1"]["qkv"]["kernel"], arrays["blocks.1.attn.qkv.weight"].T)
    np.testing.assert_array_equal(params["blocks"]["0"]["norm2"]["scale"], arrays["blocks.0.norm2.weight"])
    np.testing.assert_array_equal(params["head"]["kernel"], arrays["head.weight"].T * head)


def test_ones_own_weights_under_our_names(tmp_path):
    variables = zeros(mlp(3, (4,)), (5,))
    random = np.random.default_rng(0)
    arrays = {
        jax.tree_util.keystr(path, simple=True, separator="/"): random.normal(size=leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path({"params": variables.params})
    }
    np.savez(tmp_path / "mlp.npz", **arrays)
    params = load_weights(variables, tmp_path / "mlp.npz").params
    assert params["fc1"]["kernel"].dtype == jnp.float32
    np.testing.assert_array_equal(params["fc1"]["kernel"], arrays["params/fc1/kernel"].astype(np.float32))


def test_what_does_not_fit_is_listed(tmp_path):
    variables = Variables({"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros(2)})
    extra = {f"x{i}": np.zeros(1) for i in range(7)}
    np.savez(tmp_path / "w.npz", **{"params/a": np.zeros(3), "params/b": np.zeros(2, int)}, **extra)
    with pytest.raises(ValueError) as caught:
        load_weights(variables, tmp_path / "w.npz")
    message = str(caught.value)
    for part in (
        "another shape: params/a [3] for params/a [2]",
        "not floating point: params/b int64",
        "not in the file: params/c for params/c",
        "without use: x0, x1, x2, x3, x4 and 2 more",
    ):
        assert part in message
