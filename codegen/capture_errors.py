"""What torch's tracer says when it gives up, in one line that names the user's own code.

The tracer's texts run over many lines and advise on settings that do not help here; what counts
in them is the reason, which stands in a fixed place, and the stack of the code it traced.
"""

from __future__ import annotations

import ast
import re
from traceback import FrameSummary

from torch._dynamo import exc

from memplan.errors import CaptureError, MemplanError
from memplan.graph_capture.user_code import frames_in, user_line

_EXPLANATION = re.compile(
    r"Explanation: (.*?)\s*(?=\n\s*(?:Hint|Developer debug context):|\Z)", re.S
)
_CONTEXT = re.compile(r"Developer debug context: (.*)")
_RAISED = re.compile(r"\b(?:raised exception|got) (\w+)\((.*)\)\s*\Z", re.S)
_CALLED = re.compile(r"func='(\w+)' (.+?):(\d+);")
_SENTENCE_END = re.compile(r"(?<=[.`])\s+(?=[A-Z])")
_USER_CODE = "from user code:"

_MEANING = {
    "Data-dependent branching": (
        "a branch depends on the values of a tensor; use torch.where, or decide outside the model"
    ),
    "Data-dependent assertion failed (cannot compile partial graph)": (
        "an assertion fails, or depends on the values of a tensor; check it outside the model"
    ),
    "infinite generator detected": "a generator does not end; use a loop of fixed length",
}
"""Reasons that are plainer than the tracer's, with what to do; by its name for them."""

_SIGNS = (
    (
        re.compile(r"\bmodule: random,|`[^`]*Random\.\w+`|_numpy/random|np\.random"),
        "a value is drawn by Python's random module; draw it with torch, or outside the model",
    ),
    (
        re.compile(r"UserDefinedObjectVariable\(Generator\)"),
        "random numbers are drawn from a torch.Generator; draw from the global one, which "
        "torch.manual_seed sets",
    ),
    (
        re.compile(r"function `(manual_seed|seed|get_rng_state|set_rng_state|fork_rng)`"),
        "the state of the random generator is set or read; do that outside the model",
    ),
    (
        re.compile(r"Calling torch\.func\.\w+\(compiled_fn\)"),
        "the planned module is called inside torch.vmap or torch.func; call its `original` there",
    ),
    (
        re.compile(r"`torch\.autograd\.grad`"),
        "the model calls torch.autograd itself, which would need a double backward; take that "
        "derivative outside the model",
    ),
    (
        re.compile(r"Module-level backwards hooks"),
        "a module has a backward hook; hook its output tensor with register_hook instead",
    ),
    (
        re.compile(r"`pack_padded_sequence`"),
        "a packed sequence has lengths that depend on the values of a tensor; give the layer "
        "padded sequences",
    ),
    (
        re.compile(r"Could not guard on data-dependent expression"),
        "a number depends on the values of a tensor; compute it outside the model",
    ),
)
"""The same for reasons that are known by a part of what the tracer says."""

_PLACES = (
    (
        re.compile(r"[/\\]_fully_shard[/\\]"),
        "the model is sharded already, and what fully_shard hooks around it cannot be planned; "
        "call memplan.compile first, then fully_shard on what it returns",
    ),
    (
        re.compile(r"[/\\]fsdp[/\\]"),
        "the model is sharded already by FullyShardedDataParallel, whose hooks cannot be planned; "
        "call memplan.compile on the plain model, then fully_shard on what it returns",
    ),
)
"""The same for reasons that are known by the file in which the tracer stops."""

_BATCH_NORM = re.compile(r"[/\\]nn[/\\]modules[/\\]batchnorm\.py$")
_COUNTED = re.compile(r"data-dependent expression|[.`]item\b")

_SPARSE = "SparseTensorImpl"
_OVERWRITTEN = "modified by an inplace operation"


