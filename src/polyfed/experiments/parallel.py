"""Work that several processes share out. Each begins anew, and sends word of how far it is while it works."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from polyfed.folders.lines import Event

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

Item = TypeVar("Item")
Result = TypeVar("Result")
Notify = Callable[[Event], None]

PAUSE = 0.2  # seconds between two looks at the words

# Of a process that works: where its words go, and whether it was stopped by Ctrl-C.
_words: Queue[tuple[int, Event]] | None = None
_stopped = False


def share_out(
    work: Callable[[Item, Notify], Result],
    items: Sequence[Item],
    jobs: int,
    on_word: Callable[[Item, Event], None] | None = None,
) -> Iterator[Result]:
    """Results as they come. `work` can be pickled, and may send events, which reach `on_word` with their item."""
    # A process that is forked while torch has threads may never come back: each begins anew.
    fresh = multiprocessing.get_context("spawn")
    words = fresh.Queue()
    with ProcessPoolExecutor(min(jobs, len(items)), mp_context=fresh, initializer=_begin, initargs=(words,)) as pool:
        waiting = {pool.submit(_do, work, number, item) for number, item in enumerate(items)}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=PAUSE, return_when=FIRST_COMPLETED)
                with suppress(queue.Empty):
                    while True:
                        number, word = words.get_nowait()
                        if on_word is not None:
                            on_word(items[number], word)
                yield from (future.result() for future in done)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise


def _do(work: Callable[[Item, Notify], Result], number: int, item: Item) -> Result:
    global _stopped
    words = _words
    assert words is not None
    try:
        if _stopped:  # the pool hands out an item ahead, which cannot be cancelled
            raise KeyboardInterrupt
        return work(item, lambda word: words.put((number, word)))
    except KeyboardInterrupt:
        _stopped = True
        raise


def _begin(words: Queue[tuple[int, Event]]) -> None:
    import torch

    global _words
    torch.set_num_threads(1)
    words.cancel_join_thread()  # words that nobody reads any more must not keep a process from its end
    _words = words
