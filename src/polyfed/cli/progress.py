"""Progress on stderr: a bar over the rounds, the scores of the last evaluation, clients, bytes and the time left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from polyfed.cli.output import note, number
from polyfed.counting import in_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

    from polyfed.experiments.comparing import Cell
    from polyfed.folders.lines import Event

EVERY = 10.0  # seconds between two lines where there is no bar


def progress_bar(
    rounds: int, *, completed: int = 0, label: str = "", quiet: bool = False
) -> AbstractContextManager[Callable[[Event], None]]:
    """A context whose value takes the events of a run: a bar, or where stderr is no terminal a line every ten seconds."""
    if quiet:
        return nullcontext(lambda event: None)
    return _bar(rounds, completed, label) if sys.stderr.isatty() else Lines(rounds, completed, label)


@contextmanager
def shared_bar(cells: Sequence[Cell], *, quiet: bool = False, outlook: bool = False) -> Iterator[Callable[..., None]]:
    """One bar over many runs that go on at once; lines before their long rounds too, if there is to be an `outlook`.

    Its value takes a run and an event of it, or a run alone when it has ended, in whatever way.
    """
    from polyfed.experiments.comparing import finished

    rounds = {cell.folder: cell.config.run.rounds for cell in cells}
    over = {cell.folder for cell in cells if finished(cell)}
    completed = {folder: n if folder in over else 0 for folder, n in rounds.items()}

    def state() -> dict[str, Any]:
        return {"completed": sum(completed.values()), "reported": f"{len(over)} of {len(rounds)} runs ended"}

    def take(cell: Cell, event: Event | None = None) -> None:
        if event is not None and event["event"] != "round":
            if outlook and not quiet:
                report_outlook(event, cell.folder.name)
            return
        if event is None:
            over.add(cell.folder)
        completed[cell.folder] = max(completed[cell.folder], rounds[cell.folder] if event is None else event["round"])
        if bar is not None and line is not None:
            bar.update(line, **state())

    # A round of one method may take minutes, of another none.
    with nullcontext() if quiet or not sys.stderr.isatty() else _rich_bar(speed_estimate_period=600) as bar:
        line = None if bar is None else bar.add_task("rounds", total=sum(rounds.values()), **state())
        yield take


@contextmanager
def images_bar(*, quiet: bool = False) -> Iterator[None]:
    """A bar with the time left while a network sees images; none if it has seen them all before."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    bar = _rich_bar(transient=True)
    with ExitStack() as stack:
        stack.callback(bar.stop)
        stack.enter_context(_images_on(bar))
        yield


@contextmanager
def _images_on(bar: Progress) -> Iterator[None]:
    """While a network sees images, a line of this bar says how many are left; those that were on disk do not count."""
    from polyfed.experiments.building import watching

    line, known = None, 0  # of the images that are being seen, and how many were known before

    def seen(done: int, of: int) -> None:
        nonlocal line, known
        if line is None and done < of:
            line, known = bar.add_task("images", total=of - done, reported=""), done
            bar.start()
            bar.refresh()
        if line is not None:
            bar.update(line, completed=done - known)
        if line is not None and done == of:
            bar.remove_task(line)
            line = None

    token = watching.set(seen)
    try:
        yield
    finally:
        watching.reset(token)


def _rich_bar(**options: Any) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[reported]}", markup=False),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        **options,
    )


class Lines:
    """A line every few seconds, also while a round goes on; a run that is over sooner says nothing."""

    def __init__(self, rounds: int, completed: int, label: str, every: float = EVERY) -> None:
        self._rounds, self._completed, self._label, self._every = rounds, completed, label, every
        self._first, self._began = completed, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self, event: Event) -> None:
        report_outlook(event, self._label)
        if event["event"] == "round":
            self._completed = event["round"]

    def _report(self) -> None:
        while not self._over.wait(self._every):
            note(self.line(time.monotonic() - self._began))

    def line(self, seconds: float) -> str:
        done = self._completed - self._first
        head = f"{self._label}: " if self._label else ""
        reported = f"{head}{self._completed} of {self._rounds} rounds after {in_words(seconds)}"
        left = self._rounds - self._completed
        return f"{reported}, about {in_words(seconds / done * left)} left" if done and left else reported


