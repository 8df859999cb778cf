"""The picture of a partition is drawn, in both forms."""

from pathlib import Path

import pytest

pytest.importorskip("tyro")
pytest.importorskip("matplotlib")
partition = pytest.importorskip("experiments.partition")


@pytest.mark.parametrize("clients", [20, 80])
def test_numbers_and_a_picture(tmp_path: Path, capsys, clients):
    out = tmp_path / "new" / "partition.png"
    partition.main(partition.Config(partition="dirichlet", clients=clients, min_examples=3, out=out))
    assert out.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert f"{clients} clients, 10 classes" in printed and "dirichlet(alpha=0.1, min_examples=3)" in printed
