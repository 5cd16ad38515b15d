"""From C: a hot pair, two threads, among many live blocks, in random order, and what the statistics cost."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.figures import Bar, Figure
from benchmarks.measure import Server, Settings, column, measure, progress, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (64, 256, 1024, 4096, 8192, 65536, 1 << 20)
LIVE = (1_000, 100_000, 10_000_000)
LIVE_SIZE = 64
LLVM_MOST_LIVE = 100_000  # beyond it the run would take minutes
SEED = 20200728
MILLISECOND = 1e6
Answers = dict[str, list[list[float]]]
OURS = "targetmem"


def bars_against(answers: Answers, limits: dict[str, tuple[float, str]]) -> tuple[Bar, ...]:
    """Make a bar for each peer that was measured beside us: our time over its time."""
    return tuple(
        Bar(text, limit, ratio(answers, OURS, peer))
        for peer, (limit, text) in limits.items()
        if peer in answers and OURS in answers
    )


def start(stack: ExitStack, found: list[peers.Peer], size: int = 0, count: int = 0) -> list[Server]:
    """Start the peers that cache blocks of that size and hold that many live ones."""
    servers = []
    for peer in found:
        if peer.name == "llvm" and count > LLVM_MOST_LIVE:
            continue
        server = stack.enter_context(peer.start())
        largest = server.ask("largest")[0]
        if not largest or size <= largest:
            servers.append(server)
    return servers


def hot(found: list[peers.Peer], settings: Settings) -> Iterator[Figure]:
    """Allocate and free a cached size, one thread."""
    limits = {"umf": (1 / 4, "<= 1/4 of UMF"), "llvm": (1 / 12, "<= 1/12 of LLVM")}
    for size in SIZES:
        progress(f"hot pair, {size} bytes")
        with ExitStack() as stack:
            servers = [*start(stack, found, size), stack.enter_context(peers.EXTENSION.prepare().start())]
            answers = measure(servers, f"hot {size} {{count}}", settings, 31, 3 * MILLISECOND)
        yield Figure(f"hot pair, {size} B", "ns", column(answers), bars_against(answers, limits))


def two_threads(found: list[peers.Peer], settings: Settings) -> Iterator[Figure]:
    """Allocate and free in two threads, on a core each."""
    for first, second in ((64, 256), (1024, 4096), (64, 64), (4096, 4096)):
        kind = "same size" if first == second else "own sizes"
        progress(f"two threads, {kind}: {first} and {second} bytes")
        with ExitStack() as stack:
            servers = start(stack, found)
            answers = measure(servers, f"threads {first} {second} {{count}}", settings, 31, 2 * MILLISECOND)
        values = column(answers, 1)
        bars = (Bar("throughput of two threads >= 1.8 x one", 1.8, values[OURS], at_least=True),)
        yield Figure(
            f"two threads, {kind} {first}/{second} B", "x one thread", values, bars if OURS in values else ()
        )


def among_live(found: list[peers.Peer], settings: Settings) -> Iterator[Figure]:
    """Measure a hot pair, and free and allocate in random order, while many blocks are live."""
    base: dict[int, float] = {}
    for count in LIVE[:2] if settings.smoke else LIVE:
        with ExitStack() as stack:
            servers = start(stack, found, LIVE_SIZE, count)
            for server in servers:
                progress(f"{count} live blocks: {server.name}")
                server.ask(f"live {count} {LIVE_SIZE}")
            yield from hot_among(servers, settings, count, base)
            yield from random_order(servers, settings, count)


def hot_among(
    servers: list[Server], settings: Settings, count: int, base: dict[int, float]
) -> Iterator[Figure]:
    """Measure a hot pair beside `count` live blocks; `base` keeps our time beside the fewest, by size."""
    for size in (64, 4096):
        progress(f"hot pair of {size} bytes beside {count} live blocks")
        values = column(measure(servers, f"hot {size} {{count}}", settings, 21, 3 * MILLISECOND))
        first = base.setdefault(size, values[OURS])
        bar = Bar(f"flat: <= 1.5 x beside {LIVE[0]}", 1.5, values[OURS] / first)
        yield Figure(f"hot pair, {size} B, {count:.0e} live", "ns", values, (bar,))


def random_order(servers: list[Server], settings: Settings, count: int) -> Iterator[Figure]:
    """Free one random block, or 64 of them, and allocate as many."""
    limits = {"mimalloc": (2.0, "<= 2 x mimalloc"), "llvm": (1 / 5, "<= 1/5 of LLVM")}
    for depth in (1, 64):
        progress(f"random order, {depth} at a time, among {count} live blocks")
        answers = measure(servers, f"churn {depth} {SEED} {{count}}", settings, 15, 30 * MILLISECOND)
        if count != LLVM_MOST_LIVE:
            limits.pop("llvm", None)
        bars = bars_against(answers, limits) if depth == 1 else ()
        yield Figure(f"random order, {depth} at a time, {count:.0e} live", "ns", column(answers), bars)


def statistics_cost(settings: Settings) -> Iterator[Figure]:
    """Compare with a build without statistics, in several pairs of processes: each has its own layout."""
    both = [peers.TARGETMEM.prepare(), peers.WITHOUT_STATISTICS.prepare()]
    for size in (64, 4096):
        progress(f"statistics, {size} bytes")
        ratios, times = [], []
        for _ in range(settings.rounds(9)):
            with ExitStack() as stack:
                servers = start(stack, both)
                answers = measure(servers, f"hot {size} {{count}}", settings, 31, 2 * MILLISECOND)
            ratios.append(ratio(answers, OURS, peers.WITHOUT_STATISTICS.name))
            times.append(column(answers))
        values = {name: statistics.median(row[name] for row in times) for name in times[0]}
        bar = Bar("statistics cost <= 2 %", 1.02, statistics.median(ratios))
        yield Figure(f"hot pair with and without statistics, {size} B", "ns", values, (bar,))


def versions(found: list[peers.Peer]) -> dict[str, str]:
    """Ask each peer for its version."""
    answers = {}
    for peer in found:
        with peer.start() as server:
            answers[peer.name] = server.line("version")
    return answers


__all__ = ["among_live", "hot", "statistics_cost", "two_threads", "versions"]