def capture_error(failure: Exception) -> MemplanError | None:
    """Return the error to raise in place of `failure`.

    Returns:
        The planner's own error where that is what stopped the tracer, a `CaptureError` for what
        the tracer met in the user's code, and None for an error that is not the tracer's: the
        step was running.
    """
    if isinstance(failure, exc.BackendCompilerFailed):
        inner = failure.inner_exception
        if isinstance(inner, MemplanError):
            return inner
        if _SPARSE in str(inner):
            return CaptureError(
                "a gradient is sparse, as that of nn.Embedding(sparse=True); make it dense"
            )
        if _OVERWRITTEN in str(inner):
            return CaptureError(
                "a value that the gradient of some output needs is overwritten in place, which "
                "plain PyTorch refuses too once that output is used; write into a copy of it, or "
                "detach that output"
            )
        return CaptureError(
            f"the traced step cannot be turned into graphs: {_type_and_text(inner)}; "
            "please report this as a bug"
        )
    if isinstance(failure, exc.FailOnRecompileLimitHit):
        return CaptureError(
            "too many different input shapes, modes or Python numbers came for one optimized "
            "module; pad the inputs to a few shapes, make a number that changes with each step a "
            "tensor, or compile the model again"
        )
    if _is_tracers(failure):
        return CaptureError(explain(failure))
    return None


def explain(failure: BaseException) -> str:
    """Return one line: what the tracer could not do or what was raised, and where."""
    line = user_line(_frames(failure))
    at = f", at {line}" if line else ""
    raised = _raised(failure)
    if raised:
        return f"the model or its loss raises {raised}{at}"
    reason, _, advice = _reason(failure).partition("; ")
    advice = f"; {advice}" if advice else "; change that line or take it out of the step"
    return f"the step cannot be captured as one graph: {reason}{at}{advice}"


def _is_tracers(failure: BaseException) -> bool:
    """Whether it was met while tracing; the tracer notes its frame on exceptions of any type."""
    noted = hasattr(failure, "innermost_user_frame_summary")
    return isinstance(failure, exc.TorchDynamoException) or noted


def _frames(failure: BaseException) -> list[FrameSummary]:
    """Return the frames of the traced code, outermost first."""
    stack = getattr(failure, "real_stack", None)
    return list(stack or frames_in(str(failure).partition(_USER_CODE)[2]))


def _raised(failure: BaseException) -> str:
    """Return type and text of the exception that the traced code raised; empty if none."""
    text = _own_text(failure)
    if isinstance(failure, exc.Unsupported) and isinstance(failure.__cause__, TypeError):
        return f"TypeError: {_one_line(str(failure.__cause__))}{_of_function(text)}"
    for part in (_found(_CONTEXT, text), _found(_EXPLANATION, text)):
        if match := _RAISED.search(part):
            return _as_raised(match[1], match[2])
    if isinstance(failure, exc.InternalTorchDynamoError):
        name, _, said = _one_line(text).partition(": ")
        return f"{name}: {said}" if name == RecursionError.__name__ else ""
    return "" if isinstance(failure, exc.TorchDynamoException) else _type_and_text(failure)


def _reason(failure: BaseException) -> str:
    text = _own_text(failure)
    title = text.partition("\n")[0].strip()
    frames = _frames(failure)
    if frames and _BATCH_NORM.search(frames[-1].filename) and _COUNTED.search(text):
        return (
            "BatchNorm(momentum=None) weighs its statistics by a count that changes with each "
            "step; give it a momentum"
        )
    for place, meaning in _PLACES:
        if frames and place.search(frames[-1].filename):
            return meaning
    if title in _MEANING:
        return _MEANING[title]
    for sign, meaning in _SIGNS:
        if sign.search(text):
            return meaning
    explanation = _one_line(_found(_EXPLANATION, text)) or _one_line(title)
    said = _SENTENCE_END.split(explanation)[0].replace(".`", "`") or type(failure).__name__
    said = re.sub(r"^Dynamo\b( currently)?", "the tracer", said).replace(" (has_kwargs False)", "")
    return said.rstrip(".").replace("; ", ", ")


def _of_function(text: str) -> str:
    """Return which function was called with the wrong inputs, if the tracer says so."""
    called = _CALLED.search(_found(_CONTEXT, text))
    if not called:
        return ""
    return f" (calling {called[1]} of {user_line([FrameSummary(called[2], int(called[3]), '')])})"


def _own_text(failure: BaseException) -> str:
    """Return what the tracer says, without the stack that it adds."""
    return str(failure).partition(_USER_CODE)[0]


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _as_raised(name: str, written: str) -> str:
    """Return `name: text` for an exception that is written as a call."""
    try:
        text = str(ast.literal_eval(written))
    except (SyntaxError, ValueError):
        text = written
    return f"{name}: {_one_line(text)}" if text.strip() else name


def _type_and_text(error: BaseException) -> str:
    text = _one_line(_own_text(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
