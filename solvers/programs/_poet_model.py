"""POET's model: Checkmate's stages, with pages out to and in from a second memory.

`poet` says where it comes from and how it deviates from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memplan.planner.moves import Move, gaps_of
from memplan.planner.problem import Problem
from memplan.planner.schedule import sequence_of
from memplan.solvers.programs._milp import CostScale
from memplan.solvers.programs._stage_model import StageModel
from memplan.solvers.programs._stages import Stages


class PoetModel(StageModel):
    """The variables of Checkmate, and those of pages.

    R and S are Checkmate's, S being the paper's SRam. Out[t, k], In[t, k]: tensor k is paged out,
    or in, during stage t. D[t, k], the paper's SSd: a copy of k lies there when stage t begins.

    Args:
        problem: The step; pages go to its first tier.
        stages: Of the step.
        energy: (ops,) of one run of each op, in any unit.
        out_energy: Of a page out, by tensor, in that unit.
        in_energy: The same of a page in.
        longest_ns: The most time that all runs may take together; None for any.
    """

    def __init__(
        self,
        problem: Problem,
        stages: Stages,
        energy: Sequence[int],
        out_energy: Mapping[int, int],
        in_energy: Mapping[int, int],
        longest_ns: int | None = None,
    ) -> None:
        self.tier = problem.tiers[0]
        self.out: dict[tuple[int, int], Any] = {}
        self.into: dict[tuple[int, int], Any] = {}
        super().__init__(problem, stages)
        import pulp

        self._copies()

        self.scale = CostScale.of([*energy, *out_energy.values(), *in_energy.values()])
        unit = self.scale.unit_ns
        self.problem.setObjective(
            pulp.LpAffineExpression(
                [(r, energy[i] / unit) for (_, i), r in self.r.items()]
                + [(v, out_energy[k] / unit) for (_, k), v in self.out.items()]
                + [(v, in_energy[k] / unit) for (_, k), v in self.into.items()]
            )
        )
        if longest_ns is not None:
            graph = self.graph
            runs = [(r, graph.ops[i].time_ns / unit) for (_, i), r in self.r.items()]
            self._row(runs, "<=", (longest_ns - graph.time_ns) / unit)

    def _stays(self, t: int, k: int) -> list[Any]:
        """As Checkmate's, or paged in during stage t."""
        page = self.into[t, k] = self.problem.add_variable(f"In_{t}_{k}", 0, 1, "Binary")
        return [*super()._stays(t, k), page]

    def _copies(self) -> None:
        """A page in needs a copy, a copy a page out, a page out the tensor; and room for all."""
        begun: dict[int, Any] = {}
        for t in range(len(self.graph.ops)):
            for k in [k for k in self.stages.carried[t] if (t, k) in self.into]:
                page_out = self.problem.add_variable(f"Out_{t}_{k}", 0, 1, "Binary")
                self.out[t, k] = page_out
                self._row([(page_out, 1.0), (self.s[t, k], -1.0)], "<=", 0.0)
                copies = [(self.into[t, k], 1.0)]
                self._row([*copies, *([(begun[k], -1.0)] if k in begun else [])], "<=", 0.0)
                copy = self.problem.add_variable(f"D_{t + 1}_{k}", 0, 1)
                before = [(begun[k], -1.0)] if k in begun else []
                self._row([(copy, 1.0), (page_out, -1.0), *before], "<=", 0.0)
                begun[k] = copy
            room = self.tier.capacity_bytes / self.bytes_unit
            sizes = [(v, self.graph.tensors[k].nbytes / self.bytes_unit) for k, v in begun.items()]
            if sizes:
                self._row(sizes, "<=", room)

    def paged(self, values: Mapping[str, float]) -> tuple[tuple[int, ...], list[Move]]:
        """Return the ops to run, and what is away when: what S lets go and no run makes again."""
        sequence = sequence_of(self.schedule(values))
        stage_of, t = [], 0
        for i in sequence:
            stage_of.append(t)
            t += i == t
        moves = []
        for gap in gaps_of(self.graph, sequence):
            k = gap.tensor
            between = range(stage_of[gap.out] + 1, stage_of[gap.back] + 1)
            away = [t for t in between if (t, k) in self.s and values[self.s[t, k].name] < 0.5]
            if away:
                moves.append(gap)
        return sequence, moves
