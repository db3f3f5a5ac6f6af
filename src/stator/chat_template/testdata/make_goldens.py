# SPDX-License-Identifier: Apache-2.0
"""Renders templates with Python's Jinja2 as Hugging Face's apply_chat_template sets it up.

  python make_goldens.py features                 feature_cases.json   -> feature_goldens.jsonl
  python make_goldens.py models TEMPLATE_DIR      conversations.json   -> model_goldens.jsonl

Needs jinja2 >= 3.1.6 only. One line per case: the prompt, or its length and the start of its
SHA-256 for the model templates, or "error": the raise_exception text, or true for other failures.
"""
import hashlib
import json
import pathlib
import sys
from datetime import datetime, timezone

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = datetime(2026, 3, 7, 9, 5, 2, tzinfo=timezone.utc)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment(base):
    env = base(trim_blocks=True, lstrip_blocks=True,
               extensions=[Generation, jinja2.ext.loopcontrols, jinja2.ext.do])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.filters["fromjson"] = env.filters["from_json"] = json.loads  # ours, not Hugging Face's
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.replace(tzinfo=None).strftime(form)
    return env


# Stator lets templates change their own lists (namespace.ids.append): where Hugging Face's sandbox
# refuses exactly that, the case is rendered without the refusal.
STRICT, MUTABLE = environment(ImmutableSandboxedEnvironment), environment(SandboxedEnvironment)


def render(source, context):
    for env in (STRICT, MUTABLE):
        try:
            return {"text": env.from_string(source).render(**json.loads(json.dumps(context)))}
        except jinja2.exceptions.SecurityError:
            continue
        except Exception as error:  # noqa: BLE001: any failure is a failed render
            raised = type(error) is jinja2.exceptions.TemplateError
            return {"error": str(error) if raised else True}
    return {"error": True}


def features():
    cases = json.loads((HERE / "feature_cases.json").read_text())
    with open(HERE / "feature_goldens.jsonl", "w") as out:
        for name, case in cases.items():
            golden = {"name": name, "template": case["template"], "context": case.get("context", {})}
            golden.update(render(case["template"], golden["context"]))
            out.write(json.dumps(golden, ensure_ascii=False) + "\n")


def models(folder):
    conversations = json.loads((HERE / "conversations.json").read_text())
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    with open(HERE / "model_goldens.jsonl", "w") as out:
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            for name, conversation in conversations.items():
                context = {**tokens, "add_generation_prompt": True, **conversation}
                result = render(path.read_text(), context)
                golden = {"t": path.name, "c": name}
                if "text" in result:
                    data = result["text"].encode()
                    golden["n"] = len(data)
                    golden["h"] = hashlib.sha256(data).hexdigest()[:16]
                    if len(data) <= 300 and path.name.startswith(("Qwen-Qwen3", "meta-llama-Llama-3.1")):
                        golden["text"] = result["text"]
                else:
                    golden["error"] = result["error"]
                out.write(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    features() if sys.argv[1] == "features" else models(sys.argv[2])
