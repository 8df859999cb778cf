"""Runs: exact numbers of rounds, records, resuming, errors before compilation."""

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import toys

from fedjax_geo import Work, checkpoint, methods, record, simulate
from fedjax_geo.aggregators import craft
from fedjax_geo.clients import local_sgd
from fedjax_geo.models import mlp
from fedjax_geo.types import Method
from fedjax_geo.weightings import fedvg

MODEL = mlp(3, hidden=(5,))
DATA = toys.ragged()
METHOD = Method(local_sgd(optax.sgd(0.1)), fedvg(), optax.chain(craft(), optax.adam(0.05)))
OPTIONS = {"cohort": 5, "eval_every": 3, "work": Work(batch_size=8)}


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def seven_rounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    callbacks = [
        record.run_folder(folder / "run", {"seed": 0, "data": DATA.provenance}),
        checkpoint.checkpoints(folder / "checkpoints", seed=0),
    ]
    return simulate(METHOD, MODEL, DATA, rounds=7, callbacks=callbacks, **OPTIONS), folder


def test_rounds_are_server_updates_and_round_zero_is_the_untouched_model(seven_rounds):
    result, _ = seven_rounds
    assert int(result.state.round) == 7
    assert [m["round"] for m in result.metrics] == [1, 2, 3, 4, 5, 6, 7]
    assert [e.round for e in result.evaluations] == [0, 3, 6, 7]
    untouched = simulate(METHOD, MODEL, DATA, rounds=0, **OPTIONS)
    assert untouched.evaluations[0].summaries == result.evaluations[0].summaries
    assert untouched.metrics == []


