"""Which generators a program seeds at all."""

from __future__ import annotations

from analysis.scan.lint.programs.kinds import is_of_plots
from analysis.scan.lint.programs.program import Program
from analysis.scan.lint.vocabulary import DRAWN, HELPER, IF_GIVEN, SEEDED_BY, WITHOUT_GPU


def ever_seeded(program: Program) -> set[str]:
    """The generators that are seeded anywhere in the program's files; "*" for all, where a function of
    elsewhere seeds by its name. A seed that is itself drawn is one: what it is drawn from is another
    generator; one that a user may leave out, or of machines without a GPU, does not count."""
    found = set()
    by_choice = "seed_by_choice" in program.flags()
    redrawn = _redrawn(program)
    for file in program.files:
        for event in program.alive(file):
            is_helper = event.kind == "call" and event.text.startswith(HELPER)
            if event.kind != "seed" and not is_helper:
                continue
            if redrawn and redrawn.get((file.path, file.scope_at(event.spot.line))) == {event.name}:
                continue
            if is_of_plots(program.file, file, event) and not file.is_notebook:  # whose cells all run
                continue
            is_spared = event.text == WITHOUT_GPU or (by_choice and event.text == IF_GIVEN)
            if event.kind == "seed" and not is_spared and event.text != f"{DRAWN} {event.name}":
                found.add(event.name)
            elif is_helper and not program.index.function(event.name, file):
                found.add("*")
    return found | {each for each, source in SEEDED_BY.items() if source in found}


def _redrawn(program: Program) -> dict[tuple[str, str], set[str]]:
    """Functions that seed, by file and name, with the generators that their seeds are drawn from; "" for
    one that is not drawn."""
    found: dict[tuple[str, str], set[str]] = {}
    for file in program.files:
        for event in program.alive(file):
            if event.kind == "call" and event.text.startswith(HELPER):
                target = program.index.function(event.name, file)
                if target is not None:
                    source = event.text.removeprefix(HELPER)
                    found.setdefault((target[0].path, target[1]), set()).add(source)
    return found
