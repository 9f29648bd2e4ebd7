"""Draws of which only a picture comes: samples that are shown, points of a plot."""

from __future__ import annotations

import re

from analysis.scan.lint.facts import MAIN, Event, FileFacts
from analysis.scan.lint.programs.program import Program, Step

OF_ONE = re.compile(
    r"^(?:random|numpy\.random|torch)\.(?:rand\w*|choices?|sample|permutation|uniform|normal|random_sample)$"
    r"|^flow$"
)
"""Draws whose result has a name, or is used at once: what is shuffled in place may be used anywhere."""
LOOKED_AT = re.compile(OF_ONE.pattern + r"|^DataFrame\.sample$|^DataLoader\(|^imblearn\.\w+_sampling\.")
SHOWS = re.compile(r"(?:^|\.)_*(?:display|plot|show|visuali[sz]e|view)_\w+$")
"""Functions of pictures, by their names, whatever they give back."""


def is_of_pictures(program: Program, step: Step) -> bool:
    """Whether what a step draws is only shown: by a function that makes a picture, gives nothing back, writes
    nothing else and trains nothing; or by such a cell of a notebook, whose names no other one reads."""
    file, event = step
    scope = file.scope_at(event.spot.line)
    if event.spot.line in file.looked_at and LOOKED_AT.match(event.text):
        return True
    if scope and scope != MAIN:
        return _shows(file, scope) and not any(
            under.event.kind == "train" for under in program.under(file, scope)
        )
    return file.is_notebook and not scope and _is_shown_by_cell(file, event)


def _shows(file: FileFacts, scope: str) -> bool:
    first, last = next((first, last) for first, last, name in file.spans if name == scope)
    inside = range(first, last + 1)
    return (
        any(line in inside for line in file.shown)
        and not any(line in inside for line in file.written)
        and (scope not in file.giving or bool(SHOWS.search(scope)))
    )


def _is_shown_by_cell(file: FileFacts, event: Event) -> bool:
    cell, first, after = file.cell_at(event.spot.line)
    inside = range(first, after)
    target = file.targets.get(event.spot, "")
    return (
        bool(OF_ONE.match(event.text))
        and any(line in inside for line in file.shown)
        and not any(line in inside for line in file.written)
        and not any(e.kind == "train" and e.spot.line in inside for e in file.scopes[""])
        and not any(target in read for index, read in enumerate(file.loads) if index != cell)
    )
