"""What is said while a run goes on."""

from __future__ import annotations

from command_line import RUN, people

OUTLOOK = {"event": "outlook", "rounds": 1, "seconds": 2400.0, "evaluation_seconds": 9.0}


def test_a_long_round_is_announced_off_a_terminal(monkeypatch, polyfed, home):
    from polyfed.engine import outlook

    monkeypatch.setattr(outlook.Forecast, "event", lambda self, round, settings: OUTLOOK | {"round": round})
    (home / "t.csv").write_text(people())
    done = polyfed(*RUN, "--binary", "sick", "--json")
    assert done.err == "pfed-hier: round 1 of 1 will take about 40 minutes, and measuring its models about 9 seconds\n"
    assert "round 1: expected to take 2409 s" in (home / "r" / "run.log").read_text()
    assert polyfed(*RUN[:-1], "quiet", "--binary", "sick", "--quiet").err == ""
