"""When the server asks again."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'polyfed[flower]'")

from polyfed.flower import polls
from polyfed.flower.polls import LONGEST, SHORTEST, pause_after, polling


class Reply:
    def __init__(self, to):
        self.metadata = type("M", (), {"reply_to_message_id": to})


class Slow:
    """A Grid whose replies are there after so many seconds of a clock that only sleeping moves."""

    def __init__(self, after, taken=True):
        self.after, self.taken, self.now, self.questions = after, taken, 0.0, 0

    def push_messages(self, messages):
        return [message if self.taken else None for message in messages]

    def pull_messages(self, numbers):
        self.questions += 1
        return [Reply(number) for number in numbers if self.now >= self.after[number]]


@pytest.fixture
def clock(monkeypatch):
    def use(grid):
        monkeypatch.setattr(polls.time, "monotonic", lambda: grid.now)
        monkeypatch.setattr(polls.time, "sleep", lambda seconds: setattr(grid, "now", grid.now + seconds))
        return polling(grid)

    return use


@pytest.mark.parametrize("seconds", [0.01, 0.4, 2.0, 20.0, 200.0])
def test_an_answer_is_known_soon_after_it_is_there(clock, seconds):
    grid = Slow({"a": seconds / 2, "b": seconds})
    replies = clock(grid).send_and_receive(["a", "b"], timeout=1000.0)
    assert sorted(reply.metadata.reply_to_message_id for reply in replies) == ["a", "b"]
    assert grid.now - seconds <= max(SHORTEST, 0.11 * seconds)
    assert grid.now - seconds <= LONGEST


def test_who_is_never_heard_of_costs_the_timeout_and_few_questions(clock):
    grid = Slow({"a": 1.0, "b": float("inf")})
    replies = clock(grid).send_and_receive(["a", "b"], timeout=600.0)
    assert [reply.metadata.reply_to_message_id for reply in replies] == ["a"]
    assert grid.now == pytest.approx(600.0)
    assert grid.questions < 300


def test_nobody_waits_for_messages_that_were_not_sent(clock):
    grid = Slow({}, taken=False)
    assert clock(grid).send_and_receive(["a"], timeout=600.0) == []
    assert clock(grid).send_and_receive([], timeout=600.0) == []
    assert (grid.now, grid.questions) == (0.0, 0)


def test_pauses_grow_and_end_growing():
    pauses = [pause_after(waited) for waited in (0.0, 1.0, 10.0, 30.0, 1e6)]
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [LONGEST, LONGEST]


@pytest.mark.parametrize("usual", [0.3, 4.0, 25.0])
def test_what_usually_takes_long_is_asked_for_seldom_and_known_soon(usual):
    waited = n_questions = 0
    while waited < usual:
        waited, n_questions = waited + pause_after(waited, usual), n_questions + 1
    assert n_questions <= 11
    assert waited - usual <= max(SHORTEST, 0.11 * usual)
