#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model from scratch on the corpus in this folder and writes models/demo.

    train.py                              full run on two CPU threads
    train.py --steps 20 --out /tmp/try    does the pipeline work?

The seed fixes the initial weights, the order of the data and every variation of it. Two runs with the same number of
threads on the same kind of CPU agree; other CPUs may sum in another order and end with slightly different weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import random
import time

# Read by OpenMP when torch loads. Spinning threads waste most of their time when other programs use the cores too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy
import safetensors.torch
import tokenizers
import torch
import transformers

import corpus as corpus_module
import evaluate
import model_files
from corpus import Corpus, Stream
from phrasing import vary

IGNORED_WEIGHT = 0.0
QUESTION_WEIGHT = 0.1
"""Loss weight of what the user says: enough to learn how questions read, little against the answers (1.0)."""
WARMUP_STEPS = 50
PLAIN_TEXT_SHARE = 0.03
OPENING_SHARE = 0.5
OPENING_TOKENS = 12
"""This share of the rows ends after so many tokens of the (last) answer. Its opening shows whether the question was understood;
the rest is recitation, so short rows buy more questions for the same compute."""
ROWS_PER_DRAW = 512
MAX_ROW_TOKENS = 1024


class Encoder:
    """Conversation or plain text → (token ids, loss weight of each token as a target)."""

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self._tokenizer = tokenizer
        self._end_of_text = tokenizer.token_to_id(model_files.END_OF_TEXT)

    def _append(self, row: tuple[list[int], list[float]], text: str, weight: float) -> None:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        row[0].extend(ids)
        row[1].extend([weight] * len(ids))

    def conversation(
            self, system: str | None, turns: list[tuple[str, str]], opening_only: bool) -> tuple[list[int], list[float]]:
        """With `opening_only` the row ends OPENING_TOKENS into the last answer."""
        row: tuple[list[int], list[float]] = ([], [])
        answer_starts = 0
        system_text = corpus_module.DEFAULT_SYSTEM if system is None else system
        self._append(row, f"<|im_start|>system\n{system_text}<|im_end|>\n<|im_start|>user\n", IGNORED_WEIGHT)
        for turn, (question, answer) in enumerate(turns):
            if turn > 0:
                self._append(row, "\n<|im_start|>user\n", IGNORED_WEIGHT)
            self._append(row, f"{question}<|im_end|>\n", QUESTION_WEIGHT)
            self._append(row, "<|im_start|>assistant\n", IGNORED_WEIGHT)
            answer_starts = len(row[0])
            self._append(row, f"{answer}<|im_end|>", 1.0)
        if opening_only:
            del row[0][answer_starts + OPENING_TOKENS:], row[1][answer_starts + OPENING_TOKENS:]
        return row[0][:MAX_ROW_TOKENS], row[1][:MAX_ROW_TOKENS]

    def plain(self, text: str) -> tuple[list[int], list[float]]:
        row: tuple[list[int], list[float]] = ([], [])
        self._append(row, text, 0.5)
        row[0].append(self._end_of_text)
        row[1].append(0.5)
        return row


def batches(encoder: Encoder, data: Corpus, seed: int, batch_tokens: int):
    """Endless padded batches of about `batch_tokens` tokens; rows of like length go together, then batches are shuffled."""
    stream, rng = Stream(data, seed), random.Random(seed + 1)
    while True:
        rows = []
        for _ in range(ROWS_PER_DRAW):
            if rng.random() < PLAIN_TEXT_SHARE:
                rows.append(encoder.plain(stream.plain_text()))
            else:
                rows.append(encoder.conversation(*stream.conversation(), opening_only=rng.random() < OPENING_SHARE))
        rows.sort(key=lambda row: len(row[0]))
        groups, group = [], []
        for row in rows:
            if group and (len(group) + 1) * len(row[0]) > batch_tokens:
                groups.append(group)
                group = []
            group.append(row)
        groups.append(group)
        rng.shuffle(groups)
        for group in groups:
            width = max(len(ids) for ids, _ in group)
            ids = numpy.zeros((len(group), width), dtype=numpy.int64)
            weights = numpy.zeros((len(group), width), dtype=numpy.float32)
            for i, (row_ids, row_weights) in enumerate(group):
                ids[i, :len(row_ids)] = row_ids
                weights[i, :len(row_weights)] = row_weights
            yield torch.from_numpy(ids), torch.from_numpy(weights)


