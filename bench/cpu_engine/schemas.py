#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random JSON Schemas against `stator serve` with a tiny random model: every answer must validate.

  bench/cpu_engine/schemas.py [--schemas 1000] [--first SEED] [--engine cpu] [--parallel 4]      # STATOR_BINARY=… for another build

Each schema is asked for twice, greedy and drawn at temperature 1, and checked with `jsonschema`, formats included
(pip install 'jsonschema[format-nongpl]'). Prints what failed, with the seed that makes the schema again; exit status 1 then.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import jsonschema  # noqa: E402
from random_schemas import FORMAT_CHECKER, RandomSchemas, make_random_model  # noqa: E402
from stator_process import Http, Serve  # noqa: E402

TOKENS = 600


def check(http: Http, seed: int, temperature: float) -> tuple[str, str]:
    """What became of one schema: a word, and for those that are no success what happened."""
    schema = RandomSchemas(seed).root()
    status, answer = http.post("/v1/chat/completions", {
        "model": "random", "messages": [{"role": "user", "content": "x"}], "max_tokens": TOKENS, "temperature": temperature, "seed": seed,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
    if status != 200:
        return "refused", f"{status} {answer['error']['message']}"
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    try:
        jsonschema.validate(json.loads(text), schema, format_checker=FORMAT_CHECKER)
    except (ValueError, jsonschema.ValidationError) as error:
        said = getattr(error, "message", str(error))
        return "wrong", f"{choice['finish_reason']}: {said[:300]}\n    {text[:600]}\n    {json.dumps(schema, ensure_ascii=False)[:1500]}"
    return ("followed", "") if choice["finish_reason"] == "stop" else ("unfinished", f"{choice['finish_reason']}: {text[:300]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--parallel", type=int, default=4)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.schemas)
    counts: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = make_random_model(pathlib.Path(folder, "random"))
        with contextlib.closing(Serve("--workers", "1", engine=options.engine, model=str(model))) as server, \
                concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
            http = Http(server.frontend.port)
            jobs = {pool.submit(check, http, seed, temperature): (seed, temperature) for seed in seeds for temperature in (0.0, 1.0)}
            for job in concurrent.futures.as_completed(jobs):
                word, said = job.result()
                counts[word] += 1
                if word != "followed":
                    print(f"seed {jobs[job][0]}, temperature {jobs[job][1]}: {word}: {said}", flush=True)
    print(f"{options.schemas} schemas, 2 answers each: {dict(counts)}, {time.monotonic() - begin:.0f} s")
    return 0 if counts["followed"] == 2 * options.schemas else 1


if __name__ == "__main__":
    sys.exit(main())
