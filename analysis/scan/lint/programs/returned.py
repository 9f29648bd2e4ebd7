"""What functions of a project return: `make_trainer(model).train()` trains, wherever that function is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.scan.lint.facts import Event, FileFacts
from analysis.scan.lint.index import Index

TRAIN = "().train"


def with_trainers(files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """The files, with a training where what a function returns, a trainer of a library, trains."""
    if not any(any(file.trainers.values()) for file in files):
        return files
    index = Index(files)
    return [_followed(file, index) for file in files]


def _followed(file: FileFacts, index: Index) -> FileFacts:
    flags = set(file.flags)
    scopes: dict[str, list[Event]] = {}
    for scope, events in file.scopes.items():
        scopes[scope] = []
        for event in events:
            scopes[scope].append(event)
            if event.kind == "call" and event.name.endswith(TRAIN):
                made_by = index.function(event.name.removesuffix(TRAIN), file)
                if made_by is not None and made_by[0].trainers.get(made_by[1], False):
                    scopes[scope].append(event._replace(kind="train", name="Trainer.train()", text=""))
                    flags |= made_by[0].flags & {"torch", "tensorflow"}
    return replace(file, scopes=scopes, flags=flags)
