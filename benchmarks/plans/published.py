"""Published instances with the best values known; they are no part of this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from memplan.graph_capture.graph import Graph
from memplan.graph_capture.graph_files import read_graph
from memplan.planner.schedule import schedule_of
from memplan.planner.simulate import simulate

INSTANCES = Path(__file__).resolve().parents[3] / "shared" / "instances"
MONET = ("monet_vgg16", "monet_unet", "monet_mobilenet", "monet_r50")
KNOWN_PERCENT: dict[str, dict[int, float | None]] = {
    "cm_cm1": {90: 0.029, 80: 0.136, 70: 0.891},
    "cm_cm2": {90: 0.108, 80: 0.279, 70: 0.564},
    "rl100": {90: 0.789, 80: 2.296, 70: 7.348},
    "rl250": {90: 0.904, 80: 4.9, 70: None},
    "rl500": {90: 0.7, 80: 3.4, 70: None},
    "rl1000": {90: 0.7, 80: 3.4, 70: None},
}
"""Extra time in per cent by budget in per cent of the peak, the captured order kept: proven, or
the best that Moccasin (ICML 2023) reports."""

TRACE_PERCENT: dict[str, dict[int, float | None]] = {
    "resnet32": {90: 1.31, 80: 2.48, 70: 4.63, 60: 7.37, 50: 10.68, 40: 14.04, 30: 17.86},
    "unet": {90: 3.31, 80: 5.77, 70: 8.46, 60: 14.89, 50: 15.87, 40: None, 30: None},
    "tv_densenet121": {
        **{90: 2.58, 80: 6.38, 70: 10.36, 60: 14.14},
        **{50: 17.63, 40: 29.28, 30: 42.58},
    },
    "inceptionv4": {
        **{90: 0.79, 80: 2.44, 70: 4.42, 60: 6.62},
        **{50: 9.19, 40: 13.8, 30: 24.35},
    },
}
"""The same of the heuristic h_eq of DTR (ICLR 2021), by its authors' simulator on their traces of
steps; None where it ran out of memory."""


def peak_bytes(graph: Graph) -> int:
    """Return the peak of the step with nothing recomputed."""
    return simulate(graph, schedule_of(graph, range(len(graph.ops)))).peak_bytes


def published(names: tuple[str, ...] | None) -> Iterator[tuple[str, Graph, int, float | None]]:
    """Yield name, graph, budget and the best known share of extra time of each instance."""
    for name in (*MONET, *KNOWN_PERCENT):
        path = INSTANCES / f"{name}.json"
        if (names and name not in names) or not path.exists():
            continue
        graph = read_graph(path)
        if name in MONET:
            for known in json.loads(path.read_text())["known"]:
                yield name, graph, known["budget"], known["cost"] / graph.time_ns - 1
            continue
        yield from _at_percents(name, graph, KNOWN_PERCENT[name])


def traces(names: tuple[str, ...] | None) -> Iterator[tuple[str, Graph, int, float | None]]:
    """Yield the same of DTR's traces, with the heuristic's share of extra time."""
    for name, known in TRACE_PERCENT.items():
        path = INSTANCES / "dtr" / f"{name}.json"
        if (names is None or f"dtr/{name}" in names) and path.exists():
            yield from _at_percents(f"dtr/{name}", read_graph(path), known)


def _at_percents(
    name: str, graph: Graph, known: dict[int, float | None]
) -> Iterator[tuple[str, Graph, int, float | None]]:
    peak = peak_bytes(graph)
    for percent, best in known.items():
        yield name, graph, peak * percent // 100, None if best is None else best / 100
