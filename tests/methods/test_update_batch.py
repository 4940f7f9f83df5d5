"""Updates of a batch are what they would be one by one, and columns are their stacks, whoever was changed meanwhile."""

import doctest
from dataclasses import replace

import pytest
import torch

from polyfed.methods import update_batch
from polyfed.methods.messages import ClientUpdate, from_bytes, to_bytes
from polyfed.methods.update_batch import Change, Columns, UpdateBatch, batch_of

N = 5


def arrays(seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        "W": torch.randn(N, 2, 3, generator=generator, dtype=torch.float64),
        "b": torch.randn(N, generator=generator),
    }


def batch(seed=0):
    pooled = {"noise": (torch.arange(N, dtype=torch.float64) + seed, torch.ones(N, dtype=torch.float64))}
    return UpdateBatch(arrays(seed), pooled)


def update(made, i):
    return made.update(i, float(i + 1), {"pulse": i, "sick": 1}, {"bound": -1.0})


def test_the_examples():
    assert doctest.testmod(update_batch).failed == 0


def test_an_update_of_a_batch_travels_as_any_other():
    made = batch()
    for i in range(N):
        one = update(made, i)
        size = one.n_bytes()
        assert batch_of(one) is made  # counting bytes takes nothing apart
        assert size == len(to_bytes(one.wire()))
        again = ClientUpdate.from_wire(from_bytes(to_bytes(one.wire())))
        assert again.counts == {"pulse": i, "sick": 1}
        assert again.weight == i + 1
        assert torch.equal(again.arrays["W"], made.arrays["W"][i])
        assert torch.equal(again.pooled["noise"][0], made.pooled["noise"][0][i])
    longer = made.update(0, 1.0, {"another task": 1}, {})
    assert longer.n_bytes() == len(to_bytes(longer.wire()))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 1, 4], [2]])
def test_columns_are_the_stacks_of_the_updates(order):
    first, second = batch(0), batch(7)
    alone = ClientUpdate(
        {"W": torch.ones(2, 3, dtype=torch.float64), "b": torch.tensor(9.0)},
        {"noise": (torch.tensor(3.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))},
    )
    sent = [update(first, i) for i in order] + [alone] + [update(second, i) for i in reversed(order)]
    changed = replace(sent[0], arrays={**sent[0].arrays, "b": torch.tensor(-5.0)})
    assert batch_of(changed) is None
    sent[0] = changed
    sent[-1].arrays["b"] = torch.tensor(8.0)  # whoever looked at one may have changed it
    columns = Columns(sent)
    for name in ("W", "b"):
        assert torch.equal(columns.array(name), torch.stack([one.arrays[name] for one in sent]))
        together = torch.zeros_like(columns.array(name))
        for at, (values,) in columns.pieces(name):
            together[at] = values
        assert torch.equal(together, columns.array(name))
        torch.testing.assert_close(columns.total(name), columns.array(name).sum(0))
    for k in range(2):
        assert torch.equal(columns.pooled("noise")[k], torch.stack([one.pooled["noise"][k] for one in sent]))
    assert columns.array("b").tolist()[0] == -5.0
    assert columns.array("b").tolist()[-1] == 8.0


@pytest.mark.parametrize("most", [1, 12, 10**6])
@pytest.mark.parametrize("changed", [(), (0,), (N - 1,)])
def test_a_whole_batch_is_not_copied_unless_one_of_it_was_changed(most, changed, monkeypatch):
    monkeypatch.setattr(update_batch, "PIECE", most)
    made = batch()
    sent = [update(made, i) for i in range(N)]
    for i in changed:
        sent[i] = replace(sent[i], arrays={"W": torch.zeros(2, 3, dtype=torch.float64), "b": torch.tensor(-1.0)})
    columns = Columns(sent)
    assert (columns.array("W") is made.arrays["W"]) == (not changed)
    assert torch.equal(columns.array("W"), torch.stack([one.arrays["W"] for one in sent]))
    found = {int(i): value for at, values in columns.pieces("W", "b") for i, value in zip(at, values[1], strict=True)}
    assert [float(found[i]) for i in range(N)] == [float(one.arrays["b"]) for one in sent]


def test_sums_do_not_depend_on_who_was_solved_with_whom():
    made = batch()
    apart = [UpdateBatch({name: v[i : i + 1] for name, v in made.arrays.items()}, {}) for i in range(N)]
    together, alone = [update(made, i) for i in range(N)], [update(one, 0) for one in apart]
    assert torch.equal(Columns(together).total("W"), Columns(alone).total("W"))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 1, 4]])
@pytest.mark.parametrize("first_time", [True, False])
def test_a_change_is_seen_as_the_difference_that_it_stands_for(order, first_time):
    now, before = arrays(1), arrays(2)
    if first_time:
        before = {name: torch.zeros_like(value[0]).expand_as(value) for name, value in before.items()}
    lazy = UpdateBatch({name: Change(now[name], before[name]) for name in now}, {})
    eager = UpdateBatch({name: now[name] - before[name] for name in now}, {})
    one, other = ([update(made, i) for i in order] for made in (lazy, eager))
    assert [each.n_bytes() for each in one] == [each.n_bytes() for each in other]
    for name in now:
        assert torch.equal(Columns(one).array(name), Columns(other).array(name))
        assert torch.equal(Columns(one).total(name), Columns(other).total(name))
        for (at, (mine,)), (places, (theirs,)) in zip(
            Columns(one).pieces(name), Columns(other).pieces(name), strict=True
        ):
            assert torch.equal(at, places)
            assert torch.equal(mine, theirs)
        assert torch.equal(one[0].arrays[name], other[0].arrays[name])
