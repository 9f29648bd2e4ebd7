"""A digest of each JSON schema, written by `python -m tests.schemas`; and a check of data against one."""

import json
from pathlib import Path

import jsonschema

from docs.schemas import SCHEMAS, schema
from guest.records.codec import digest

GOLDEN = Path(__file__).parent / "golden" / "json-schemas.json"


def made() -> dict:
    return {name: digest(schema(name)) for name in SCHEMAS}


def validate(data: object, name: str) -> None:
    jsonschema.validate(data, schema(name), cls=jsonschema.Draft202012Validator)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(made(), indent=1) + "\n")
