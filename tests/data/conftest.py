"""No test here looks at, or writes to, the home of whoever runs it."""

import pytest


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDJAX_GEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDJAX_GEO_DATA", raising=False)
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setattr("fedjax_geo.data._places.SYSTEM", tmp_path / "system")
