"""Whether cuDNN's choice by measuring, rule VB504, has an effect in the programs that turn it on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile, takewhile

from analysis.scan.lint.facts import FileFacts
from analysis.scan.lint.programs.program import Program, Step
from analysis.scan.lint.registry import registry
from analysis.scan.results import LintFinding

OF_TEXTS = frozenset(("transformers", "torch_geometric", "dgl", "sentence_transformers"))
OF_PICTURES = frozenset(
    ("torchvision", "timm", "PIL", "cv2", "skimage", "torchaudio", "librosa", "soundfile", "monai", "imageio")
) | {"albumentations", "kornia", "diffusers", "clip", "open_clip"}
"""Libraries of networks that usually have no convolutions; of data that usually goes through some."""


def is_without_effect(file: FileFacts, found: LintFinding, every: Sequence[Program]) -> bool:
    """Whether all programs that turn it on turn it off before they compute, or have no convolution."""
    using = [program for program in every if any(each is file for each in program.files)]
    if using and all(map(_has_no_convolution, using)):
        return True
    following = [steps for program in using if (steps := _after(program.flow, file, found.place.line))]
    return bool(following) and all(map(_is_turned_off, following))


def _after(flow: Iterable[Step], file: FileFacts, line: int) -> list[Step]:
    """The step that a finding is about, and those after it."""

    def is_before(step: Step) -> bool:
        return not (step.file is file and step.event.kind == "measures" and step.event.spot.line == line)

    return list(dropwhile(is_before, flow))


def _is_turned_off(steps: Sequence[Step]) -> bool:
    waiting = takewhile(lambda step: step.event.kind not in ("train", "work", "infers"), steps)
    last = [step.event.name for step in waiting if step.event.kind == "measures"]
    return last[-1:] == ["off"]


def _has_no_convolution(program: Program) -> bool:
    operations = registry().operations
    flags = program.flags()
    return (
        bool(flags & OF_TEXTS)
        and not flags & OF_PICTURES
        and not any(operations[use.entry].cudnn for file in program.files for use in file.operations)
    )
