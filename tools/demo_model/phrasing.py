# SPDX-License-Identifier: Apache-2.0
"""Other ways of typing the same question, drawn from a given random generator.

Four steps, each with its own probability: another sentence frame ("How do I X" → "Is there a way to X"), synonyms, small
words lost or words added, and finally the surface: case, punctuation, typos.
"""

from __future__ import annotations

import random
import re

OPENERS = (
    "Please: ", "Hi, ", "Hello! ", "Hey, ", "Quick question: ", "I have a question. ", "Could you help me? ", "Sorry, ",
    "One more thing: ", "Ok, ", "So, ", "Please tell me: ", "I wonder: ", "Excuse me, ", "And ", "Also, ", "Now, ", "But ",
    "Can you tell me: ", "I would like to know: ", "Just curious, ",
)
CLOSERS = (" Thanks!", " Please.", " Thank you.", " Keep it short.", " I am new to this.", " Please be brief.")
SCOPES = (" in Stator", " with Stator", " for Stator", " here", " in this system", " in LLM serving")
FILLERS = frozenset(
    "the a an does do is are please exactly really my i can to of in it for with be what how me you there which".split())

SYNONYMS = tuple(tuple(group.split("|")) for group in (
    "start|launch|run|start up|bring up", "stop|shut down|quit|end|exit|terminate", "change|set|modify|adjust|configure",
    "see|view|look at|inspect|find out|check", "show|print|display|give", "find|locate|discover", "choose|select|pick",
    "chosen|selected|picked", "fast|quick|speedy", "faster|quicker", "slow|sluggish", "speed up|accelerate", "big|large",
    "error|failure|problem", "fails|crashes|dies|breaks", "crash|die|fail|go down", "license|licence|licensing terms",
    "machine|computer|box|laptop", "computer|PC|machine", "need|require|have to have", "needs|requires", "use|employ",
    "reduce|lower|decrease|cut", "improve|increase|raise|better", "add|attach|put in", "remove|delete|take away",
    "benefit|advantage|point|gain", "explain|describe|clarify", "request|query|call", "requests|queries|calls",
    "answer|reply|response|output", "answers|replies|responses|outputs", "message|text", "get|obtain|receive|fetch",
    "send|post|submit", "list|enumerate|show|name", "many|lots of", "full|exhausted|used up", "store|keep|save",
    "stored|kept|saved|held", "cached|in the cache|kept", "made|created|built|developed", "wrote|created|made",
    "install|set up", "setup|installation", "documentation|docs|manual|guide", "example|sample", "important|key",
    "wrong|incorrect|broken|bad", "work|function|operate", "works|functions|operates", "supported|available",
    "support|offer|handle|provide", "parts|pieces|components", "terminal|shell|command line|console", "flag|option|switch",
    "default|standard", "several|multiple|many", "two|2", "split|divide|separate", "connect|talk|link up", "kill|terminate",
    "purpose|goal|aim|reason", "kind|type|sort", "busy|occupied|overloaded", "mode|policy|strategy", "idea|concept|notion",
    "Stator|the Stator server|stator", "LLM|language model|large language model", "LLMs|language models|models",
    "worker|worker process", "server|service", "prompt|input", "key-value cache|KV cache", "inference|LLM inference",
))

_GROUPS_OF = {
    phrase: [index for index, group in enumerate(SYNONYMS) if phrase in group] for group in SYNONYMS for phrase in group}
# Longest first, so that "shut down" is found before "shut".
_SYNONYM_PATTERN = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(_GROUPS_OF, key=len, reverse=True))) + r")\b")