def test_blocks_are_plain_rounds_one_after_another(seven_rounds):
    result, _ = seven_rounds
    state, history = toys.run(
        METHOD, MODEL, DATA, rounds=7, cohort=5, work=Work(batch_size=8), example_loss=toys_loss()
    )
    for a, b in zip(jax.tree.leaves(state.variables), jax.tree.leaves(result.state.variables), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert history[0]["train_loss"] == pytest.approx(result.metrics[0]["train_loss"], rel=1e-5)


def toys_loss():
    from fedjax_geo.objective import cross_entropy

    return cross_entropy


def test_the_evaluation_sees_the_new_parameters(seven_rounds):
    result, _ = seven_rounds
    again = simulate(METHOD, MODEL, DATA, rounds=7, state=result.state, **OPTIONS)
    assert again.evaluations == [] and again.metrics == []
    losses = [e.summaries["global"]["loss"] for e in result.evaluations]
    assert len(set(losses)) == 4


def test_the_run_folder_holds_everything(seven_rounds):
    result, folder = seven_rounds
    run = folder / "run"
    assert json.loads((run / "config.json").read_text()) == {"seed": 0, "data": "made by a test"}
    rows = record.read_lines(run / "metrics.jsonl")
    assert [r["round"] for r in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert {"train_loss", "worst_cosine", "conflict_share", "constraint_residual", "previous_cosine"} <= set(
        rows[0]
    )
    evaluations = record.read_lines(run / "evaluations.jsonl")
    assert [e["round"] for e in evaluations] == [0, 3, 6, 7]
    assert evaluations[-1]["global"] == pytest.approx(result.evaluations[-1].summaries["global"])
    clients = record.read_lines(run / "clients.jsonl")[-1]["global"]
    assert len(clients) == 8 and clients[0] is None  # the client without examples
    with pytest.raises(FileExistsError, match="already holds a run"):
        record.run_folder(run, {})


def test_a_state_can_be_gone_on_from_twice_and_must_fit(seven_rounds):
    result, _ = seven_rounds
    forks = [simulate(METHOD, MODEL, DATA, rounds=8, state=result.state, **OPTIONS) for _ in range(2)]
    same(forks[0].state, forks[1].state)
    assert int(result.state.round) == 7  # still there
    with pytest.raises(ValueError, match=r"state does not fit .*variables/params/fc1"):
        simulate(METHOD, mlp(3, hidden=(6,)), DATA, rounds=8, state=result.state, **OPTIONS)


def test_a_mesh_and_client_state_in_blocks():
    from fedjax_geo.parallel import Strategy, clients_mesh

    runs = [
        simulate(methods.ditto(), MODEL, DATA, rounds=4, cohort=8, eval_every=2, strategy=strategy)
        for strategy in (Strategy(), Strategy(mesh=clients_mesh(4)))
    ]
    for a, b in zip(*(jax.tree.leaves(r.state) for r in runs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_one_client_that_breaks_is_left_out_and_counted():
    """Model, statistics, client state and the metrics stay finite, and the run goes on."""
    x = np.array(DATA.examples.x)
    x[DATA.train.indices[3][0]] = np.nan  # client 3
    data = dataclasses.replace(DATA, examples=DATA.examples._replace(x=x))
    result = simulate(methods.scaffold(), MODEL, data, rounds=2, cohort=8, eval_every=2)
    assert result.diverged_at is None
    assert [m["nonfinite_clients"] for m in result.metrics] == [1, 1]
    assert all(np.isfinite(m["train_loss"]) for m in result.metrics)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))


def test_what_does_not_fit_fails_before_anything_is_told():
    told = []
    broken = METHOD._replace(server=optax.sgd(1.0))
    with pytest.raises(ValueError, match="exactly one aggregator"):
        simulate(broken, MODEL, DATA, rounds=1, callbacks=[told.append], **OPTIONS)
    assert told == []


def test_resuming_equals_going_on(seven_rounds, tmp_path):
    """With a server optimizer, a reference direction and a weighting; bit for bit, history included."""
    result, folder = seven_rounds
    assert checkpoint.rounds(folder / "checkpoints") == [0, 3, 6, 7]
    middle = checkpoint.restore(folder / "checkpoints", result.state, round=3, seed=0)
    resumed = simulate(METHOD, MODEL, DATA, rounds=7, state=middle, **OPTIONS)
    same(resumed.state, result.state)
    assert resumed.metrics == result.metrics[3:]
    assert [e.round for e in resumed.evaluations] == [6, 7]


def test_a_broken_checkpoint_is_not_taken(seven_rounds, tmp_path):
    result, _ = seven_rounds
    checkpoint.save(tmp_path, result.state, seed=0)
    (tmp_path / "00000100.orbax-checkpoint-tmp-5").mkdir()
    assert checkpoint.rounds(tmp_path) == [7]
    same(checkpoint.restore(tmp_path, result.state, seed=0), result.state)
    with pytest.raises(FileNotFoundError, match="no checkpoint of round 4"):
        checkpoint.restore(tmp_path, result.state, round=4, seed=0)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        checkpoint.restore(tmp_path / "nowhere", result.state, seed=0)


def test_a_run_goes_on_with_its_own_seed_only(seven_rounds, tmp_path):
    result, folder = seven_rounds
    with pytest.raises(ValueError, match=r"seed must be 0, that of the run saved in .*/7, got 1"):
        checkpoint.restore(folder / "checkpoints", result.state, seed=1)
    with ocp.StandardCheckpointer() as writer:  # as before seeds were kept
        writer.save(tmp_path / "7", jax.device_get(result.state))
    same(checkpoint.restore(tmp_path, result.state, seed=1), result.state)


def test_a_kept_copy_does_not_change_when_the_run_goes_on():
    kept = {}

    def keep(event):
        kept[int(event.state.round)] = jax.device_get(event.state.variables)

    simulate(METHOD, MODEL, DATA, rounds=6, callbacks=[keep], **OPTIONS)
    shorter = simulate(METHOD, MODEL, DATA, rounds=3, **OPTIONS)
    same(kept[3], jax.device_get(shorter.state.variables))
    assert set(kept) == {0, 3, 6}


def test_seeds_can_be_one_more_axis():
    """A vmapped run over seeds equals separate runs."""
    from fedjax_geo.objective import cross_entropy
    from fedjax_geo.round import make_round
    from fedjax_geo.types import Task

    method = methods.find("fedavg")(lr=0.1)
    process = make_round(method, Task(MODEL, DATA.prepare, cross_entropy), cohort=5, work=Work(batch_size=8))
    data = jax.tree.map(jnp.asarray, DATA)

    def experiment(key):
        state = process.init(key, data)
        for _ in range(2):
            state, _ = process.step(state, key, data)
        return state.variables.params

    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    together = jax.jit(jax.vmap(experiment))(keys)
    for i in range(2):
        alone = jax.jit(experiment)(jax.random.key(i))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, atol=1e-5)


def test_two_processes_give_the_same_bits():
    program = (
        "import jax; jax.config.update('jax_platforms', 'cpu')\n"
        "import hashlib, numpy as np\n"
        "from fedjax_geo import methods, simulate\n"
        "from fedjax_geo.data import load_federated, server_holdout\n"
        "from fedjax_geo.models import mlp\n"
        "data = load_federated('digits_forms', validation=server_holdout(0.1))\n"
        "r = simulate(methods.craft_fedvg(), mlp(10, hidden=(8,)), data, rounds=2, cohort=4)\n"
        "b = b''.join(np.asarray(p).tobytes() for p in jax.tree.leaves(r.state.variables.params))\n"
        "print(hashlib.sha256(b).hexdigest(), r.metrics[-1]['train_loss'])\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] and len(runs[0]) > 64


def test_a_diverging_run_stops_and_says_when():
    method = methods.find("fedavg")(lr=1e20)
    with pytest.warns(UserWarning, match="had a finite update"):
        result = simulate(method, MODEL, DATA, rounds=50, **OPTIONS)
    assert result.diverged_at is not None and int(result.state.round) < 50


def test_live_memory_does_not_grow_with_rounds():
    sizes = []

    def count(event):
        sizes.append(sum(x.nbytes for x in jax.live_arrays()))

    simulate(METHOD, MODEL, DATA, rounds=30, callbacks=[count], **OPTIONS)
    assert sizes[-1] <= sizes[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": 9}, "cohort must be between 1 and the population of 8 clients, got 9"),
        ({"cohort": 0}, "cohort must be a whole number of at least 1, got 0"),
        ({"rounds": -1}, "rounds must be a whole number of at least 0, got -1"),
        ({"eval_every": 0}, "eval_every must be a whole number of at least 1, got 0"),
        ({"work": Work(batch_size=0)}, "batch_size must be at least 1, got 0"),
        ({"data": toys.federation([np.ones((1, 6))] * 8)}, "needs a validation set at the server"),
    ],
)
def test_wrong_arguments_fail_before_compilation(change, message):
    arguments = {"method": METHOD, "model": MODEL, "data": DATA, "rounds": 1, **OPTIONS, **change}
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)
