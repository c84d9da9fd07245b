"""The table of benchmarks/README.md, made from the results.

python benchmarks/table.py                 # prints it
python benchmarks/table.py --write         # writes it between the marks in benchmarks/README.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conditions import Row

HERE = Path(__file__).parent
RESULTS = HERE / "results/workloads_h200.json"
README = HERE / "README.md"
BEGIN, END = "<!-- table: python benchmarks/table.py --write -->", "<!-- end of table -->"
SYSTEMS = ("drillcore", "drillcore-forward", "composed-forward", "transformers")
NOT_A_RATE = ("start",)
"""Their seconds are what counts."""


def table(rows: list[Row]) -> str:
    """Tokens per second of each workload and system; of several rows the last. Jobs have their seconds, too."""
    by_workload: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_workload.setdefault(str(row["workload"]), {})[str(row["system"])] = row
    lines = ["| workload | " + " | ".join(SYSTEMS) + " |", "|---" * (len(SYSTEMS) + 1) + "|"]
    for name, systems in by_workload.items():
        lines.append(f"| {name} | " + " | ".join(_cell(name, systems.get(system)) for system in SYSTEMS) + " |")
    return "\n".join(lines)


def with_table(text: str, rows: list[Row]) -> str:
    """`text` with the table between its marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def _cell(workload: str, row: Row | None) -> str:
    if row is None:
        return "-"
    if workload in NOT_A_RATE:
        return f"{row['first_durable_s']:.1f} s"
    rate = f"{row['tokens_per_s']:,.0f}"
    return f"{rate} ({row['seconds']:.1f} s)" if workload.endswith("-job") else rate


def main() -> None:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into benchmarks/README.md")
    rows: list[Row] = json.loads(RESULTS.read_text())
    if parser.parse_args().write:
        README.write_text(with_table(README.read_text(), rows))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
