"""What a warm node does with what a server says, and with what it does not say. The server is a script here."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'polyfed[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from polyfed.errors import ConfigError, PolyfedError
from polyfed.flower import internals, warm
from polyfed.flower.deploy.processes import Signals
from polyfed.flower.warm import Forgotten, Rejected, WarmNode
from polyfed.flower.worker import WorkLost

END = object()


class Script:
    """A server that answers each request with the next of what it was given for it; END ends the node."""

    def __init__(self, **answers):
        self.answers, self.calls, self.replies, self.signals = answers, [], [], Signals()

    def _next(self, name, *given):
        self.calls.append(name)
        rest = self.answers.get(name)
        answer = rest.pop(0) if rest else {"pull": END, "heartbeat": True, "activate": 12}.get(name)
        if answer is END:
            self.signals.received, answer = 15, None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def activate(self):
        return self._next("activate")

    def deactivate(self, node):
        self.calls.append(("goodbye", node))

    def heartbeat(self, node):
        return self._next("heartbeat")

    def pull(self, node):
        return self._next("pull")

    def fetch(self, node, asked, trying):
        return self._next("fetch") or asked

    def push(self, node, reply, seconds, trying):
        self._next("push")
        self.replies.append(reply)


class Echo:
    """A worker that sends back what it gets, or what it was given."""

    closed = False

    def __init__(self, *answers):
        self.answers, self.seconds = list(answers), []

    def answer(self, packed, seconds, leaving):
        self.seconds.append(seconds)
        given = self.answers.pop(0) if self.answers else packed
        if isinstance(given, Exception):
            raise given
        return given

    def close(self):
        self.closed = True


def status(code, number=None):
    described = {"detail": "no"} if number is None else {"code": number, "detail": "no"}
    response = httpx.Response(code, json=described, request=httpx.Request("POST", "https://x"))
    return httpx.HTTPStatusError("no", request=response.request, response=response)


def message(ttl=30.0):
    internals.be(1, run=4)
    made = Message(RecordDict({"a": ConfigRecord({"b": 1})}), dst_node_id=12, message_type="train", ttl=ttl)
    internals.number(made, "a" * 64)
    return made


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "pause_after", lambda waited, usual=0.0: 0.0)
    monkeypatch.setattr(warm, "LONGEST", -1.0)
    monkeypatch.setattr(warm, "PAUSE", 0.0)

    def run(script, worker=None):
        said, worker = [], worker or Echo()
        try:
            WarmNode(script, tmp_path / ".alive", script.signals, said.append).run(lambda number: worker)
        finally:
            script.worker, script.said = worker, "\n".join(said)
        return script

    return run


def test_messages_are_answered_and_the_node_says_goodbye(node, tmp_path):
    script = node(Script(pull=[None, message(), None, message()]))
    assert len(script.replies) == 2
    assert script.worker.seconds == [30.0, 30.0]
    assert script.worker.closed
    assert script.calls[-1] == ("goodbye", 12)
    assert not (tmp_path / ".alive").exists()


def test_a_node_expects_the_next_message_when_the_last_two_came(node, monkeypatch):
    expected, clock, gaps = [], [0.0], [3600.0, 7.0, 9.0, 5.0, 1.0]

    def pause(waited, usual=0.0):
        expected.append(usual)
        clock[0] += gaps[0]
        return 0.0

    script = Script(pull=[step for _ in gaps[1:] for step in (None, message())])
    fetch = script.fetch
    script.fetch = lambda *given: gaps.pop(0) and fetch(*given)
    monkeypatch.setattr(warm, "pause_after", pause)
    monkeypatch.setattr(warm.time, "monotonic", lambda: clock[0])
    node(script)
    assert expected == [0.0, 0.0, 7.0, 7.0, 5.0]  # the wait before the first message was no round


def test_a_server_that_is_not_there_is_waited_for(node):
    away = [httpx.ConnectError("rejected"), status(503), httpx.ReadTimeout("late")]
    script = node(Script(activate=[*away, 12], pull=[message(), *away, message()]))
    assert len(script.replies) == 2
    assert script.said.count("does not answer") == 2  # once each time, not at every look
    assert "The server answers again" in script.said


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (status(403, internals.NODE_REJECTED), Rejected, "^$"),
        (status(400, internals.OTHER_VERSION), ConfigError, "another version of Flower; install the same"),
        (status(401), PolyfedError, "does not take this node's signature; set the clocks"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] x"), PolyfedError, "ca.crt did not sign"),
    ],
)
def test_what_waiting_would_not_mend_ends_it(node, answer, kind, sentence):
    with pytest.raises(kind, match=sentence):
        node(Script(activate=[answer]))


def test_a_node_that_was_killed_says_goodbye_before_it_comes_back(node, tmp_path):
    (tmp_path / ".alive").write_text("77")
    script = node(Script())
    assert script.calls[:2] == [("goodbye", 77), "activate"]
    assert "the server knows now" in script.said


@pytest.mark.parametrize("written", ["", "x", "\x00"])
def test_a_sign_of_life_that_names_nobody_is_left_alone(node, tmp_path, written):
    (tmp_path / ".alive").write_text(written)
    assert node(Script()).calls[0] == "activate"


def test_work_that_is_lost_is_told_and_the_node_goes_on(node):
    lost = WorkLost("the work was not done within 30 s, and was ended")
    script = node(Script(pull=[message(), message()]), Echo(lost))
    assert script.replies[0].error.code == internals.CRASHED
    assert script.replies[0].error.reason.startswith("the work was not done within 30 s")
    assert script.replies[0].metadata.reply_to_message_id == "a" * 64
    assert script.replies[1].has_content()


@pytest.mark.parametrize(
    ("where", "error", "sentence"),
    [
        ("push", status(409, internals.RUN_OVER), "its run has ended"),
        ("fetch", KeyError("an object that nobody sent"), "nobody sent"),
        ("fetch", httpx.ReadTimeout("late"), "late"),
        ("push", status(500), "error 500"),
    ],
)
def test_a_message_that_is_lost_does_not_end_the_node(node, where, error, sentence):
    script = node(Script(pull=[message(), message()], **{where: [error]}))
    assert f"A message is lost: {sentence}" in script.said.replace("'an object that ", "")
    assert len(script.replies) == 1


def test_a_node_that_is_revoked_is_told(node):
    with pytest.raises(Forgotten):
        node(Script(pull=[message(), status(401)]))


def test_a_server_that_does_not_know_the_heart_that_beats(node, monkeypatch):
    monkeypatch.setattr(warm, "BEATS", 0.0)
    script = Script(pull=[None] * 10**6, heartbeat=[False])
    with pytest.raises(Forgotten):
        node(script)
    assert script.worker.closed


def test_requests_that_the_network_loses_are_made_again(tmp_path):
    node, calls = WarmNode(Script(), tmp_path / "a", Signals(), print), []

    def call(request):
        calls.append(request)
        if len(calls) < 3:
            raise httpx.ReadError("cut")
        return "done"

    assert node._trying(call, "x") == "done"
    assert calls == ["x"] * 3


def test_no_app_of_a_server_can_reach_a_warm_node():
    assert not [name for name in dir(internals.FleetRequests) if "fab" in name.lower() or "run" in name.lower()]
