#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claude Code, its agent SDK and Codex themselves, against `stator serve`: a question, a command that the model asks for, what it printed goes
back, an answer. The model's part is scripted (--sim-reply), all else is theirs. Run by scripts/test_real_clients.sh, which names their folder
in AGENTS."""

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stator_process import MODEL_DIR, Http, Serve  # noqa: E402

AGENTS = pathlib.Path(os.environ["AGENTS"])
MODEL = "qwen2.5-demo"  # whose calls are in Hermes' format
COMMAND = "echo PROOF-$((7730+1))"
SAID = "The command printed the proof."
CONTEXT = 262144  # their prompts are long


def replies(tool: str, **arguments: str) -> list[dict]:
    call = json.dumps({"name": tool, "arguments": arguments})
    return [{"when": "PROOF-7731", "reply": SAID}, {"when": "KV cache", "reply": f"<tool_call>\n{call}\n</tool_call>"}, {"reply": "Fine."}]


class CodingAgent(unittest.TestCase):
    def serve(self, script: list[dict]) -> Serve:
        folder = tempfile.TemporaryDirectory(prefix="stator-agents-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        model = self.home / "model"
        shutil.copytree(MODEL_DIR, model)
        for name, field in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
            config = json.loads((model / name).read_text())
            (model / name).write_text(json.dumps(config | {field: CONTEXT}))
        (self.home / "replies.jsonl").write_text("\n".join(map(json.dumps, script)))
        served = Serve("--model-name", MODEL, "--kv-blocks", "40000", "--sim-speedup", "0", "--sim-reply", str(self.home / "replies.jsonl"),
                       "--tool-call-parser", "hermes", model=str(model))
        self.addCleanup(served.close)
        self.root = served.frontend.url
        self.environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "ANTHROPIC_BASE_URL": self.root, "ANTHROPIC_API_KEY": "unused",
                            "OPENAI_API_KEY": "unused", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
        return served

    def answered(self, served: Serve, endpoint: str, requests: int) -> None:
        http = Http(served.frontend.port)
        self.assertEqual(http.metric("dynamo_frontend_requests_total", endpoint=endpoint, status="success"), requests)
        self.assertGreater(http.metric("dynamo_frontend_cached_tokens_sum"), 1000, "the second turn found the first one's prompt")

    def run_agent(self, *command: str) -> str:
        done = subprocess.run([str(AGENTS / "node_modules" / ".bin" / command[0]), *command[1:]], env=self.environment, cwd=self.home,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_claude_code(self):
        served = self.serve(replies("Bash", command=COMMAND, description="Prints a proof"))
        self.assertIn(SAID, self.run_agent("claude", "-p", "What is a KV cache?", "--allowedTools", "Bash", "--model", MODEL))
        self.answered(served, "anthropic_messages", 2)

    def test_claude_agent_sdk(self):
        from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
        served = self.serve(replies("Bash", command=COMMAND, description="Prints a proof"))

        async def ask() -> list[object]:
            options = ClaudeAgentOptions(model=MODEL, allowed_tools=["Bash"], cwd=self.home, env=self.environment,
                                         cli_path=str(AGENTS / "node_modules" / ".bin" / "claude"))
            return [message async for message in query(prompt="What is a KV cache?", options=options)]
        last = asyncio.run(ask())[-1]
        self.assertIsInstance(last, ResultMessage)
        self.assertEqual((last.result, last.is_error, last.num_turns), (SAID, False, 2))
        self.answered(served, "anthropic_messages", 2)

    def test_codex(self):
        served = self.serve(replies("exec_command", cmd=COMMAND))
        settings = self.home / ".codex"
        settings.mkdir()
        (settings / "config.toml").write_text(
            f'model = "{MODEL}"\nmodel_provider = "stator"\n[model_providers.stator]\nname = "stator"\nbase_url = "{self.root}/v1"\n'
            'wire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n')
        self.assertIn(SAID, self.run_agent("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "What is a KV cache?"))
        self.answered(served, "responses", 2)


if __name__ == "__main__":
    unittest.main()
