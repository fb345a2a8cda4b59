"""Small nets and the joint forward and backward graphs that AOTAutograd makes of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import default_partition
from torch.nn import functional as F

from memplan.graph_capture.op_call import OpCall, op_call_of


class JointGraph:
    """Compiles a net without changing its graph and keeps the nodes of the joint graph.

    Args:
        model: Its forward takes the arguments of `compiled` and returns a loss.
        during: Called with the operations while the graph is being partitioned, with all of the
            compiler's modes on.
    """

    def __init__(
        self, model: nn.Module, during: Callable[[list[OpCall]], None] | None = None
    ) -> None:
        # The compiler gives up on a class after eight instances of it.
        torch.compiler.reset()
        self.model = model
        self.nodes: list[torch.fx.Node] = []
        self._during = during
        self.compiled: Callable[..., torch.Tensor] = torch.compile(
            model, backend=self._backend, fullgraph=True, dynamic=False
        )

    def calls(self) -> list[OpCall]:
        """Return the operation of every node but `getitem`, in order."""
        return [op_call_of(node) for node in self.nodes if node.target is not operator.getitem]

    def _backend(self, module: Any, inputs: Any) -> Any:
        compile_both = aot_autograd(
            fw_compiler=boxed_nop,
            bw_compiler=boxed_nop,
            partition_fn=self._partition,
            keep_inference_input_mutations=True,
        )
        return compile_both(module, inputs)

    def _partition(self, joint: Any, inputs: Any, **options: Any) -> Any:
        self.nodes = [node for node in joint.graph.nodes if node.op == "call_function"]
        if self._during:
            self._during(self.calls())
        kept = ("num_fwd_outputs", "static_lifetime_input_indices")
        return default_partition(joint, inputs, **{k: options[k] for k in kept if k in options})


class ConvNet(nn.Module):
    """Convolutions with and without stride, batch norm, pooling, a linear layer and a loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, stride=2, bias=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(images))), 2)
        x = F.silu(self.second(x)).mean((2, 3))
        return F.cross_entropy(self.head(x), labels)


class AttentionBlock(nn.Module):
    """Embedding, attention with dropout, layer norm, an MLP and a loss over the vocabulary."""

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(attended.transpose(1, 2).flatten(2)), 0.1)
        x = x + self.down(F.gelu(self.up(x)))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def conv_net(width: int = 4) -> ConvNet:
    """Return the net; it takes images (n, 3, h, w) and labels (n,) below 10."""
    return ConvNet(width)


def attention_block(vocabulary: int = 40, width: int = 16, heads: int = 2) -> AttentionBlock:
    """Return the net; it takes tokens (n, t) and labels (n, t) below `vocabulary`."""
    return AttentionBlock(vocabulary, width, heads)
