"""Filling up small clients without giving anybody a class that they did not hold."""

import numpy as np

from fedjax_geo.data._source import IntArray

Move = tuple[int, int, int]  # taker, giver, class


def lift(table: IntArray, min_examples: int) -> None:
    """Move examples, within classes, until no client is below the minimum.

    The moves follow augmenting paths, so that they are found wherever there are any.

    Args:
        table: examples of each class that each client has, [n, C]; changed in place. What is above zero stays so.
        min_examples: of every client.

    Raises:
        ValueError: there is no way.

    >>> table = np.array([[9, 4, 0], [0, 2, 5], [0, 0, 1]])
    >>> lift(table, 5)
    >>> table.tolist()
    [[9, 2, 0], [0, 4, 1], [0, 0, 5]]
    """
    sizes = table.sum(1)
    for client in np.flatnonzero(sizes < min_examples).tolist():
        while sizes[client] < min_examples:
            moves = _find(table, sizes, min_examples, client)
            if not moves:
                raise ValueError(
                    f"min_examples={min_examples} cannot be reached: client {client} has {sizes[client]}, and "
                    "none who share its classes have any to spare; ask for less"
                )
            donor = moves[-1][1]
            spare = [table[giver, label] - 1 for _, giver, label in moves]
            moved = min(min_examples - sizes[client], sizes[donor] - min_examples, *spare)
            for taker, giver, label in moves:
                table[taker, label] += moved
                table[giver, label] -= moved
            sizes[client] += moved
            sizes[donor] -= moved


def _find(table: IntArray, sizes: IntArray, min_examples: int, client: int) -> list[Move]:
    """The fewest moves from some client above the minimum to this one, each giver the taker of the next."""
    move_to: dict[int, Move] = {}  # by giver
    asked = np.zeros(table.shape[1], bool)
    queue = [client]
    for taker in queue:
        for label in np.flatnonzero((table[taker] > 0) & ~asked).tolist():
            asked[label] = True
            givers = np.flatnonzero(table[:, label] > 1)
            for giver in givers[np.argsort(-sizes[givers], kind="stable")].tolist():
                if giver == client or giver in move_to:
                    continue
                move_to[giver] = (taker, giver, label)
                queue.append(giver)
                if sizes[giver] > min_examples:
                    moves = [move_to[giver]]
                    while moves[-1][0] != client:
                        moves.append(move_to[moves[-1][0]])
                    return moves[::-1]
    return []
