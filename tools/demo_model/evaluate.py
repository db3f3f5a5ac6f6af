#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the questions of eval_questions.jsonl and reports how many answers pass (see judge.py).

    evaluate.py                                     the checkpoint in models/demo, through transformers
    evaluate.py --url http://127.0.0.1:8000         a running OpenAI-compatible server; standard library only

Exit status 1 when the held-in accuracy or the refusal rate is below its floor.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import urllib.request

import judge

MODEL_DIR = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
MAX_ANSWER_TOKENS = 120
FLOORS = {"known": 0.95, "out_of_scope_unseen": 0.80}
"""Floors for kinds of questions; the other kinds are reported only."""


def read_questions(path: pathlib.Path) -> list[dict]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ask_server(url: str, model: str, question: str, timeout_s: float) -> str:
    body = {
        "model": model, "temperature": 0, "max_tokens": MAX_ANSWER_TOKENS,
        "messages": [{"role": "user", "content": question}],
    }
    request = urllib.request.Request(
        url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def first_served_model(url: str, timeout_s: float) -> str:
    with urllib.request.urlopen(url.rstrip("/") + "/v1/models", timeout=timeout_s) as response:
        return json.load(response)["data"][0]["id"]


def ask_checkpoint(folder: pathlib.Path, questions: list[str], batch: int = 64) -> list[str]:
    """Greedy answers with transformers, computed in float32 from the stored bfloat16 weights."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
        for question in questions
    ]
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers = [""] * len(prompts)
    for start in range(0, len(prompts), batch):
        chosen = by_length[start:start + batch]
        inputs = tokenizer([prompts[i] for i in chosen], return_tensors="pt", padding=True)
        with torch.inference_mode():
            output = model.generate(
                **inputs, do_sample=False, temperature=None, top_p=None, top_k=None, max_new_tokens=MAX_ANSWER_TOKENS)
        for i, ids in zip(chosen, output[:, inputs["input_ids"].shape[1]:], strict=True):
            answers[i] = tokenizer.decode(ids, skip_special_tokens=True).strip()
    return answers


def summarize(questions: list[dict], answers: list[str]) -> dict[str, dict]:
    """Per kind of question: how many, how many passed, and the share."""
    report: dict[str, dict] = {}
    for question, answer in zip(questions, answers, strict=True):
        row = report.setdefault(question["kind"], {"questions": 0, "passed": 0})
        row["questions"] += 1
        row["passed"] += judge.passes(answer, question["kind"], question["references"])
    for row in report.values():
        row["share"] = round(row["passed"] / row["questions"], 4)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", type=pathlib.Path, default=MODEL_DIR)
    parser.add_argument("--questions", type=pathlib.Path, help="default: eval_questions.jsonl in the model folder")
    parser.add_argument("--url", help="ask this server instead of loading the checkpoint")
    parser.add_argument("--model", help="model name for --url; default: the first one the server lists")
    parser.add_argument("--timeout-s", type=float, default=60)
    parser.add_argument("--show", choices=("none", "failed", "all"), default="failed")
    args = parser.parse_args()

    questions = read_questions(args.questions or args.model_dir / "eval_questions.jsonl")
    if args.url:
        model = args.model or first_served_model(args.url, args.timeout_s)
        answers = [ask_server(args.url, model, row["question"], args.timeout_s) for row in questions]
    else:
        answers = ask_checkpoint(args.model_dir, [row["question"] for row in questions])

    for row, answer in zip(questions, answers, strict=True):
        passed = judge.passes(answer, row["kind"], row["references"])
        if args.show == "all" or (args.show == "failed" and not passed):
            print(f"{'pass' if passed else 'FAIL'} [{row['kind']}] {row['question']}\n     -> {answer}")
    report = summarize(questions, answers)
    print(json.dumps(report, indent=2))
    return int(any(report[kind]["share"] < floor for kind, floor in FLOORS.items() if kind in report))


if __name__ == "__main__":
    sys.exit(main())
