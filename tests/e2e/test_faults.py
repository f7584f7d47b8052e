# SPDX-License-Identifier: Apache-2.0
"""A call for memory or for a descriptor fails, once, in one of penstock's processes: nothing that is denied is reached,
every client gets an answer or an error, the run ends as it should, nothing crashes and nothing is left.

`make check` tries a few calls of each kind, others with another PENSTOCK_FAULTS_SEED. PENSTOCK_FAULTS=all tries every call,
which takes an hour or two, =serving those after the start only; run it with `-s` to see how far it is."""
import os
import random

import pytest

from conftest import assert_nothing_left, leftovers
from faults import DENIED, Faults

ALL = os.environ.get("PENSTOCK_FAULTS", "")  # "all", or "serving" for those after the start
SEED = os.environ.get("PENSTOCK_FAULTS_SEED", "1")
# role, kind, how many calls of those at the start and of those while it serves (where the resolver starts too)
TABLE = [("@gate", "memory", 1, 4), ("@gate", "descriptor", 1, 3), ("@keeper", "memory", 1, 0), ("@keeper", "descriptor", 1, 0),
         ("@resolver", "memory", 0, 2), ("@resolver", "descriptor", 0, 2), ("run", "memory", 1, 1), ("run", "descriptor", 1, 1)]


@pytest.fixture(scope="module")
def faults(box):
    made = Faults(box)
    made.clean()
    made.before_command, made.total = made.count()
    return made


def sample(count, numbers, seed):
    return sorted(random.Random(seed).sample(numbers, min(count, len(numbers))))


def calls_to_try(faults, role, kind, at_start, serving):
    started, total = faults.before_command[role, kind], faults.total[role, kind]
    if ALL:
        return range(started + 1 if ALL == "serving" else 1, total + 1)
    return sample(at_start, range(1, started + 1), SEED) + sample(serving, range(started + 1, total + 1), SEED)


@pytest.mark.parametrize("role,kind,at_start,serving", TABLE, ids=[f"{row[0]}-{row[1]}" for row in TABLE])
def test_one_call_fails(box, faults, role, kind, at_start, serving):
    before = leftovers()
    calls = calls_to_try(faults, role, kind, at_start, serving)
    wrong = faults.run_all(role, kind, calls, bool(ALL))
    assert not wrong, f"{len(wrong)} of {len(calls)}, seed {SEED}:\n" + "\n".join(wrong[:5])
    assert not [entry for entry in box.lab.http_requests() if entry["host"] == DENIED or entry["sni"] == DENIED]
    assert not box.lab.dns_queries(DENIED)
    assert_nothing_left(before)
