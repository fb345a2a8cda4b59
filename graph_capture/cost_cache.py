"""Measured costs on disk, one file for each machine and setting under which they hold.

A file holds one JSON object a line, the fields of an `OpCost` and its `key`; of two lines with one
key the later holds. Each run appends its lines in one write, so that processes can
share a file without a lock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from memplan.graph_capture.profile import OpCost

_LOG = logging.getLogger(__name__)

_AMOUNTS = tuple(field.name for field in fields(OpCost))


class CostCache:
    """The costs measured under one environment.

    A file that cannot be read is deleted, one that cannot be written is left; both with a warning,
    as the costs can always be measured again.

    Args:
        folder: Where the files are; made when first needed.
        environment: All that a cost depends on besides the operation, in order.
    """

    def __init__(self, folder: Path, environment: Sequence[str]) -> None:
        readable = re.sub(r"[^a-z0-9.]+", "-", "-".join(environment).lower())[:80]
        digest = hashlib.sha256("\n".join(environment).encode()).hexdigest()[:12]
        self.path = folder / f"op-costs-{readable}-{digest}.jsonl"

    def read(self) -> dict[str, OpCost]:
        """Return all costs by `OpCall.key`."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            return dict(_parse(line) for line in lines)
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            _LOG.warning("dropping the damaged cost cache %s (%r)", self.path, error)
            self._delete()
        except OSError as error:
            _LOG.warning("cannot read the cost cache %s: %s", self.path, error)
        return {}

    def add(self, costs: Mapping[str, OpCost]) -> None:
        """Append costs by key."""
        lines = [json.dumps({"key": key, **asdict(cost)}) for key, cost in costs.items()]
        if not lines:
            return
        text = "\n".join(lines) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered and in append mode: one write call, which no other process can split.
            with self.path.open("ab", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            _LOG.warning("cannot write the cost cache %s: %s", self.path, error)

    def _delete(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("cannot delete the cost cache %s: %s", self.path, error)


def _parse(line: str) -> tuple[str, OpCost]:
    content = json.loads(line)
    amounts = {name: int(content[name]) for name in _AMOUNTS}
    cost = OpCost(**amounts)
    if min(amounts.values()) < 0:
        raise ValueError(f"negative cost in {line!r}")
    return str(content["key"]), cost
