"""What a README states: software with its versions, and hardware, each with the sentence that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from analysis.scan.listed import Stated, installed
from analysis.scan.prose import Sentence, sentences
from analysis.scan.results import Part

QUOTE = 300  # characters of a sentence that are kept

# ---- software --------------------------------------------------------------------------------------------

SPELLINGS = {"pytorch": "torch", "sklearn": "scikit-learn", "cv2": "opencv", "opencv-python": "opencv", "pil": "pillow",
             "pytorch lightning": "lightning", "pytorch-lightning": "lightning", "tensorflow-gpu": "tensorflow",
             "tensorflow-cpu": "tensorflow", "tf": "tensorflow"}  # fmt: skip
_KNOWN = (
    "python|pytorch[- ]lightning|pytorch|torch|torchvision|torchaudio|torchtext|tensorflow(?:-gpu|-cpu)?|keras|numpy|scipy|"
    "pandas|scikit-learn|sklearn|matplotlib|opencv(?:-python)?|jax|flax|mxnet|theano|caffe|cuda(?:\\s+toolkit)?|cudnn|"
    "h5py|pillow|nltk|gensim|spacy|transformers|librosa|cython|anaconda|seaborn|networkx|hydra|tensorboardx?|lightning"
)
_VERSIONED = re.compile(
    rf"(?<![\w/.-])({_KNOWN})[`*_\]]*\s*(?:\(?\s*(?:version|ver\.?)\s*)?\(?\s*([=<>~!≥≤]{{1,2}}|v)?\s*"
    r"(\d+(?:\.[\dx*]+)*)(\+|\s*(?:or|and)\s+(?:newer|higher|above|later|up))?(?![\w%-]*[A-Za-z%]{2})",
    re.IGNORECASE,
)
_ITEM = re.compile(rf"^\s*(?:[-*+•]|\d+[.)])\s+[`*_\[]*({_KNOWN})\b", re.IGNORECASE)
_SECTION = re.compile(r"require|dependenc|prerequisit|install|set-?up|environment|getting started|packages", re.IGNORECASE)


def software(text: str) -> Iterator[Stated]:
    """Versions of known packages, list items in a section of requirements, and install commands."""
    for sentence in sentences(text):
        yield from installed(sentence.text, sentence.line)
        if sentence.code:
            continue
        found = False
        for match in _VERSIONED.finditer(sentence.text):
            found = True
            sign, version, more = match[2] or "", match[3], match[4]
            open_ended = bool(more) or sign in (">", "<", ">=", "<=", "≥", "≤", "~=", "!=", "~")
            exact = not open_ended and version.count(".") >= 1 and not re.search(r"[x*]", version)
            specifier = f"{sign}{version}{'+' if more else ''}" if open_ended else f"=={version}"
            yield Stated(_spelling(match[1]), specifier, exact, sentence.line)
        if not found and _SECTION.search(sentence.heading) and (item := _ITEM.match(sentence.text)):
            yield Stated(_spelling(item[1]), "", False, sentence.line)


def _spelling(name: str) -> str:
    name = re.sub(r"\s+", " ", name.lower()).removesuffix(" toolkit")
    return SPELLINGS.get(name, name)


# ---- hardware --------------------------------------------------------------------------------------------


class HardwareStated(NamedTuple):
    part: Part
    words: str
    quote: str
    line: int


_CARDS = (
    r"V100S?|A100|H100|H200|B200|GH200|P100|P40|K80|K40[cm]?|M60|M40|L40S?|A10G|A40|A4000|A5000|A6000|"
    r"1080\s?Ti|2080\s?Ti|3080(?:\s?Ti)?|3090(?:\s?Ti)?|4080|4090|5090"
)
_NUMBER = r"(?:\d+|one|two|three|four|six|eight|sixteen|a single|single|multiple)"
PATTERNS: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern, re.IGNORECASE))
    for part, pattern in (
        (Part.GPU, rf"\b(?:(?:NVIDIA|GeForce|Tesla|Quadro)\s+)*(?:(?:GTX|RTX)[\s-]*(?:TITAN|A?\d{{3,4}})(?:\s?(?:Ti|Super))?"
                   rf"|TITAN\s?(?:Xp|X|V|RTX|Black)\b|Tesla\s+[A-Z]\d{{1,3}}\w?\b|Quadro\s+[A-Z]+\s?\d{{3,4}}|(?:{_CARDS})\b"
                   r"|(?:NVIDIA|GPU)\s+(?:T4|P4|L4)\b|Radeon\s+\w+|Instinct\s+MI\d{2,3}X?|TPU\s?v\d)"),
        (Part.GPU, r"\bCUDA[- ](?:capable|enabled|compatible)\s+(?:\w+\s+){0,2}(?:GPU|device|card|graphics)|\bcompute capability\b"),
        (Part.GPU, r"\b(?:requires?|needs?|needed|must have|recommends?|recommended|strongly suggest)\b[^.\n]{0,60}\bGPUs?\b(?!\s+version)"),
        (Part.GPU, r"\bGPUs?\b[^.\n]{0,40}\b(?:is|are)\s+(?:strongly\s+|highly\s+)?(?:required|needed|recommended|necessary|mandatory)"),
        (Part.GPU, rf"\b(?:trained|training|train|tested|experiments?|evaluated|ran|run|takes?)\b[^.\n]{{0,60}}\b(?:on|with|using)\s+"
                   rf"(?:{_NUMBER}|an?|the)\s+(?:[\w-]+\s+){{0,3}}GPUs?\b"),
        (Part.GPU, r"\b\d+\s?GB\s+(?:NVIDIA\s+)?GPUs?\b"),
        (Part.CPU, r"\b(?:Intel|AMD)(?:\s?\(R\)|®)?\s+(?:\w+\s+)?(?:Core|Xeon|Ryzen|EPYC|Threadripper|Pentium|Opteron|i[3579])\b[^,;.\n)]{0,30}"
                   r"|\bi[3579]-\d{3,5}\w{0,2}\b|\bXeon\b(?:\s+\S{2,12}){0,2}|\bRyzen\s+\w+|\bEPYC\s+\w+|\bThreadripper\b|\bApple\s+M[1-5]\b"
                   r"|\b\d(?:\.\d+)?\s?GHz\b"),
        (Part.MEMORY, r"\b\d+(?:\.\d+)?\s?(?:GB|GiB|TB|G)\b(?:\s+or\s+more)?(?:\s+of)?(?:\s+(?:system|GPU|video|graphics|main|free|available|"
                      r"host|CPU|device|DDR\d))*\s*(?:RAM|memory|VRAM|DRAM)\b|\b(?:RAM|memory|VRAM)\b[^.\n\d]{0,25}\d+(?:\.\d+)?\s?(?:GB|GiB|TB)\b"
                      r"|\b\d+\s?GB\s+(?:NVIDIA\s+)?GPUs?\b"),
        (Part.THREADS, r"\b(?:\d+|two|four|six|eight|sixteen|quad|dual|octa)[- ]?(?:physical |logical |CPU |virtual |hyper-?)*"
                       r"(?:cores?|threads|vCPUs?|CPUs)\b"),
    )
)  # fmt: skip
_ABSENT = re.compile(
    r"\b(?:no|without(?: an?)?|(?:do(?:es)?\s?n[o']t|not) (?:require|need)(?:\s+an?)?|don'?t need(?:\s+an?)?)\s+(?:\w+\s+)?GPUs?\b", re.IGNORECASE
)  # fmt: skip


def hardware(text: str) -> Iterator[HardwareStated]:
    """What a document states of GPUs, CPUs, memory, and numbers of cores or threads: once a part and sentence.
    A model, a size, a count, or a sentence that asks for a GPU; code is not read, and "no GPU needed" is none."""
    for sentence in sentences(text):
        if not sentence.code:
            yield from _of_sentence(sentence)


def _of_sentence(sentence: Sentence) -> Iterator[HardwareStated]:
    seen = set()
    for part, pattern in PATTERNS:
        match = pattern.search(sentence.text)
        if match and part not in seen and not (part is Part.GPU and _ABSENT.search(sentence.text)):
            seen.add(part)
            yield HardwareStated(part, match[0].strip(), sentence.text[:QUOTE], sentence.line)
