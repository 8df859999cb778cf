"""Choosing a layout: the fastest by the timer, remembered; what does not fit into memory. Nothing is timed."""

import importlib
import json
import math

import jax
import pytest
import toys

from fedjax_geo import Strategy, Work, measured_strategy, methods, simulate, tune
from fedjax_geo.models import mlp
from fedjax_geo.parallel import clients_mesh

DATA = toys.federation([[[1.0]], [[2.0]], [[3.0]]])
LAYOUTS = [Strategy(1), Strategy(2), Strategy()]
FULL = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")
SIMULATE = importlib.import_module("fedjax_geo.simulate")  # the package holds the function by that name


class Timer:
    """Returns these seconds, one for each round, and raises those that are errors; trains only if told to."""

    def __init__(self, *seconds, train=False):
        self.seconds, self.train = list(seconds), train

    def __call__(self, call):
        value = self.seconds.pop(0)
        if isinstance(value, Exception):
            raise value
        if self.train:
            jax.block_until_ready(call())
        return value


def choose(timer, cache, model=toys.lin, **options):
    options = {"cohort": 2, "candidates": LAYOUTS[:2], "example_loss": toys.loss_is_output} | options
    return measured_strategy(toys.averaging(), model, DATA, cache=cache, timer=timer, **options)


def test_the_fastest_by_the_median_is_chosen_and_remembered(tmp_path):
    timer = Timer(0, 3, 1, 2, 9, 9, 1, 1)  # of each four the first is not counted
    choice = choose(timer, tmp_path)
    assert choice == (Strategy(2), {Strategy(1): 2, Strategy(2): 1}) and not timer.seconds
    assert str(choice) == "1 device, chunk 2 (seconds a round: 1 device, chunk 1: 2; 1 device, chunk 2: 1)"
    assert choose(Timer(), tmp_path, seed=5) == choice  # nothing is timed
    other = toys.scalar_model(lambda w, x: x[:, 0] * w + w)  # parameters of the same shapes
    for changed in ({"model": other}, {"cohort": 3}, {"work": Work(30)}, {"work": Work(20, None, 2)}):
        assert choose(Timer(0, 1, 1, 1, 0, 2, 2, 2), tmp_path, **changed).strategy == Strategy(1)
    assert len(list(tmp_path.iterdir())) == 5


def test_real_rounds_are_trained():
    choice = choose(Timer(1, 1, 1, 1, train=True), False, candidates=[Strategy(1, clients_mesh(2))])
    assert choice.strategy.num_devices == 2


def test_a_damaged_file_is_measured_again(tmp_path):
    choose(Timer(*[1] * 4), tmp_path, candidates=LAYOUTS[:1])
    [file] = tmp_path.iterdir()
    sound = file.read_text()
    for damage in ("", "[]", '{"seconds": [1]}', json.dumps(json.loads(sound) | {"seconds": [-1.0]})):
        file.write_text(damage)
        again = Timer(*[1] * 4)
        choose(again, tmp_path, candidates=LAYOUTS[:1])
        assert not again.seconds and file.read_text() == sound


def test_a_layout_without_memory_is_skipped_and_if_all_are_the_error_says_what_to_lower(tmp_path):
    choice = choose(Timer(FULL, 2, 2, 2, 2), tmp_path)
    assert choice == (Strategy(2), {Strategy(1): math.inf, Strategy(2): 2})
    assert "chunk 1: out of memory" in str(choice)
    assert choose(Timer(), tmp_path) == choice
    with pytest.raises(MemoryError, match=r"none of 1 layouts .*less than 2\), cohort \(now 3\) or .*\(now 20\)"):
        choose(Timer(FULL), False, cohort=3, candidates=LAYOUTS[1:2])
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        choose(Timer(jax.errors.JaxRuntimeError("INTERNAL: other")), False)


def test_smaller_chunks_are_tried_only_for_want_of_memory(monkeypatch):
    monkeypatch.setattr(tune, "default_layouts", lambda cohort: (LAYOUTS[2:], LAYOUTS[:2]))
    assert choose(Timer(1, 1, 1, 1), False, candidates=None).seconds == {Strategy(): 1}
    choice = choose(Timer(FULL, 1, 1, 1, 1), False, candidates=None)
    assert choice == (Strategy(1), {Strategy(): math.inf, Strategy(1): 1})


def test_default_layouts():
    one_by_one, none = tune.default_layouts(8)
    expected = [(devices, *kind) for devices in (1, 4) for kind in ((1, 0), (1, 2), (4, 0))]
    assert [(s.num_devices, s.chunk, s.halvings) for s in one_by_one] == expected and not none
    compared, spare = tune.default_layouts(80, cpu=False)  # 20 on each of 4 devices
    assert [s.chunk for s in compared] == [None, 10, 5, 3] and [s.chunk for s in spare] == [2, 1]
    assert [s.num_devices for s in tune.default_layouts(2)[0]] == [1, 1, 2, 2]
    with pytest.raises(ValueError, match="at least one layout"):
        choose(Timer(), False, candidates=[])


@pytest.mark.parametrize("strategy", [Strategy(1), Strategy(2), Strategy()])
def test_a_round_without_memory_names_what_to_lower(monkeypatch, strategy):
    def full(*args):
        raise FULL

    monkeypatch.setattr(SIMULATE, "make_block", lambda process, length: full)
    chunk = {1: "", 2: r"strategy.chunk \(now 2\) or ", None: r"strategy.chunk \(now None.*\) or "}[strategy.chunk]
    with pytest.raises(MemoryError, match=rf"a round .* lower {chunk}cohort \(now 3\) or .*batch_size \(now 20\)"):
        simulate(methods.fedavg(), mlp(2, hidden=()), DATA, rounds=1, cohort=3, strategy=strategy)


@pytest.mark.parametrize(("method", "what"), [("fedavg", "the model"), ("ditto", r"side by side \(now 3\)")])
def test_an_evaluation_without_memory_names_what_to_lower(monkeypatch, method, what):
    def full(*args, **options):
        raise FULL

    monkeypatch.setattr(SIMULATE.evaluate, "score_global", full)
    with pytest.raises(MemoryError, match=rf"the evaluation does not fit into memory: .*{what}"):
        simulate(methods.find(method)(), mlp(2, hidden=()), DATA, rounds=0, cohort=3, strategy=Strategy())


def test_the_default_layout_of_a_run_takes_all_devices_only_for_enough_clients():
    from experiments.settings import Config, layout, prepare_devices

    assert [layout(Config(cohort=m)).num_devices for m in (3, 4)] == [1, 4]
    assert layout(Config(cohort=8, devices=1)) == Strategy(1)
    prepare_devices(Config(cohort=1000))  # the tests have set a number
    assert len(jax.devices()) == 4
    with pytest.raises(ValueError, match="leave out chunk and devices"):
        prepare_devices(Config(auto=True, devices=1))