@contextmanager
def _bar(rounds: int, completed: int, label: str) -> Iterator[Callable[[Event], None]]:
    bar = _rich_bar()
    line = bar.add_task(label or "rounds", total=rounds, completed=completed, reported="")
    reported, scores, n_bytes = "", "", 0

    def on_event(event: Event) -> None:
        nonlocal reported, scores, n_bytes
        if event["event"] in ("outlook", "stopped"):
            bar.console.print(outlook_line(event), markup=False, highlight=False)  # above the bar
        elif event["event"] == "round":
            n_bytes += event["bytes_up"] + event["bytes_down"]
            reported = f"{len(event['sampled']) - len(event['rejected'])} clients, {in_bytes(n_bytes)}"
            bar.update(line, completed=event["round"], reported=f"{reported}{scores}")
        elif event["event"] == "evaluation" and event["model"] == "personal":
            scores = "".join(f", {task} {text}" for task, text in headline(event).items())
            bar.update(line, reported=f"{reported}{scores}")

    with bar, _images_on(bar):
        yield on_event


def report_outlook(event: Event, label: str = "") -> None:
    if event["event"] in ("outlook", "stopped"):
        note(f"{label}: {outlook_line(event)}" if label else outlook_line(event))


def outlook_line(event: Event) -> str:
    """
    >>> outlook_line({"round": 1, "rounds": 3, "seconds": 200.0, "evaluation_seconds": 40.0})
    'round 1 of 3 will take about 3 minutes, and measuring its models about 40 seconds'
    >>> ahead = {"round": 1, "rounds": 3, "seconds": 40.0, "evaluation_seconds": 0.0, "run_seconds": 130.0}
    >>> outlook_line({**ahead, "shorter": "run.sample=0.5"})
    'round 1 of 3 will take about 40 seconds, and all that are left about 2 minutes; shorter with --set run.sample=0.5'
    >>> outlook_line({"event": "stopped", "round": 20, "rounds": 60, "best": 10})
    'stopped after round 20 of 60: no round since 10 was better'
    """
    if event.get("event") == "stopped":
        return f"stopped after round {event['round']} of {event['rounds']}: no round since {event['best']} was better"
    line = f"round {event['round']} of {event['rounds']} will take about {in_words(event['seconds'])}"
    if event["evaluation_seconds"] >= 1:
        line += f", and measuring its models about {in_words(event['evaluation_seconds'])}"
    if event.get("run_seconds"):
        line += f", and all that are left about {in_words(event['run_seconds'])}"
    return f"{line}; shorter with --set {event['shorter']}" if event.get("shorter") else line


def in_words(seconds: float) -> str:
    """
    >>> in_words(1.2), in_words(89), in_words(5400), in_words(1e6)
    ('1 second', '89 seconds', '90 minutes', '278 hours')
    """
    units = ((3600, "hour"), (60, "minute"), (1, "second"))
    size, unit = next((size, unit) for size, unit in units if seconds >= 2 * size or size == 1)
    n = max(1, round(seconds / size))
    return f"{n} {unit}{'s' if n > 1 else ''}"


def headline(event: Event) -> dict[str, str]:
    """Task → its first score, averaged over the clients of an evaluation."""
    values: dict[tuple[str, str], list[float]] = {}
    for tasks in event["clients"].values():
        for task, metrics in tasks.items():
            name = "accuracy" if "accuracy" in metrics else "rmse"
            if metrics.get(name) is not None:
                values.setdefault((task, name), []).append(metrics[name])
    return {task: f"{name} {number(sum(found) / len(found))}" for (task, name), found in values.items()}
