"""The benchmark's rows exist, and PyTorch's two ways to train a round agree. Its figures are nobody's test."""

import dataclasses

import numpy as np
import pytest
from toys import federation

from benchmarks import round


def test_rows_of_each_kind_of_machine():
    one = round.rows("mlp", 1, "", set())
    assert not any("PyTorch" in label for label in one)
    cpu = round.rows("cnn", 2, "cpu", {"pfl", "flwr"})
    assert cpu["Flower, 2 actors"] == "peer:flwr:2" and not any("BlazeFL" in label for label in cpu)
    codes = set(round.rows("cnn", 1, "cuda", set()).values())
    assert {"torch_plain:cuda:1", "torch_one:cuda:1", "torch_stacked:cuda:1", "torch_craft:cuda:1"} <= codes
    assert "torch_one:cuda:1" not in round.rows("mlp", 1, "cuda", set()).values()  # nothing to lay out


@pytest.fixture
def clients(monkeypatch):
    """Three clients of one, one and three batches: 20 images, 7 images, and one image 53 times (in any order)."""
    loop = pytest.importorskip("benchmarks.torch_loop", reason="needs PyTorch", exc_type=ImportError)
    rng = np.random.default_rng(0)
    images = [rng.normal(size=(n, 28, 28, 1)) for n in (20, 7, 1)]
    images[2] = np.repeat(images[2], 53, 0)
    labels = [rng.integers(0, 10, 20), rng.integers(0, 10, 7), np.full(53, 3)]
    data = dataclasses.replace(federation(images, labels=labels, num_classes=10), prepare=lambda x: x)
    monkeypatch.setattr(loop, "one_round", lambda workload: data)
    return loop.Clients


def test_all_clients_side_by_side_make_the_step_of_one_after_another(clients):
    from benchmarks.torch_loop import stacked_round

    one = clients("mlp")
    expected, examples = one.train()
    assert examples == 80
    for ours, theirs in zip(stacked_round(clients("mlp", channels_last=False))(), expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
    trained = {k: v - t / examples for (k, v), t in zip(one.start.items(), expected, strict=True)}
    one.must_have_learned(trained)
    with pytest.raises(RuntimeError, match="did not train"):
        one.must_have_learned(one.start)


def test_dropout_and_convolutions_side_by_side(clients):
    from benchmarks.torch_loop import stacked_round

    total = stacked_round(clients("cnn", channels_last=False))()
    assert all(np.isfinite(t.numpy()).all() and t.abs().sum() > 0 for t in total)


def test_everything_is_on_the_device_that_is_asked_for(clients):
    from benchmarks.torch_loop import stacked_round

    elsewhere = clients("cnn", device="meta")  # computes nothing, but refuses tensors of the CPU
    assert all(t.is_meta for t in [*elsewhere.train()[0], *stacked_round(elsewhere)()])