_HOW_DO_I = (
    "How do I {}?", "How can I {}?", "How to {}?", "How should I {}?", "How does one {}?", "What is the way to {}?", "I want to {}.",
    "I need to {}.", "Is there a way to {}?", "Tell me how to {}.", "Show me how to {}.", "What do I do to {}?", "{}",
    "What must I do to {}?", "Could you explain how to {}?", "How would I {}?", "I do not know how to {}.",
)
_WHAT_IS = (
    "What is {}?", "What's {}?", "Explain {}.", "Tell me about {}.", "Describe {}.", "What exactly is {}?", "Please explain {}.",
    "Can you tell me about {}?", "What would {} be?", "{}?", "Do you know {}?", "I would like to know about {}.",
)
FRAMES = tuple((re.compile(pattern, re.IGNORECASE), forms) for pattern, forms in (
    (r"^How (?:do|can) I (.+?)[?.]?$", _HOW_DO_I),
    (r"^What(?: is|'s) the difference between (.+) and (.+?)[?.]?$", (
        "What is the difference between {} and {}?", "{} vs {}?", "{} or {}?", "How do {} and {} differ?", "How is {} different from {}?",
        "Compare {} and {}.", "Explain the difference between {} and {}.", "What distinguishes {} from {}?")),
    (r"^What is (.+?)[?.]?$", _WHAT_IS),
    (r"^What are (.+?)[?.]?$", ("What are {}?", "Explain {}.", "Tell me about {}.", "List {}.", "Describe {}.", "Name {}.", "{}?")),
    (r"^What does (.+) do[?.]?$", (
        "What does {} do?", "What is {} for?", "What's the purpose of {}?", "What is the function of {}?", "Explain what {} does.",
        "What good is {}?", "What is the use of {}?", "Why is there {}?", "Tell me what {} does.")),
    (r"^What does (.+) mean[?.]?$", (
        "What does {} mean?", "What is meant by {}?", "Meaning of {}?", "What is the meaning of {}?", "Explain the meaning of {}.",
        "What is {}?", "What do you mean by {}?")),
    (r"^What does (.+) stand for[?.]?$", (
        "What does {} stand for?", "What is {} short for?", "What is the long form of {}?", "{} stands for what?", "What do the letters {} mean?")),
    (r"^How does (.+) work[?.]?$", (
        "How does {} work?", "Explain how {} works.", "Tell me how {} works.", "In what way does {} work?", "How is {} done?",
        "What is the idea behind {}?", "Describe how {} works.")),
    (r"^What happens (?:when|if) (.+?)[?.]?$", (
        "What happens when {}?", "What happens if {}?", "What if {}?", "What do you do when {}?", "And if {}?", "Suppose {}, what then?",
        "How does Stator react when {}?")),
    (r"^Which (.+?)[?.]?$", ("Which {}?", "What {}?", "Tell me which {}.", "Do you know which {}?")),
    (r"^Where (?:is|are) (.+?)[?.]?$", ("Where is {}?", "Where are {}?", "Where do I find {}?", "Where can I see {}?", "In which place is {}?")),
    (r"^Why (?:is|does|do|are) (.+?)[?.]?$", ("Why is {}?", "Why does {}?", "How come {}?", "What is the reason that {}?", "Explain why {}.")),
    (r"^Do I need (.+?)[?.]?$", ("Do I need {}?", "Is it necessary to have {}?", "Must I have {}?", "Is {} required?", "Does it need {}?", "Can I do without {}?")),
    (r"^Can I (.+?)[?.]?$", ("Can I {}?", "Is it possible to {}?", "May I {}?", "Am I able to {}?", "How do I {}?", "I want to {}, is that possible?")),
    (r"^Does Stator (.+?)[?.]?$", ("Does Stator {}?", "Does it {}?", "Can Stator {}?", "Will Stator {}?", "I wonder whether Stator does {}.")),
    (r"^Is there (.+?)[?.]?$", ("Is there {}?", "Do you have {}?", "Does Stator have {}?", "Does {} exist?", "Can I get {}?")),
))


def _reframe(text: str, rng: random.Random) -> str:
    for pattern, forms in FRAMES:
        match = pattern.match(text)
        if match:
            new = rng.choice(forms).format(*match.groups())
            return new[0].upper() + new[1:]
    return text


def _synonym(text: str, rng: random.Random) -> str:
    """Replaces one phrase of the text by another one of a group that it belongs to."""
    found = list(_SYNONYM_PATTERN.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    group = SYNONYMS[rng.choice(_GROUPS_OF[match.group()])]
    new = rng.choice([phrase for phrase in group if phrase != match.group()])
    return text[:match.start()] + new + text[match.end():]


def _typo(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2:]
    if kind == 1:
        return word[:at] + word[at + 1:]
    return word[:at] + word[at] + word[at:]


def _lose_words(text: str, rng: random.Random) -> str:
    """Telegram style without small words, or one word of any kind lost from a longer question."""
    parts = text.split(" ")
    if rng.random() < 0.3:
        kept = [part for part in parts if part.lower().strip("?.!,") not in FILLERS]
        return " ".join(kept) if kept else text
    if len(parts) > 3:
        small = [i for i, part in enumerate(parts) if part.lower() in FILLERS]
        parts.pop(rng.choice(small) if small and rng.random() < 0.7 else rng.randrange(len(parts)))
    return " ".join(parts)


def _surface(text: str, rng: random.Random) -> str:
    parts = text.split(" ")
    if rng.random() < 0.12:
        long = [i for i, part in enumerate(parts) if len(part) >= 5 and part.isalpha()]
        if long:
            i = rng.choice(long)
            parts[i] = _typo(parts[i], rng)
    text = " ".join(parts)
    if rng.random() < 0.25:
        text = text.rstrip("?.!") or text
    elif rng.random() < 0.04:
        text = text.rstrip("?.!") + rng.choice((" ?", "??", "!", "...", "?!"))
    draw = rng.random()
    if draw < 0.25:
        return text.lower()
    return text.upper() if draw < 0.27 else text


def vary(question: str, rng: random.Random, in_scope: bool) -> str:
    """A variation of the question; `in_scope` allows words such as "in Stator" to be added."""
    text = question
    if rng.random() < 0.35:
        text = _reframe(text, rng)
    if rng.random() < 0.3:
        text = _synonym(text, rng)
        if rng.random() < 0.4:
            text = _synonym(text, rng)
    if in_scope and rng.random() < 0.05 and "Stator" not in text and len(text) > 12:
        text = text.rstrip("?.!") + rng.choice(SCOPES) + "?"
    if rng.random() < 0.18:
        text = _lose_words(text, rng)
    if rng.random() < 0.1:
        text = rng.choice(OPENERS) + (text[0].lower() + text[1:] if rng.random() < 0.7 else text)
    if rng.random() < 0.04:
        text += rng.choice(CLOSERS)
    return _surface(text, rng)
