# SPDX-License-Identifier: Apache-2.0
"""Judges one answer of the demo model. Standard library only, so that a server test can import it."""

from __future__ import annotations

import collections
import re

REFUSAL_MARK = "i do not know"
"""Every refusal in corpus/out_of_scope.yaml contains these words; no other answer does."""

PASS_F1 = 0.8
"""An answer counts as right from this word-overlap F1 on, against the best of its references."""

_WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def f1(answer: str, reference: str) -> float:
    """Word-overlap F1, counting repeated words; 0 when either text has no word."""
    got, want = collections.Counter(words(answer)), collections.Counter(words(reference))
    common = sum((got & want).values())
    if common == 0:
        return 0.0
    return 2 * common / (sum(got.values()) + sum(want.values()))


def best_f1(answer: str, references: list[str]) -> float:
    return max((f1(answer, reference) for reference in references), default=0.0)


def is_refusal(answer: str) -> bool:
    return REFUSAL_MARK in " ".join(words(answer))


def passes(answer: str, kind: str, references: list[str]) -> bool:
    """`kind` is the field of eval_questions.jsonl; out-of-scope questions must be refused."""
    if kind.startswith("out_of_scope"):
        return is_refusal(answer)
    return best_f1(answer, references) >= PASS_F1
