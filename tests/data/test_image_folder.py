"""Any images, one folder per class."""

import numpy as np
import pytest
from damage import survives

from fedjax_geo.data import DatasetCorrupt, DatasetNotFound, image_folder, load

Image = pytest.importorskip("PIL.Image")


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def put_folder(root, suffix="png", size=(5, 7)):
    for name, n in {"cat": 3, "ant": 2}.items():
        (root / name / "deeper").mkdir(parents=True)
        for i in range(n):
            pixels = noise(*size, 3, seed=i + len(name) * n)
            Image.fromarray(pixels).save(root / name / ("deeper" if i else "") / f"{i}.{suffix}")
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "cat" / "._0.png").write_text("not an image either")
    return root


def test_image_folder(tmp_path):
    root = put_folder(tmp_path / "here")
    source = load("image_folder", data_dir=root)
    assert source.images.shape == (5, 5, 7, 3) and source.class_names == ("ant", "cat")
    assert source.labels.tolist() == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal(source.images[0], noise(5, 7, 3, seed=6))
    assert image_folder(root, grey=True, size=(4, 6)).images.shape == (5, 4, 6, 1)


def test_image_folder_with_an_official_test_part(tmp_path):
    put_folder(tmp_path / "here" / "train")
    put_folder(tmp_path / "here" / "test", size=(5, 7))
    source = image_folder(tmp_path / "here")
    assert source.num_train == 5 and source.labels.tolist() == [0, 0, 1, 1, 1] * 2


def test_wrong_image_folder(tmp_path):
    with pytest.raises(DatasetNotFound, match="no usual place"):
        load("image_folder")
    with pytest.raises(DatasetNotFound, match="nowhere"):
        load("image_folder", data_dir=tmp_path / "nowhere")
    root = put_folder(tmp_path / "here")
    (root / "bee").mkdir()
    with pytest.raises(DatasetCorrupt, match="no images of class bee"):
        image_folder(root)
    Image.new("RGB", (9, 9)).save(root / "bee" / "0.jpg")
    with pytest.raises(DatasetCorrupt, match=r"0\.jpg: shape \(9, 9, 3\), but .*0\.png has \(5, 7, 3\)"):
        image_folder(root)
    (root / "bee" / "0.jpg").write_bytes(b"GIF89a")
    with pytest.raises(DatasetCorrupt, match=r"0\.jpg: cannot be read"):
        image_folder(root)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp"])
def test_random_damage_to_image_folders(tmp_path, suffix):
    root = put_folder(tmp_path / "here", suffix)
    assert survives(lambda: load("image_folder", data_dir=root), root) > 20
