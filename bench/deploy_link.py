"""A network that delays and loses packets: a namespace of its own, joined to this one by a program that does both.

It is what `tc netem` does, for kernels that have none: two TUN devices, and every IP packet that one of them hands out is
thrown away or written to the other a while later. TCP above it sees losses and round trips as on a bad line. Needs root.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

TUN, TUNSETIFF, PLAIN = Path("/dev/net/tun"), 0x400454CA, 0x0001 | 0x1000  # IFF_TUN | IFF_NO_PI
HERE, THERE = "10.213.77.1", "10.213.77.2"
LARGEST = 65536  # bytes of a packet


def is_possible() -> bool:
    return os.geteuid() == 0 and TUN.exists()


class Link:
    """While it is entered, `inside` starts a command over there, from where this machine is at HERE."""

    def __init__(self, delay: float, loss: float, seed: int = 0) -> None:
        self.delay, self.loss = delay, loss  # seconds one way, and the share of packets
        self.n_packets = self.n_lost = 0
        self.name = f"polyfed-{os.getpid()}"
        self.inside = ["ip", "netns", "exec", self.name]
        self._chance, self._ends = random.Random(seed), list[int]()
        self._over = threading.Event()
        self._passing = threading.Thread(target=self._pass, daemon=True)

    def __enter__(self) -> Link:
        _ip("netns", "add", self.name)
        try:
            for device in ("here", "there"):
                self._ends.append(_device(f"pf{device}"))
            _ip("link", "set", "pfthere", "netns", self.name)
            _up([], "pfhere", HERE, THERE)
            _up(["-n", self.name], "pfthere", THERE, HERE)
        except BaseException:
            self._close()
            raise
        self._passing.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._passing.join()
        self._close()

    def _close(self) -> None:
        for end in self._ends:
            os.close(end)  # with it the device goes
        _ip("netns", "del", self.name)

    def _pass(self) -> None:
        """Hold each packet back for a while; those that are lost are not even held."""
        waiting: list[tuple[float, int, int, bytes]] = []
        other = dict(zip(self._ends, reversed(self._ends), strict=True))
        while not self._over.is_set():
            pause = min(max(waiting[0][0] - time.monotonic(), 0.0), 0.2) if waiting else 0.2
            for end in select.select(self._ends, [], [], pause)[0]:
                packet = os.read(end, LARGEST)
                self.n_packets += 1
                if self._chance.random() < self.loss:
                    self.n_lost += 1
                else:
                    heapq.heappush(waiting, (time.monotonic() + self.delay, self.n_packets, other[end], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(waiting)
                os.write(end, packet)


def _device(name: str) -> int:
    end = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), PLAIN))
    return end


def _up(where: list[str], device: str, mine: str, other: str) -> None:
    _ip(*where, "addr", "add", mine, "peer", other, "dev", device)
    _ip(*where, "link", "set", device, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
