from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.requirements import documents
from analysis.scan.requirements.prose import sentences
from analysis.scan.results import Part


def parts(text: str) -> dict[Part, str]:
    return {part: words for part, words, _, _ in documents.hardware(text)}


def test_sentences_know_their_line_and_section():
    text = "# Title\n\nOne sentence goes\nover two lines. Another one.\n\n- an item\n\n"
    text += "Setup\n-----\nLast.\n```\ncode\n```\n"
    assert [(s.text, s.line, s.heading, s.code) for s in sentences(text)] == [
        ("Title", 1, "Title", False),
        ("One sentence goes over two lines.", 3, "Title", False),
        ("Another one.", 4, "Title", False),
        ("- an item", 6, "Title", False),
        ("Last.", 10, "Setup", False),
        ("code", 12, "Setup", True),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We use Python 3.6.", ("python", "==3.6", True)),
        ("Requires PyTorch >= 1.0.", ("torch", ">=1.0", False)),
        ("PyTorch 1.0+ is needed.", ("torch", "1.0+", False)),
        ("TensorFlow (version 1.15.2)", ("tensorflow", "==1.15.2", True)),
        ("Tested with CUDA 10.1.", ("cuda", "==10.1", True)),
        ("Python 3 only", ("python", "==3", False)),
        ("tested with **PyTorch v1.4.0**", ("torch", "==1.4.0", True)),
        ("Keras 2.x", ("keras", "==2.x", False)),
        ("Requires numpy <2 and more.", ("numpy", "<2", False)),
    ],
)
def test_versions_in_sentences(text, expected):
    ((name, specifier, pinned, line),) = documents.software(text)
    assert (name, specifier, pinned, line) == (*expected, 1)


def test_a_heart_and_the_value_of_an_option_are_no_requirements():
    assert list(documents.software("- [pytorch](http://x) <3\n")) == []
    found = documents.software("pip install --index-strategy unsafe-best-match gym==0.1\n")
    assert {each.name for each in found} == {"gym"}


def test_items_count_in_sections_of_requirements_and_commands_everywhere():
    text = "## Features\n- numpy inside\n## Requirements\n- numpy\n- [PyTorch](http://x)\n"
    text += "```\npip install gym==0.1 scipy\n```\n"
    assert [(name, line) for name, _, _, line in documents.software(text)] == [
        ("numpy", 4),
        ("torch", 5),
        ("gym", 7),
        ("scipy", 7),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "```pip install gym```\n\nPython 3.6 is used.\n",
            [("gym", "", False, 1), ("python", "==3.6", True, 3)],
        ),
        ("PyTorch 0.4 or 0.5", [("torch", "0.4 or 0.5", False, 1)]),
        ("Python 3.6, 3.7", [("python", "3.6, 3.7", False, 1)]),
        ("Python: 3.6", [("python", "==3.6", True, 1)]),
        ("```\npip install -r r.txt  # install the required packages\n```", []),
        ("Use pip to pip install the required packages.", []),
        ("`pip install numpy` and scipy.", [("numpy", "", False, 1)]),
        (
            "```\npip install gym && pip install \\\n  b==1\n```",
            [("gym", "", False, 2), ("b", "==1", True, 3)],
        ),
        ("```\nconda create -n x python=3.7\n```", [("python", "=3.7", False, 2)]),
        (
            "## Requirements\n| package | version |\n|---|---|\n| torch | 1.4.0 |",
            [("torch", "==1.4.0", True, 4)],
        ),
        ("| model | top-1 |\n|---|---|\n| Keras | 76.3 |", []),
        ("![p](https://img.shields.io/badge/python-3.8%2B-blue)", [("python", "3.8+", False, 1)]),
        ("![p](https://img.shields.io/badge/PyTorch-EE4C2C?logo=x)", []),
        ("## Requirements\n```\nPython 3.6\n```", [("python", "==3.6", True, 3)]),
        ("It requires PyTorch and numpy.", [("torch", "", False, 1), ("numpy", "", False, 1)]),
    ],
)
def test_requirements_in_fences_tables_badges_and_commands(text, expected):
    assert [tuple(each) for each in documents.software(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "A deep network for speech.",
        "See python.org and PyTorch Hub.",
        "The top-5 error is 3.6 %.",
        "## Results\n- keras",
        "- python3 train.py FOLDER",
        "This keras model does not require pairs.",
    ],
)
def test_sentences_without_requirements(text):
    assert list(documents.software(text)) == []


