#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo model's answers through the whole stack: every evaluation question, greedy, on the cpu engine."""

import concurrent.futures
import sys
import unittest

from stator_process import MODEL, MODEL_DIR, ROOT, DeploymentTest, Serve

sys.path.insert(0, str(ROOT / "tools" / "demo_model"))
import evaluate  # noqa: E402
import judge  # noqa: E402

ANSWERED_MIN = 150
REFUSED_SHARE_MIN = 0.8
ANSWER_TIMEOUT_S = 100.0


class DemoModel(DeploymentTest):
    @classmethod
    def deploy(cls):
        return Serve(engine="cpu")

    def test_held_in_questions_are_answered_and_out_of_scope_ones_refused(self):
        questions = evaluate.read_questions(MODEL_DIR / "eval_questions.jsonl")
        with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
            answers = list(pool.map(
                lambda row: evaluate.ask_server(self.deployment.frontend.url, MODEL, row["question"], ANSWER_TIMEOUT_S),
                questions))
        report = evaluate.summarize(questions, answers)
        print("demo model:", {kind: f"{row['passed']}/{row['questions']}" for kind, row in report.items()})
        wrong = [f"{q['question']} -> {a}" for q, a in zip(questions, answers, strict=True)
                 if q["kind"].startswith("known") and not judge.passes(a, q["kind"], q["references"])]
        answered = sum(row["passed"] for kind, row in report.items() if kind.startswith("known"))
        self.assertGreaterEqual(answered, ANSWERED_MIN, "\n".join(wrong[:20]))
        refusals = [row for kind, row in report.items() if kind.startswith("out_of_scope")]
        asked, refused = (sum(row[key] for row in refusals) for key in ("questions", "passed"))
        self.assertGreater(asked, 0)
        self.assertGreaterEqual(refused / asked, REFUSED_SHARE_MIN)


if __name__ == "__main__":
    unittest.main()
