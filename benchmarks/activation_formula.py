"""Activation bytes of a GPT-2 layer, op by op, beside the published formula.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
section 4.1: a layer keeps sbh (34 + 5 a s / h) bytes for its backward pass at two bytes a value,
with attention written out and dropout after softmax, attention and feed-forward network.

The layer is captured in bfloat16 under fake tensors. What one more layer carries from the forward
to the backward pass is the difference between a model of two layers and one of one layer.
Run: `python -m benchmarks.activation_formula`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch._subclasses.fake_tensor import FakeTensorMode

import memplan
from memplan.graph_capture.graph import Graph
from memplan.graph_capture.without_memory import without_memory


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the formula depends on; the defaults are those of GPT-2 small."""

    batch: int = 4
    tokens: int = 512
    width: int = 768
    heads: int = 12

    @property
    def formula_bytes(self) -> int:
        """Bytes that one layer keeps, by the paper."""
        s, b, h, a = self.tokens, self.batch, self.width, self.heads
        return 34 * s * b * h + 5 * a * s * s * b


def captured(sizes: Sizes, layers: int) -> Graph:
    """Return the step of a GPT-2 whose attention is written out."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        n_layer=layers,
        n_embd=sizes.width,
        n_head=sizes.heads,
        n_positions=sizes.tokens,
        vocab_size=512,
        bos_token_id=0,
        eos_token_id=0,
        activation_function="gelu",
        use_cache=False,
    )
    config._attn_implementation = "eager"
    torch._dynamo.reset()
    with without_memory(FakeTensorMode()):
        model = GPT2Model(config).train().bfloat16()
        inputs = torch.randint(512, (sizes.batch, sizes.tokens))
        return memplan.capture(model, inputs, loss=_mean, device="h100", profile="analytic")


def _mean(output: object) -> torch.Tensor:
    mean: torch.Tensor = output.last_hidden_state.mean()  # type: ignore[attr-defined]
    return mean


def carried(graph: Graph) -> Counter[str]:
    """Return bytes that the forward pass makes and the backward pass reads, by op and module."""
    found: Counter[str] = Counter()
    for t, made in enumerate(graph.producer):
        tensor, last = graph.tensors[t], max(graph.consumers[t], default=-1)
        if made is not None and made < graph.boundary <= last and not tensor.pinned:
            op = graph.ops[made]
            module = op.module.rpartition("h.")[2].partition(".")[2] if "h." in op.module else ""
            found[f"{op.target.partition('::')[2] or op.target} in {module or 'the model'}"] += (
                tensor.nbytes
            )
    return found


def layer_bytes(sizes: Sizes) -> Counter[str]:
    """Return what one more layer carries, by op."""
    one, two = (carried(captured(sizes, layers)) for layers in (1, 2))
    two.subtract(one)
    return Counter({name: nbytes for name, nbytes in two.items() if nbytes})


def main() -> int:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    sizes = Sizes()
    unit = sizes.tokens * sizes.batch * sizes.width
    found = layer_bytes(sizes)
    table = Table("kept for the backward pass", "bytes", "in sbh")
    for name, nbytes in found.most_common():
        table.add_row(name, f"{nbytes:,}", f"{nbytes / unit:.2f}")
    total, paper = sum(found.values()), sizes.formula_bytes
    table.add_row("all", f"{total:,}", f"{total / unit:.2f}")
    table.add_row("sbh (34 + 5as/h)", f"{paper:,}", f"{paper / unit:.2f}")
    table.add_row("difference", f"{total - paper:+,}", f"{total / paper - 1:+.2%}")
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
