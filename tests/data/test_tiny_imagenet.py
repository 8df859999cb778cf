"""TinyImageNet, tiny: the true layouts with fewer classes."""

import io
import shutil
import zipfile

import numpy as np
import pytest
from damage import survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, load
from fedjax_geo.data import _tiny_imagenet as tiny

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def small_tiny(monkeypatch):
    for name, value in {"_CLASSES": 3, "_TRAIN": 2, "_VALIDATION": 2}.items():
        monkeypatch.setattr(tiny, name, value)


def jpeg(seed, mode="RGB", size=64):
    file = io.BytesIO()
    flat = Image.new(mode, (size, size), seed * 20 if mode == "L" else (seed * 20, 255 - seed * 20, 100))
    flat.save(file, "JPEG", quality=95)
    return file.getvalue()


def put_tiny(root, *, by_class=False):
    ids = ["n03", "n01", "n02"]
    files = {"wnids.txt": "\n".join(ids) + "\n", "words.txt": "n01\tfish\nn02\tcat, tabby\nn99\tother\n"}
    lines, k = [], 0
    for wnid in ids:
        files[f"train/{wnid}/{wnid}_boxes.txt"] = "x"
        for i in range(2):
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(k, "L" if k == 3 else "RGB")
            k += 1
    for i, wnid in enumerate(ids * 2):
        name = f"val_{i}.JPEG"
        files[f"val/{wnid}/{name}" if by_class else f"val/images/{name}"] = jpeg(6 + i)
        lines.append(f"{name}\t{wnid}\t0\t0\t62\t62\n")
    if not by_class:
        files["val/val_annotations.txt"] = "".join(lines)
    files["test/images/test_0.JPEG"] = jpeg(0)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def zipped(root, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            archive.write(file, f"tiny-imagenet-200/{file.relative_to(root)}")


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_tiny_imagenet(tmp_path, small_tiny, by_class, packed):
    root = put_tiny(tmp_path / "here" / "tiny-imagenet-200", by_class=by_class)
    if packed:
        zipped(root, tmp_path / "packed" / "tiny-imagenet-200.zip")
        shutil.rmtree(root)
    source = load("tiny_imagenet", data_dir=tmp_path / ("packed" if packed else "here"))
    assert source.images.shape == (12, 64, 64, 3) and source.num_train == 6
    assert source.class_names == ("n03", "fish", "cat, tabby")
    reds = np.round(source.images[..., 0].mean((1, 2)) / 20).astype(int)
    shown = dict(zip(reds.tolist(), source.labels.tolist(), strict=True))
    assert [shown[k] for k in range(6)] == [1, 1, 2, 2, 0, 0] or [shown[k] for k in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [shown[6 + k] for k in range(6)] == [0, 1, 2, 0, 1, 2]


def test_wrong_tiny_imagenet(tmp_path, small_tiny):
    root = put_tiny(tmp_path / "tiny-imagenet-200")
    annotations = root / "val" / "val_annotations.txt"
    good = annotations.read_text()
    for text, reason in [
        (good.replace("n03", "n04", 1), "val_0.JPEG is of class 'n04', which is not in wnids.txt"),
        (good.replace("n03", "n01", 1), "expected 2 of each"),
        ("", "of class ''"),
    ]:
        annotations.write_text(text)
        with pytest.raises(DatasetCorrupt, match=reason):
            load("tiny_imagenet", data_dir=tmp_path)
    annotations.write_text(good)
    image = root / "train" / "n01" / "images" / "n01_0.JPEG"
    for content, reason in [
        (jpeg(0)[:-200], "cannot be read"),
        (jpeg(0, size=32), "32x32 pixels, expected 64x64"),
    ]:
        image.write_bytes(content)
        with pytest.raises(DatasetCorrupt, match=rf"n01_0\.JPEG: .*{reason}"):
            load("tiny_imagenet", data_dir=tmp_path)
    image.unlink()
    with pytest.raises(DatasetCorrupt, match="1 examples of class 1, expected 2"):
        load("tiny_imagenet", data_dir=tmp_path)
    (root / "wnids.txt").unlink()
    with pytest.raises(DatasetNotFound, match=r"wnids\.txt with train with val, or tiny-imagenet-200\.zip"):
        load("tiny_imagenet", data_dir=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_random_damage_to_tiny_imagenet(tmp_path, small_tiny, packed):
    root = put_tiny(tmp_path / "here" / "tiny-imagenet-200")
    if packed:
        zipped(root, tmp_path / "here" / "tiny-imagenet-200.zip")
        shutil.rmtree(root)
    assert survives(lambda: load("tiny_imagenet", data_dir=tmp_path / "here"), tmp_path / "here") > 100
