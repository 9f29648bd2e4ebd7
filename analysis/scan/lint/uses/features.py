"""Networks that are not trained, and compute what estimators learn from: sentence embeddings, features of
pictures."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.syntax.arguments import argument, constant, is_given
from analysis.scan.lint.syntax.walk import Walk

COMPUTES = re.compile(
    r"^(?:sentence_transformers|FlagEmbedding|InstructorEmbedding|angle_emb|gritlm)\.(?:\w+\.)*\w+\(\)\."
    r"(?:encode\w*|get_text_embedding\w*)$"
    r"|^(?:langchain\w*|llama_index)\.(?:\w+\.)*HuggingFace\w*Embeddings?\(\)\.(?:embed\w*|get_text_embedding\w*)$"
    r"|^keras\.(?:[\w.]+\.)?applications\.(?:\w+\.)?[A-Z]\w+\(\)\.predict$"
)
"""What a network computes, by the name of a call."""
OF_SENTENCES = frozenset(("normalize_embeddings", "convert_to_numpy", "convert_to_tensor"))
"""Arguments that `encode` of sentence_transformers alone has."""
LOADED = re.compile(
    r"^keras\.(?:[\w.]+\.)?applications\.(?:\w+\.)?[A-Z]\w+$|^torchvision\.models\.(?:\w+\.)?[a-z]\w+$|^timm\.create_model$"
    r"|^transformers\.(?:AutoModel|(?:models\.[\w.]+\.)?[A-Z]\w+Model)\.from_pretrained$|^facenet_pytorch\.InceptionResnetV1$"
)
"""Networks that come with weights."""


def called(to: Walk, node: ast.Call, name: str | None, attribute: str) -> None:
    known = name or ""
    of_sentences = attribute == "encode" and any(is_given(node, each) for each in OF_SENTENCES)
    if COMPUTES.match(known) or of_sentences:
        to.event("infers", known or attribute, node)
    elif LOADED.match(known) and constant(argument(node, "weights", 1)) is not None:
        to.event("infers", known, node)