@pytest.mark.parametrize(
    ("text", "part", "words"),
    [
        ("Trained on a single NVIDIA GTX 1080 Ti.", Part.GPU, "NVIDIA GTX 1080 Ti"),
        ("We used 8 V100 cards.", Part.GPU, "V100"),
        ("A CUDA-capable GPU is assumed.", Part.GPU, "CUDA-capable GPU"),
        ("You need a GPU to run this.", Part.GPU, "need a GPU"),
        ("CPU or NVIDIA GPU + CUDA cuDNN", Part.GPU, "NVIDIA GPU"),
        ("## Prerequisites\n- one GPU", Part.GPU, "- one GPU"),
        ("It ran on two RTX 3090s.", Part.GPU, "RTX 3090s"),
        ("The model was trained on 4 GPUs for two days.", Part.GPU, "trained on 4 GPUs"),
        ("Experiments ran on an Intel Xeon E5-2620.", Part.CPU, "Intel Xeon E5-2620"),
        ("Ours is an i7-8700K.", Part.CPU, "i7-8700K"),
        ("At least 16 GB of RAM are needed.", Part.MEMORY, "16 GB of RAM"),
        ("GPU with at least 11GB memory", Part.MEMORY, "11GB memory"),
        ("Memory usage: 1-2GB at its peak", Part.MEMORY, "Memory usage: 1-2GB"),
        ("8G+显存", Part.MEMORY, "8G+显存"),
        ("It only runs on NVIDIA GPUs.", Part.GPU, "only runs on NVIDIA GPUs"),
        ("Memory: 64 GB", Part.MEMORY, "Memory: 64 GB"),
        ("a machine with 32 CPU cores", Part.THREADS, "32 CPU cores"),
        ("We set it to 4 threads.", Part.THREADS, "4 threads"),
    ],
)
def test_hardware_in_sentences(text, part, words):
    assert parts(text)[part] == words


@pytest.mark.parametrize(
    "text",
    [
        "It does not require a GPU.",
        "- Distributed training on multiple GPUs",
        "To run it using a GPU, add the option.",
        "## Prerequisites\n- CUDA (optional, for GPU acceleration)",
        "Set it if you plan to run the script on a GPU.",
        "Run it with `--gpu 0`.",
        "Install the GPU version of TensorFlow.",
        "The data set has 12 GB.",
        "```\n# on a V100\npython train.py --gpu 3\n```",
        "Accuracy is 92.3 after 100 epochs.",
        "We discuss it in the thread.",
    ],
)
def test_sentences_without_hardware(text):
    assert parts(text) == {}


def test_the_whole_sentence_is_quoted_where_it_begins():
    text = "Intro.\n\nAll models were trained\non one Tesla P100. The rest is easy.\n"
    ((part, _, quote, line),) = documents.hardware(text)
    assert (part, quote, line) == (Part.GPU, "All models were trained on one Tesla P100.", 3)


@given(st.text(alphabet=st.sampled_from("aGPU 16GB.RAM\n#-*`|=[](){}V100cores\tpipinstalltorch>=")))
def test_arbitrary_prose_gives_quotes_from_lines_that_exist(text):
    count = len(text.splitlines())
    for _, words, quote, line in documents.hardware(text):
        assert words
        assert len(quote) <= documents.QUOTE
        assert 1 <= line <= count
    for _, _, _, line in documents.software(text):
        assert 1 <= line <= count


@pytest.mark.parametrize(
    "text",
    [
        f"# Installation\n\n```\npython {'=' * 900}x\n```\n",
        f"# Notes\n\nPython{' ' * 900}is used here\n",
        f"# Notes{' ' * 1900}#x\n",
    ],
)
def test_long_runs_of_signs_and_blanks_are_read_at_once(text: str):
    assert list(documents.software(text)) == []
    assert list(documents.hardware(text)) == []


@pytest.mark.parametrize(("line", "title"), [("## A ##", "A"), ("# A # #  ", "A #"), ("# ##", "")])
def test_headings_end_before_their_closing_signs(line: str, title: str):
    assert [each.heading for each in sentences(line)] == [title]


@pytest.mark.parametrize(
    "text",
    [
        "The survey asks four core questions.",
        "There are three core ideas and 2 core modules.",
        "It uses the `tensorflow-gpu` package, so CUDA and cuDNN are needed.",
        "The package tensorflow-gpu is required.",
    ],
)
def test_what_only_sounds_like_hardware_is_none(text: str):
    assert list(documents.hardware(text)) == []


@pytest.mark.parametrize(
    "text", ["It ran on 16 cores.", "A quad-core processor is enough.", "A GPU is required."]
)
def test_hardware_is_still_found(text: str):
    assert [stated.quote for stated in documents.hardware(text)] == [text]
