"""A model file small enough to count by hand, for the tests of commands."""

from pathlib import Path
from textwrap import dedent

WIDTH = 64

TEXT = """
import torch
from torch import nn
from torch.nn import functional

def model():
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())])

def example_inputs(batch=512):
    return (torch.randn(batch, 64), torch.randn(batch, 64))

loss = functional.mse_loss

def optimizer(params):
    return torch.optim.AdamW(params)
"""

NET_THAT_RUNS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        {body}

model = Net
example_inputs = lambda: (torch.randn(2, 4),)
"""

# Four layers of a weight and a bias, float32.
PARAMETER_BYTES = 4 * (WIDTH * WIDTH + WIDTH) * 4


def write_model_file(folder: Path, text: str = TEXT) -> Path:
    """Write the file and return its path."""
    path = folder / "net.py"
    path.write_text(text)
    return path


def write_bad_file(folder: Path, text: str) -> str:
    """Write what is wrong in a model file, indented or not, and return its path."""
    path = folder / "bad.py"
    path.write_text(dedent(text))
    return str(path)
