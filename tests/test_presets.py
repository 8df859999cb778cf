"""Experiments by name: their settings, the published numbers beside them, and running and comparing them."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import compare, datasets, presets, run
from experiments.presets import PRESETS
from experiments.settings import MODELS, Config, build_model
from fedjax_geo import data, methods
from fedjax_geo.data import DatasetNotFound, Source
from fedjax_geo.simulate import Evaluation, Result

SMALL = [
    *("--data", "digits_forms", "--images", "stored", "--inputs", "stored", "--model", "mlp"),
    *("--clients", "20", "--cohort", "2", "--min-examples", "5"),
]


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDJAX_GEO_CACHE", str(tmp_path / "cache"))
    for name in ("FEDJAX_GEO_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fit_together(name):
    preset = PRESETS[name]
    config = preset.config
    assert config.preset == name and config.model in MODELS and config.images in datasets.IMAGES
    assert config.inputs in datasets.INPUTS and config.partition in datasets.PARTITIONS
    assert config.data in {*data.SOURCES, *datasets.SOURCES}
    assert config.surrogate is None or config.surrogate in datasets.SURROGATES
    for method in {config.method, *preset.own, *(p.method for p in preset.published)}:
        methods.find(method)(**preset.hyperparameters(method))
    settings = {f.name for f in dataclasses.fields(Config)}
    assert set(preset.ours) <= settings | {"lr", "server_lr"}
    assert all(0 < p.mean < 1 for p in preset.published)
    assert bool(preset.published) == (not name.startswith("geo/"))
    assert not preset.changed(config)
    if name.startswith("fedvg/") and config.surrogate is None:
        for alpha in (100.0, 10.0, 1.0, 0.1, 0.05):
            assert preset.numbers("fedvg", dataclasses.replace(config, alpha=alpha))


def test_published_numbers():
    """Some of them, typed again from the papers' figures and logs."""
    craft = PRESETS["craft/cifar10-resnet20"]
    demo = {p.round: (p.mean, p.std) for p in craft.numbers("craft", craft.config) if p.where == "demo log"}
    assert demo[100] == (0.564, 0.215) and demo[500] == (0.806, 0.164)
    [config] = craft.numbers("config", craft.config)
    assert (config.mean, config.round, config.error) == (0.525, 500, 0.002)
    [hidden] = PRESETS["craft/femnist-mlp"].numbers("fedavgm", craft.config)
    assert (hidden.mean, hidden.error) == (0.654, 0.01)
    organ = PRESETS["fedvg/organamnist-resnet18"]
    at = lambda method, alpha: organ.numbers(method, dataclasses.replace(organ.config, alpha=alpha))[0]  # noqa: E731
    assert at("fedvg", 0.05)[1:6] == (0.8759, "figure, digitised", 0.0005, None, 0.019)
    assert at("fedvg_blockwise", 0.05)[1:6] == (0.87, "coarser figure, digitised", 0.002, None, 0.015)
    assert at("fedavg", 100.0).error is None and at("fedvg_scaffold", 1.0).mean == pytest.approx(0.988)


def test_settings_come_from_the_preset_and_from_the_command_line():
    config, _, hyperparameters = run.parse(["--preset", "craft/cifar100-resnet20"])
    assert hyperparameters == {"lr": 0.05, "server_lr": 1.0, "decay": 0.999}
    assert (config.clients, config.cohort, config.rounds, config.batch_size, config.epochs) == (
        1000,
        100,
        501,
        20,
        1,
    )
    config, _, hyperparameters = run.parse(
        ["--preset=fedvg/cifar10-resnet18", "--method", "fedprox", "--alpha", "0.05", "--mu", "0.1"]
    )
    assert hyperparameters == {"lr": 0.01, "server_lr": 1.0, "decay": 1.0, "mu": 0.1} and config.alpha == 0.05
    assert (config.clients, config.cohort, config.rounds, config.batch_size, config.epochs) == (
        100,
        10,
        200,
        32,
        5,
    )
    assert not PRESETS["fedvg/cifar10-resnet18"].changed(config)
    with pytest.raises(ValueError, match="unknown preset 'craft/cifar10', did you mean 'craft/cifar10-cnn'"):
        run.parse(["--preset", "craft/cifar10"])
    with pytest.raises(ValueError, match="unknown option --mu; method 'craft' takes lr"):
        run.parse(["--preset", "craft/cifar10-cnn", "--mu", "1"])


@pytest.mark.parametrize("option", ["model", "partition", "inputs", "images"])
def test_unknown_choices_name_the_known_ones(option):
    config = Config(**{option: "nosuch"})
    with pytest.raises(ValueError, match=f"unknown {option} 'nosuch'. Known: "):
        build_model(config, 10) if option == "model" else datasets.load(config)


def test_missing_data_is_said_not_made_up(tmp_path, capsys):
    with pytest.raises(DatasetNotFound, match=r"cifar-10-binary\.tar\.gz .* put it"):
        run.main(["--preset", "craft/cifar10-resnet20", "--data-dir", str(tmp_path)])
    run.main(["--presets", "--data-dir", str(tmp_path)])
    listed = capsys.readouterr().out
    assert listed.count("(not on this machine)") == len(PRESETS) and all(
        f"  {name} " in listed for name in PRESETS
    )
    assert "(here)" in presets.describe() or "fashion_mnist (not on this machine)" in presets.describe()


