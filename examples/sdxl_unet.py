"""The denoiser of Stable Diffusion XL, 2.6 billion parameters, in plain PyTorch, random weights.

Run: memplan compile examples/sdxl_unet.py --budget 35GB --device a100-40gb
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FULL = {"batch": 4, "pixels": 128, "width": 320, "text": 2048, "words": 77, "head": 64}
FULL |= {"second": 2, "third": 10, "pooled": 2816}
SMALL = {"batch": 2, "pixels": 16, "width": 32, "text": 48, "words": 5, "head": 16}
SMALL |= {"second": 1, "third": 1, "pooled": 40}


class Residual(nn.Module):
    """Two convolutions beside a shortcut, moved by the embedding of the time step."""

    def __init__(self, narrow: int, wide: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, narrow), nn.GroupNorm(32, wide)
        self.conv1 = nn.Conv2d(narrow, wide, 3, padding=1)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1)
        self.time = nn.Linear(time, wide)
        self.skip = nn.Identity() if narrow == wide else nn.Conv2d(narrow, wide, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map (batch, narrow, h, w) to (batch, wide, h, w)."""
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention of pixels to pixels, or to the words of the prompt."""

    def __init__(self, width: int, source: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(source, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        """Map (batch, pixels, width) to the same shape."""
        parts = (self.query(x), self.key(source), self.value(source))
        heads = (part.unflatten(2, (-1, self.head)).transpose(1, 2) for part in parts)
        return self.out(functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, attention to the prompt, and a gated feed-forward network."""

    def __init__(self, width: int, text: int, head: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attention(width, width, head), Attention(width, text, head)
        self.gate, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Map (batch, pixels, width) to the same shape."""
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.cross(self.norms[1](x), words)
        value, gate = self.gate(self.norms[2](x)).chunk(2, dim=2)
        return x + self.down(value * functional.gelu(gate))


class Transformer(nn.Module):
    """Layers over the pixels of an image."""

    def __init__(self, width: int, depth: int, text: int, head: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(Layer(width, text, head) for _ in range(depth))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Map (batch, width, h, w) to the same shape."""
        y = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        for layer in self.layers:
            y = layer(y, words)
        return x + self.leave(y).transpose(1, 2).unflatten(2, x.shape[2:])


class UNet(nn.Module):
    """Three resolutions down and up; every output on the way down is read again on the way up."""

    def __init__(self, width: int, text: int, head: int, pooled: int, depths: list[int]) -> None:
        super().__init__()
        widths, time = [width, 2 * width, 4 * width], 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.add = nn.Sequential(nn.Linear(pooled, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up, skips, now = nn.ModuleList(), nn.ModuleList(), [width], width
        for i, (wide, depth) in enumerate(zip(widths, depths, strict=True)):
            for _ in range(2):
                self.down.append(nn.ModuleList([Residual(now, wide, time)]))
                self.down[-1].extend([Transformer(wide, depth, text, head)] if depth else [])
                now = wide
                skips.append(now)
            if i < 2:
                self.down.append(nn.ModuleList([nn.Conv2d(wide, wide, 3, stride=2, padding=1)]))
                skips.append(now)
        middle = Transformer(now, depths[-1], text, head)
        self.middle = nn.ModuleList([Residual(now, now, time), middle, Residual(now, now, time)])
        for i, (wide, depth) in enumerate(list(zip(widths, depths, strict=True))[::-1]):
            for k in range(3):
                self.up.append(nn.ModuleList([Residual(now + skips.pop(), wide, time)]))
                self.up[-1].extend([Transformer(wide, depth, text, head)] if depth else [])
                now = wide
                if k == 2 and i < 2:
                    larger = nn.Upsample(scale_factor=2.0, mode="nearest")
                    self.up[-1].extend([larger, nn.Conv2d(wide, wide, 3, padding=1)])
        self.leave = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)
        )

    def forward(self, x: Tensor, step: Tensor, words: Tensor, pooled: Tensor) -> Tensor:
        """Map noisy latents (batch, 4, h, w) to the noise in them."""
        powers = torch.arange(self.width // 2, device=x.device, dtype=torch.float32)
        angles = step[:, None] * torch.exp(-9.21 * powers / (self.width // 2))
        waves = torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype)
        time = self.time(waves) + self.add(pooled)
        x = self.enter(x)
        skips = [x]
        for block in self.down:
            x = self._through(block, x, time, words)
            skips.append(x)
        x = self._through(self.middle, x, time, words)
        for block in self.up:
            x = self._through(block, torch.cat([x, skips.pop()], dim=1), time, words)
        return self.leave(x)

    def _through(self, block: nn.ModuleList, x: Tensor, time: Tensor, words: Tensor) -> Tensor:
        for part in block:
            if isinstance(part, Residual):
                x = part(x, time)
            elif isinstance(part, Transformer):
                x = part(x, words)
            else:
                x = part(x)
        return x


def model(**sizes: int) -> nn.Module:
    """Return the network in training mode, in bfloat16."""
    size = FULL | sizes
    depths = [0, size["second"], size["third"]]
    net = UNet(size["width"], size["text"], size["head"], size["pooled"], depths)
    return net.to(torch.bfloat16).train()


def example_inputs(**sizes: int) -> tuple[Tensor, ...]:
    """Return noisy latents, time steps, words and pooled words, and for the loss the noise."""
    size = FULL | sizes
    batch, kind = size["batch"], {"dtype": torch.bfloat16}
    latents = torch.randn(2, batch, 4, size["pixels"], size["pixels"], **kind)
    words = torch.randn(batch, size["words"], size["text"], **kind)
    pooled = torch.randn(batch, size["pooled"], **kind)
    return latents[0].clone(), torch.rand(batch) * 1000, words, pooled, latents[1].clone()


def loss(output: Tensor, noise: Tensor) -> Tensor:
    """Return the mean squared error; the last input is its target."""
    return functional.mse_loss(output, noise)


def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW with its fused kernel, which takes no memory besides the state."""
    return torch.optim.AdamW(params, lr=1e-5, fused=True)
