# SPDX-License-Identifier: Apache-2.0
"""Random JSON Schemas over every keyword that `structured` accepts, and a tiny model whose answers are as random as its weights."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import struct

import jsonschema
from stator_process import MODEL_DIR

FORMAT_CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER  # the plain FormatChecker() has draft 3's idea of a time
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "duration", "uri", "uri-reference", "uri-template",
           "json-pointer", "relative-json-pointer", "int32", "byte", "password")
PATTERNS = (r"^[a-z]{2,5}$", r"^(yes|no)$", r"^\d{3}-\d{4}$", r"^[A-Z][a-z]+( [A-Z][a-z]+)*$", r"^\w+@\w+$", r"^[^\"\\]{1,6}$", r"^\s?x+\S$",
            r"^(?:a|bc)*$", r"^[äöü]{1,3}$", r"^\u0041[B-D]?$", r"^.{0,8}$", r"^[\]\-/]+$", r"^([12]\d{3})$", r"^x{0}y{3,}$", "^$")
NAMES = ("name", "age", "city", "x-y", "größe", "a b", "items", "\"quoted\"", "back\\slash", "", "$ref", "na", "line\nfeed", "日本", "type")
VALUES = ("a", "b \"c\"", 1, 2.5, None, True, False, {"k": [1, "x"]}, "äö", [], "", 0, -7, 1e3, "tab\t", "\u2028", {}, [None, {"a": -0.5}], 10**15)


class RandomSchemas:
    """`root()` has other members for every seed; the same seed gives the same schema."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def root(self) -> dict:
        schema = self.object(3)
        if self.often(0.2):  # the whole again, in itself
            schema["properties"]["next"] = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
        if self.often(0.3):
            place = self.random.choice(["$defs", "definitions"])
            schema[place] = {"part": self.schema(1), "tree": {
                "type": "object", "properties": {"value": {"type": "integer"}, "children": {
                    "type": "array", "items": {"$ref": f"#/{place}/tree"}, "maxItems": 2}}, "required": ["value"]}}
            schema["properties"]["part"] = {"$ref": f"#/{place}/{self.random.choice(['part', 'tree'])}"}
        if self.often(0.3):
            schema |= {"title": "T", "description": "says {nothing} \"of\" the value", "default": {}, "examples": [1], "x-own": [{}]}
        return schema

    def schema(self, depth: int = 3) -> dict | bool:
        makers = [self.string, self.string, self.number, self.integer, self.choice, self.simple, self.several_types]
        if depth > 0:
            makers += [self.object, self.object, self.map, self.array, self.tuple, self.any_of, self.one_of, self.all_of]
        elif self.often(0.05):
            return self.random.choice([True, {}, {"description": "anything"}])
        return self.random.choice(makers)(depth - 1)

    def simple(self, _: int) -> dict:
        return {"type": self.random.choice(["boolean", "null", ["boolean", "null"], ["integer", "null"], ["string", "null"]])}

    def several_types(self, depth: int) -> dict:
        kinds = self.random.sample(["string", "integer", "boolean", "null", "array", "object"], self.random.randint(2, 4))
        schema: dict = {"type": kinds}
        if "string" in kinds and self.often(0.5):
            schema["maxLength"] = self.random.randint(0, 9)
        if "integer" in kinds and self.often(0.5):
            schema["minimum"] = self.random.randint(-20, 20)
        if "array" in kinds:
            schema |= {"items": self.schema(0) if depth > 0 else {"type": "boolean"}, "maxItems": self.random.randint(0, 3)}
        if "object" in kinds:
            schema |= {"properties": {"k": {"type": "null"}}, "additionalProperties": False}
        return schema

    def choice(self, _: int) -> dict:
        picked = self.random.sample(VALUES, self.random.randint(1, 4))
        return {"const": picked[0]} if self.often(0.3) else {"enum": picked}

    def string(self, _: int) -> dict:
        kind = self.random.randrange(5)
        if kind == 0:
            least = self.random.randint(0, 6)
            bounds = {"minLength": least, "maxLength": least + self.random.randint(0, 30)}
            return {"type": "string"} | {key: bounds[key] for key in self.random.sample(sorted(bounds), self.random.randint(1, 2))}
        if kind == 1:
            return {"type": "string", "pattern": self.random.choice(PATTERNS)}
        if kind == 2:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        return {"type": "string"}

    def number(self, _: int) -> dict:
        low = round(self.random.uniform(-100, 100), self.random.randint(0, 3))
        high = low + self.random.choice([0.5, 1, 7, 50])
        schema: dict = {"type": "number"}
        if self.often(0.5):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.often(0.5):
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = round(high, 3)
        if self.often(0.2) and high > low + 2:  # or there may be no such number
            schema["multipleOf"] = self.random.choice([0.25, 0.5, 1])
        return schema

    def integer(self, _: int) -> dict:
        low = self.random.choice([0, 1, self.random.randint(-1000, 1000), self.random.randint(-10**9, 10**9)])
        schema: dict = {"type": "integer"}
        if self.often(0.5):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.often(0.5):
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.randint(12, 500)
        if self.often(0.2):
            schema["multipleOf"] = self.random.randint(1, 9)
        return schema

    def object(self, depth: int) -> dict:
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        schema: dict = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        if self.often(0.8):
            schema["required"] = [name for name in names if self.often(0.5)]
        if self.often(0.4):
            schema["additionalProperties"] = self.random.choice([False, True, self.schema(0)])
        return schema

    def map(self, _: int) -> dict:
        """Members whose names nobody said."""
        kind = self.random.randrange(3)
        if kind == 0:
            schema = {"type": "object", "additionalProperties": self.schema(0)}
        elif kind == 1:
            schema = {"type": "object", "patternProperties": {"^[a-z]+$": self.schema(0)}, "additionalProperties": False}
        else:
            return {"type": "object"}
        if self.often(0.5):
            schema["minProperties"] = self.random.randint(0, 1)  # of two, one may be there twice
            schema["maxProperties"] = schema["minProperties"] + self.random.randint(0, 3)
        return schema

    def array(self, depth: int) -> dict:
        schema: dict = {"type": "array", "items": self.schema(depth)}
        if self.often(0.6):
            schema["minItems"] = self.random.randint(0, 2)
            schema["maxItems"] = schema["minItems"] + self.random.randint(0, 3)
        return schema

    def tuple(self, _: int) -> dict:
        items = [self.schema(0) for _ in range(self.random.randint(1, 3))]
        schema: dict = {"type": "array", "prefixItems": items}
        if self.often(0.6):
            schema["items"] = self.random.choice([False, self.schema(0)])
        if self.often(0.5):
            schema["minItems"] = self.random.randint(0, len(items))
        return schema

    def any_of(self, depth: int) -> dict:
        return {"anyOf": [self.schema(depth) for _ in range(self.random.randint(1, 3))]}

    def one_of(self, _: int) -> dict:
        """No value fits two members: which one was meant is not asked of a decoder."""
        members: list[dict] = [{"type": "null"}, {"type": "boolean"}, self.integer(0), self.string(0),
                               {"type": "array", "items": {"type": "integer"}, "maxItems": 2}]
        return {"oneOf": self.random.sample(members, self.random.randint(1, 3))}

    def all_of(self, _: int) -> dict:
        low = self.random.randint(-50, 50)
        bounds = [{"type": "integer", "minimum": low}, {"type": "integer", "maximum": low + 40}, {"type": "integer", "exclusiveMaximum": low + 60}]
        objects = [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                   {"type": "object", "properties": {"b": self.schema(0)}, "required": ["b"]}]
        return {"allOf": self.random.choice([bounds, bounds[:1], objects])}


def make_random_model(folder: pathlib.Path, seed: int = 1) -> pathlib.Path:
    """The demo model's shape and tokenizer, with weights that mean nothing: every token is about as likely as every other."""
    import numpy

    folder.mkdir()
    for file in MODEL_DIR.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, folder / file.name)
    data = (MODEL_DIR / "model.safetensors").read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + header_bytes])
    body = numpy.frombuffer(data, dtype=numpy.uint8, offset=8 + header_bytes).copy()
    draw = numpy.random.default_rng(seed)
    for name, tensor in header.items():
        if name == "__metadata__" or "norm" in name:
            continue
        assert tensor["dtype"] == "BF16", name
        begin, end = tensor["data_offsets"]
        values = draw.standard_normal((end - begin) // 2, dtype=numpy.float32) * 0.05
        body[begin:end] = (values.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
    (folder / "model.safetensors").write_bytes(data[:8 + header_bytes] + body.tobytes())
    return folder
