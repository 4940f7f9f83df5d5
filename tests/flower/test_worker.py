"""The process that does a node's work: kept from message to message, ended when its time is over, started anew."""

from __future__ import annotations

import os
import threading
import time

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'polyfed[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from polyfed.flower import internals
from polyfed.flower import worker as workers
from polyfed.flower.worker import Worker, WorkLost

APP = """
import os, time
from flwr.app import ConfigRecord, Message, RecordDict

def app(message, context):
    what = message.content.config_records["do"]["what"]
    if what == "hang":
        time.sleep(1000)
    if what == "exit":
        os._exit(3)
    if what == "raise":
        raise RuntimeError("deliberate")
    seen = {"process": os.getpid(), "node": str(context.node_id), "data": context.node_config["data"]}
    return Message(RecordDict({"answer": ConfigRecord(seen)}), reply_to=message)
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    (tmp_path / "tiny_app.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(workers, "APP", "tiny_app:app")
    said = []
    made = Worker(2**63 + 5, {"data": "/my table.csv"}, tmp_path, said.append)
    made.said = said
    yield made
    made.close()


def packed(what):
    internals.be(1, run=4)
    message = Message(RecordDict({"do": ConfigRecord({"what": what})}), dst_node_id=5, message_type="train")
    internals.number(message, "a" * 64)
    return internals.to_bytes(message)


def asked(worker, what="answer", seconds=60.0, leaving=lambda: False):
    reply = worker.answer(packed(what), seconds, leaving)
    return None if reply is None else internals.from_bytes(reply)


def test_it_is_kept_and_ended_and_started_anew(worker):
    first, second = asked(worker), asked(worker)
    seen = first.content.config_records["answer"]
    assert (seen["node"], seen["data"]) == (str(2**63 + 5), "/my table.csv")
    assert seen["process"] == second.content.config_records["answer"]["process"]
    assert first.metadata.reply_to_message_id == "a" * 64

    raised = asked(worker, "raise")
    assert raised.error.code == internals.RAISED
    assert raised.error.reason == "RuntimeError; the log of that node says more"
    assert asked(worker).content.config_records["answer"]["process"] == seen["process"]  # nothing was lost

    with pytest.raises(WorkLost, match="was not done within 1 s, and was ended"):
        asked(worker, "hang", seconds=1.0)
    assert "RuntimeError: deliberate" in "\n".join(worker.said)
    again = asked(worker).content.config_records["answer"]["process"]
    assert again != seen["process"]
    with pytest.raises(ProcessLookupError):
        _is_there(seen["process"])

    with pytest.raises(WorkLost, match="ended with code 3"):
        asked(worker, "exit")
    assert asked(worker).content.config_records["answer"]["process"] not in (seen["process"], again)


def test_a_node_that_shall_end_does_not_wait_for_its_work(worker):
    leaving = threading.Event()
    threading.Timer(3.0, leaving.set).start()
    began = time.monotonic()
    assert asked(worker, "hang", seconds=500.0, leaving=leaving.is_set) is None
    assert time.monotonic() - began < 400.0


def _is_there(process):
    os.kill(process, 0)
