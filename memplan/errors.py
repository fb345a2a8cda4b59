"""Every exception that memplan raises on purpose; all derive from `MemplanError`."""

from __future__ import annotations

from collections.abc import Sequence


class MemplanError(Exception):
    """Base of all memplan errors. The CLI prints its text and exits with `exit_code`."""

    exit_code = 2


class UsageError(MemplanError):
    """An argument, file or setting that memplan cannot use."""


class BudgetSyntaxError(UsageError):
    """A budget that cannot be read, or is not positive."""


class UnknownSolver(UsageError):
    """A solver name that no installed entry point offers."""


class SolverUnavailable(UsageError):
    """A solver whose optional library is not installed; the text names it."""


class UnknownDevice(UsageError):
    """A device name that is not in the device table."""


class NoSecondBackward(UsageError, RuntimeError):
    """A gradient of a planned step is differentiated; a `RuntimeError` too, as autograd's own."""


class InvalidGraph(MemplanError):
    """A graph that breaks a rule of the IR, such as a tensor read before it is made."""


class CaptureError(MemplanError):
    """The model cannot be captured as one graph; the text names the model's code line."""


class ProfileError(MemplanError):
    """An operation that cannot be run or priced on its own."""


class PlanMismatch(MemplanError):
    """A plan that was made for another model, other inputs or another schema version."""


class SwapError(MemplanError):
    """A transfer that failed or cannot start; nothing was computed from its bytes."""


class SolverStopped(MemplanError):
    """The solver ended before it found any schedule; that proves nothing.

    Attributes:
        feasible_bytes: The smallest budget for which a schedule is known, or None.
        limit_bytes: A proven lower limit: every schedule's peak is at least this.
    """

    def __init__(
        self, text: str, *, feasible_bytes: int | None = None, limit_bytes: int = 0
    ) -> None:
        super().__init__(text)
        self.feasible_bytes = feasible_bytes
        self.limit_bytes = limit_bytes


class InfeasibleBudget(MemplanError):
    """No schedule is known to fit the budget.

    Attributes:
        budget_bytes: The budget that was asked for.
        limit_bytes: A proven lower limit: every schedule's peak is at least this.
        feasible_bytes: The smallest budget for which a schedule is known, or None.
        op: The operation whose inputs, outputs and workspace reach the limit.
        top_tensors: Name and bytes of the largest tensors at that operation.
        advice: What would help.
    """

    exit_code = 3

    def __init__(
        self,
        budget_bytes: int,
        limit_bytes: int,
        *,
        feasible_bytes: int | None = None,
        op: str = "",
        top_tensors: Sequence[tuple[str, int]] = (),
        advice: str = "",
    ) -> None:
        proven = budget_bytes < limit_bytes
        text = f"no schedule {'fits' if proven else 'was found within'} {budget_bytes:,} bytes"
        if feasible_bytes is not None:
            text += f"; the smallest budget known to be feasible is {feasible_bytes:,} bytes"
        text += f"; proven lower limit {limit_bytes:,} bytes"
        if op:
            text += f", needed while {op!r} runs"
        if top_tensors:
            largest = ", ".join(f"{name} {nbytes:,}" for name, nbytes in top_tensors)
            text += f" (largest tensors: {largest})"
        if advice:
            text += f"; {advice}"
        super().__init__(text)
        self.budget_bytes = budget_bytes
        self.limit_bytes = limit_bytes
        self.feasible_bytes = feasible_bytes
        self.op = op
        self.top_tensors = tuple(top_tensors)


class InvalidSchedule(MemplanError):
    """The judge found a step that breaks a rule: a bug in a solver, not in the user's model.

    Attributes:
        step: Index into the schedule; its length where something is missing at the end.
        rule: The rule that the step breaks, in words.
    """

    def __init__(self, step: int, rule: str) -> None:
        super().__init__(f"step {step}: {rule}")
        self.step, self.rule = step, rule
