"""Run notebooks and write the last picture of each into docs/.

python -m benchmarks.draw_notebooks [NAME ...] [-o docs]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    """Draw those that are named, or all."""
    import matplotlib

    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="by default all")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs"), help="folder")
    options = parser.parse_args()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not options.names or path.stem in options.names:
            print(f"# {path.stem}")
            draw(path, options.output)


def draw(path: Path, folder: Path) -> None:
    """Run one notebook; one without a picture leaves none."""
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(path), "exec"), names)
    if pyplot.get_fignums():
        pyplot.gcf().savefig(folder / f"notebook_{path.stem}.png", dpi=90)
        pyplot.close("all")


if __name__ == "__main__":
    main()