def weighted_loss(model, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over the targets with weight > 0; padding sits at the right, out of sight of a causal model."""
    hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
    targets, target_weights = ids[:, 1:].reshape(-1), weights[:, 1:].reshape(-1)
    picked = target_weights.nonzero().squeeze(1)
    logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[picked])
    losses = torch.nn.functional.cross_entropy(logits.float(), targets[picked], reduction="none")
    picked_weights = target_weights[picked]
    return (losses * picked_weights).sum() / picked_weights.sum()


def learning_rate(step: int, progress: float, peak: float) -> float:
    """Linear warm-up over WARMUP_STEPS, then a cosine down to 1 % of the peak at `progress` 1."""
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    return peak * warmup * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.98), eps=1e-9, foreach=True)


def train(model, data: Corpus, tokenizer: tokenizers.Tokenizer, args: argparse.Namespace) -> list[dict]:
    """Runs the loop; returns the log, one entry every `args.log_every` steps."""
    optimizer = make_optimizer(model)
    source = batches(Encoder(tokenizer), data, args.seed, args.batch_tokens)
    log, tokens, mean_loss, started = [], 0, 0.0, time.monotonic()
    model.train()
    for step in range(args.steps):
        elapsed_share = (time.monotonic() - started) / (60 * args.max_minutes) if args.max_minutes else 0.0
        progress = max(step / args.steps, elapsed_share)
        last = step + 1 == args.steps or elapsed_share >= 1
        ids, weights = next(source)
        rate = learning_rate(step, progress, args.peak_lr)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = weighted_loss(model, ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += ids.numel()
        mean_loss += (loss.item() - mean_loss) / (step % args.log_every + 1)
        if (step + 1) % args.log_every == 0 or last:
            seconds = time.monotonic() - started
            entry = {"step": step + 1, "loss": round(mean_loss, 4), "lr": round(rate, 7), "tokens": tokens,
                     "seconds": round(seconds, 1), "tokens_per_second": round(tokens / seconds)}
            log.append(entry)
            print(json.dumps(entry), flush=True)
            mean_loss = 0.0
        if last:
            break
    return log


def tokenizer_texts(data: Corpus, seed: int) -> list[str]:
    """What the tokenizer learns from: all answers, and questions as users type them."""
    rng = random.Random(seed)
    texts = [answer for topic in data.topics for answer in topic.answers] * 3
    for topic in data.topics:
        for question in topic.asked + topic.frames:
            texts += [question, question.lower(), vary(question, rng, in_scope=True)]
    texts += list(data.out_of_scope) + [q.lower() for q in data.out_of_scope] + list(data.refusals) * 20
    texts += list(data.systems) + [corpus_module.DEFAULT_SYSTEM] * 20
    return texts


def evaluation_questions(data: Corpus) -> list[dict]:
    def row(id_: str, kind: str, question: str, references) -> dict:
        return {"id": id_, "kind": kind, "question": question, "references": list(references)}

    rows = [row(t.id, "known", t.asked[0], t.answers) for t in data.topics]
    rows += [row(t.id, "known_other_phrasing", t.asked[-1], t.answers) for t in data.topics if len(t.asked) > 1]
    rows += [row(t.id, "unseen_phrasing", q, t.answers) for t in data.topics for q in t.held_out]
    rows += [row(f"outside-{i}", "out_of_scope", q, data.refusals) for i, q in enumerate(data.out_of_scope[:60])]
    rows += [row(f"unseen-{i}", "out_of_scope_unseen", q, data.refusals) for i, q in enumerate(data.out_of_scope_held_out)]
    return rows


def write_jsonl(path: pathlib.Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=evaluate.MODEL_DIR)
    parser.add_argument("--resume", type=pathlib.Path, metavar="FOLDER",
                        help="go on from the tokenizer and weights in this folder, with a fresh optimizer")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--max-minutes", type=float, default=0,
                        help="finish the schedule by then even with fewer steps; 0: no limit. Makes a run depend on the machine's speed")
    parser.add_argument("--batch-tokens", type=int, default=1280)
    parser.add_argument("--peak-lr", type=float, default=2e-3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab-size", type=int, default=3072)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    data = corpus_module.load()
    if args.resume:
        tokenizer = tokenizers.Tokenizer.from_file(str(args.resume / "tokenizer.json"))
    else:
        tokenizer = model_files.train_tokenizer(tokenizer_texts(data, args.seed), args.vocab_size)
    config = model_files.make_config(tokenizer, args.layers)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config, attn_implementation="sdpa")).float()
    if args.resume:
        stored = safetensors.torch.load_file(args.resume / "model.safetensors")
        model.load_state_dict({**stored, "lm_head.weight": stored["model.embed_tokens.weight"]})
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(data.topics)} topics, {len(data.out_of_scope)} out-of-scope questions, {parameters} parameters", flush=True)

    log = train(model, data, tokenizer, args)
    args.out.mkdir(parents=True, exist_ok=True)
    model_files.write_tokenizer(args.out, tokenizer)
    model_files.write_model(args.out, model, config)
    questions = evaluation_questions(data)
    write_jsonl(args.out / "eval_questions.jsonl", questions)
    answers = evaluate.ask_checkpoint(args.out, [row["question"] for row in questions])
    log.append({"parameters": parameters, "evaluation": evaluate.summarize(questions, answers)})
    write_jsonl(args.out / "training_log.jsonl", log)
    print(json.dumps(log[-1], indent=2))


if __name__ == "__main__":
    main()