def test_a_run_stands_beside_the_published_numbers(tmp_path, capsys):
    run.main(
        ["--preset", "craft/cifar10-resnet20", *SMALL, "--rounds", "51", "--lr", "0.1", "--out", str(tmp_path)]
    )
    printed = capsys.readouterr().out
    [demo] = [line for line in printed.splitlines() if "0.333" in line]
    cells = [cell.strip() for cell in demo.strip("│").split("│")]
    assert cells[0] == "51" and cells[4] == "0.228" and cells[-1] == "demo log" and 0 < float(cells[1]) <= 1
    assert "another experiment than the preset: data=digits_forms (preset: cifar10)" in printed
    assert "lr=0.1 (preset: 0.005)" in printed
    assert list(tmp_path.glob("digits_forms-craft-*/evaluations.jsonl"))


def test_a_comparison_is_one_table_for_each_preset(tmp_path, monkeypatch):
    def pretend(method, model, federation, *, rounds, seed, **_):
        numbers = {"client_mean": 0.5 + seed / 10, "std": 0.1, "noise_floor": 0.2, "worst10": 0.0, "best10": 1.0}
        return Result(None, [Evaluation(rounds, {"global": numbers}, {})], [{"conflict_share": 0.25}])

    monkeypatch.setattr(compare, "simulate", pretend)
    out = tmp_path / "table.md"
    config = compare.Config(
        preset=("craft/cifar10-cnn", "geo/fashion-mnist-mlp"),
        names=("fedavg", "fedvg"),
        seeds=(0, 2),
        out=out,
        data="digits_forms",
        clients=20,
        cohort=2,
    )
    compare.main(config)
    text = out.read_text()
    first, second = text.split("\n## ")[1:]
    assert text.startswith("# Methods compared\n\n## craft/cifar10-cnn\n") and "seeds 0, 2" in first
    assert "| fedavg | 60.0 ± 14.1 | 10.0 ± 0.0 | 20.0 ± 0.0 | 0.0 ± 0.0 | 100.0 ± 0.0 | 25.0 | 63.5 |" in first
    assert "Left out, for want of a validation set: fedvg." in first and "lr, server_lr" in first
    assert "| fedvg | 60.0 ± 14.1 |" in second and "63.5" not in second and "in no paper" in second
    compare.main(dataclasses.replace(config, preset=("craft/cifar10-cnn",), append=True))
    assert out.read_text().startswith(text) and out.read_text().count("# Methods compared") == 1


@pytest.mark.parametrize("name", [name for name in datasets.PARTITIONS if name != "writers"])
def test_every_partition_is_offered(name):
    config = Config(data="digits_forms", partition=name, alpha=1.0, clients=28, min_examples=5, validation=0.0)
    sizes = datasets.load(config).train.sizes
    assert len(sizes) == (14 if name == "natural" else 28) and sizes.min() > 0


def test_writers_are_cut_as_the_authors_cut_them():
    config = Config(data="digits_forms", partition="writers", clients=5, validation=0.0, seed=3)
    federation = datasets.load(config)
    chosen = data.writers(data.load("digits_forms"), 5, seed=3)
    train, test, _ = data.split_writers(chosen.client_ids, seed=3)
    sizes = np.stack([federation.train.sizes, federation.test.sizes])
    assert sizes.tolist() == [[len(part) for part in train], [len(part) for part in test]]
    np.testing.assert_array_equal(
        federation.examples.y[federation.test.indices[2][: len(test[2])]], chosen.labels[test[2]]
    )
    with pytest.raises(ValueError, match="validation must be 0"):
        datasets.load(dataclasses.replace(config, validation=0.1))


def test_external_validation_sets(monkeypatch):
    def source(names, size, num_train):
        labels = np.repeat(np.arange(len(names), dtype=np.int32), 30)
        images = np.random.default_rng(0).integers(0, 256, (len(labels), size, size, 3), dtype=np.uint8)
        return Source(images, labels, names, data.scale(255), num_train, "made for this test", "none")

    made = {
        "cifar10": source(("airplane", "automobile", "frog"), 8, 90),
        "stl10": source(("car", "airplane", "monkey"), 24, 45),
    }
    monkeypatch.setattr(datasets.data, "STL10_AS_CIFAR10", {"car": "automobile"})
    monkeypatch.setattr(datasets.data, "load", lambda name, *_, **__: made[name])
    config = Config(data="cifar10", partition="iid", clients=3, surrogate="stl10")
    federation = datasets.load(config)
    assert federation.validation.x.shape == (45, 8, 8, 3)  # without the official test part
    assert np.bincount(federation.validation.y, minlength=3).tolist() == [15, 30, 0]
    tailed = datasets.load(dataclasses.replace(config, surrogate=None, validation=0.5, tail=0.5))
    assert np.bincount(tailed.validation.y).tolist() == [12, 6, 3]


def test_a_model_starts_from_a_file(tmp_path):
    model = MODELS["mlp"](10)
    x = np.ones((1, 8, 8, 1), np.float32)
    wanted = jax.tree.map(lambda leaf: leaf + 1, model.init(jax.random.key(1), x))
    flat = jax.tree_util.tree_leaves_with_path(wanted._asdict())
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in flat}
    np.savez(tmp_path / "w.npz", **named)
    loaded = build_model(Config(weights=tmp_path / "w.npz"), 10).init(jax.random.key(0), x)
    for ours, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_page_lists_them_all():
    page = Path(__file__).parent.parent / "docs" / "presets.md"
    rows = dict(re.findall(r"^\| `([a-z]+/[^`]+)` (\|.*)$", page.read_text(), re.MULTILINE))
    assert list(rows) == list(PRESETS)
    for name, row in rows.items():
        config = PRESETS[name].config
        for fact in (config.data, config.model, f"{config.cohort} of {config.clients}", str(config.rounds)):
            assert f" {fact} |" in row, (name, fact)
