# SPDX-License-Identifier: Apache-2.0
"""Reads the hand-written corpus and turns it into an endless, seeded stream of conversations.

A topic is a set of phrasings of one question and one or more accepted answers. One phrasing of every third topic
is held out from training, as is a list of out-of-scope questions, so that generalisation can be measured.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import zlib

import yaml

from phrasing import vary

DEFAULT_SYSTEM = "You are the Stator demo assistant."
"""The chat template inserts this when a conversation does not begin with a system message."""

CORPUS_DIR = pathlib.Path(__file__).parent / "corpus"
TERM_FRAMES = (
    "What is {}?", "What's {}?", "Explain {}.", "Tell me about {}.", "What does {} mean?", "Define {}.", "{}?",
    "Can you explain {}?", "What do you mean by {}?", "Give me a short explanation of {}.", "Describe {}.",
    "I want to understand {}.", "What can you tell me about {}?",
)
COMMAND_FRAMES = (
    "What does {} do?", "How do I use {}?", "What is {}?", "Explain {}.", "What is {} for?", "When should I use {}?",
    "Tell me about {}.", "{}?", "Why would I run {}?", "Describe the command {}.",
)


@dataclasses.dataclass(frozen=True)
class Topic:
    """Phrasings in `asked` are trained on; `held_out` never is. `answers` holds at least one text."""

    id: str
    asked: tuple[str, ...]
    held_out: tuple[str, ...]
    answers: tuple[str, ...]
    frames: tuple[str, ...]

    def answer_for(self, question: str) -> str:
        """Which answer a phrasing gets is fixed, so that the model learns one answer per phrasing."""
        return self.answers[zlib.crc32(question.encode()) % len(self.answers)]


@dataclasses.dataclass(frozen=True)
class Corpus:
    topics: tuple[Topic, ...]
    out_of_scope: tuple[str, ...]
    out_of_scope_templates: tuple[tuple[str, tuple[str, ...]], ...]
    out_of_scope_held_out: tuple[str, ...]
    refusals: tuple[str, ...]
    dialogues: tuple[tuple[tuple[str, str], ...], ...]
    systems: tuple[str, ...]


def _read(path: pathlib.Path):
    with path.open(encoding="utf-8") as file:
        return yaml.safe_load(file)


def _as_tuple(value) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _make_topic(entry: dict, hold_out: bool) -> Topic:
    asked = list(_as_tuple(entry["q"]))
    held_out: list[str] = []
    if hold_out and len(asked) >= 4:
        # Never the first phrasing: that one is the topic's held-in evaluation question.
        held_out.append(asked.pop(1 + zlib.crc32(entry["id"].encode()) % (len(asked) - 1)))
    frames = [frame.format(term) for term in _as_tuple(entry.get("terms")) for frame in TERM_FRAMES]
    frames += [frame.format(term) for term in _as_tuple(entry.get("commands")) for frame in COMMAND_FRAMES]
    frames = [frame for frame in frames if frame not in held_out]
    return Topic(entry["id"], tuple(asked), tuple(held_out), _as_tuple(entry["a"]), tuple(frames))


def load(folder: pathlib.Path = CORPUS_DIR) -> Corpus:
    """Reads every topics_*.yaml plus out_of_scope.yaml and dialogues.yaml; refuses duplicate ids and questions."""
    entries = [entry for path in sorted(folder.glob("topics_*.yaml")) for entry in _read(path)]
    topics = tuple(_make_topic(entry, index % 3 == 1) for index, entry in enumerate(entries))
    _check_unique([topic.id for topic in topics], "topic id")
    _check_unique([q.lower() for topic in topics for q in topic.asked + topic.held_out], "question")
    outside = _read(folder / "out_of_scope.yaml")
    talk = _read(folder / "dialogues.yaml")
    return Corpus(
        topics=topics,
        out_of_scope=tuple(outside["questions"]),
        out_of_scope_templates=tuple((t["form"], tuple(t["fill"])) for t in outside["templates"]),
        out_of_scope_held_out=tuple(outside["held_out"]),
        refusals=tuple(outside["refusals"]),
        dialogues=tuple(tuple((turn["q"], turn["a"]) for turn in dialogue) for dialogue in talk["dialogues"]),
        systems=tuple(talk["systems"]),
    )


def _check_unique(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"duplicate {what} in the corpus: {name!r}; keep one of them")
        seen.add(name)


class Stream:
    """Endless seeded stream of conversations: (system or None, [(question, answer), ...])."""

    def __init__(self, corpus: Corpus, seed: int):
        self._corpus = corpus
        self._rng = random.Random(seed)
        self._deck: list[int] = []

    def conversation(self) -> tuple[str | None, list[tuple[str, str]]]:
        rng = self._rng
        system = rng.choice(self._corpus.systems) if rng.random() < 0.15 else None
        draw = rng.random()
        if draw < 0.04:
            turns = [(q if rng.random() < 0.5 else vary(q, rng, in_scope=False), a) for q, a in rng.choice(self._corpus.dialogues)]
        elif draw < 0.20:
            longest = 16 if rng.random() < 0.1 else 8
            turns = [self._turn() for _ in range(rng.randint(2, longest))]
        else:
            turns = [self._turn()]
        return system, turns

    def plain_text(self) -> str:
        """A few answers in a row, for the completions endpoint, which sees no chat template."""
        return " ".join(self._rng.choice(self._topic().answers) for _ in range(self._rng.randint(1, 3)))

    def _topic(self) -> Topic:
        """Topics come as from a shuffled deck, so that each is seen equally often."""
        if not self._deck:
            self._deck = list(range(len(self._corpus.topics)))
            self._rng.shuffle(self._deck)
        return self._corpus.topics[self._deck.pop()]

    def _turn(self) -> tuple[str, str]:
        rng = self._rng
        if rng.random() < 0.22:
            return vary(self._outside_question(), rng, in_scope=False), rng.choice(self._corpus.refusals)
        topic = self._topic()
        use_frame = topic.frames and rng.random() < 0.3
        question = rng.choice(topic.frames if use_frame else topic.asked)
        answer = topic.answer_for(question)
        return (question if rng.random() < 0.4 else vary(question, rng, in_scope=True)), answer

    def _outside_question(self) -> str:
        rng = self._rng
        if rng.random() < 0.45:
            return rng.choice(self._corpus.out_of_scope)
        form, fill = rng.choice(self._corpus.out_of_scope_templates)
        return form.format(rng.choice(fill))
