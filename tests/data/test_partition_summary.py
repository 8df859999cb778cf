"""A federation in numbers, checked by hand."""

import numpy as np

from fedjax_geo.data import ClientParts, PartitionSummary, Source, assemble, label_counts, scale, summarize


def by_hand():
    source = Source(
        images=np.zeros((9, 1, 1, 1), np.uint8),
        labels=np.array([0, 0, 0, 1, 1, 2, 2, 2, 2], np.int32),
        class_names=("a", "b", "c"),
        prepare=scale(255),
        num_train=9,
        provenance="made",
        licence="none",
    )
    train, test = ([[0, 1, 3], [5], []], [[2], [], []])
    as_arrays = [[np.array(part, int) for part in parts] for parts in (train, test)]
    return assemble(source, ClientParts(*as_arrays, validation=[np.array([4, 8])]))


def test_label_counts():
    assert label_counts(by_hand()).tolist() == [[3, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_summary():
    assert summarize(by_hand()) == PartitionSummary(
        num_clients=3,
        num_classes=3,
        train=4,
        test=1,
        validation=2,
        smallest=0,
        median=1.0,
        largest=4,
        std=np.std([4, 1, 0]),
        classes_per_client=1.5,
        top_class_share=(0.75 + 1) / 2,
        clients_without_test=2,
    )


def test_summary_for_a_person():
    assert str(summarize(by_hand())).splitlines() == [
        "3 clients, 3 classes",
        "examples    4 train, 1 test, 2 validation",
        "client size 0/1/4 min/median/max, std 1.7",
        "label skew  1.50 classes per client, top class 87.5%",
        "no test set 2 clients",
    ]
