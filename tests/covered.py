"""How many lines of each room the tests ran, after `pytest --cov`; rooms that must not rot have a floor."""

import sys
from collections import Counter
from pathlib import Path

import coverage

REPOSITORY = Path(__file__).parents[1]
FLOORS = {"guest/records": 90, "orchestrator/engine": 95, "orchestrator/store": 80, "vbstudy/exact": 70}


def main() -> int:
    found = rooms()
    for room, percent in sorted(found.items()):
        print(f"{percent:5.1f} %  {room}" + (f"  (at least {FLOORS[room]} %)" if room in FLOORS else ""))
    below = [room for room, floor in FLOORS.items() if found.get(room, 0) < floor]
    if below:
        print(f"below their floor: {', '.join(below)}", file=sys.stderr)
    return bool(below)


def rooms() -> dict[str, float]:
    """Percent of the statements of each room that were run; modules beside rooms count to their package."""
    measured = coverage.Coverage()
    measured.load()
    statements: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for file in measured.get_data().measured_files():
        room = "/".join(Path(file).relative_to(REPOSITORY).parts[:-1][:2])
        _, lines, _, missing, _ = measured.analysis2(file)
        statements[room] += len(lines)
        missed[room] += len(missing)
    return {room: 100 * (1 - missed[room] / lines) for room, lines in statements.items() if lines}


if __name__ == "__main__":
    sys.exit(main())
