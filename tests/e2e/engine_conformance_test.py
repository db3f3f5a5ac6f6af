#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The conformance checks of engine servers (tests/real_engines/conformance.py) against each fake one."""

import pathlib
import sys
import unittest

from stator_process import MODEL_DIR, Http, Stator, eventually

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "real_engines"))
from conformance import Conformance  # noqa: E402

VOCABULARY = 3072


class Fake(Conformance):
    """A `stator sim-server` behind a `stator serve`, for all tests of a class."""

    vocabulary = VOCABULARY

    @classmethod
    def setUpClass(cls) -> None:
        cls.engine = Stator("sim-server", "--dialect", "vllm" if cls.dialect == "openai" else cls.dialect, "--model-dir", str(MODEL_DIR),
                            "--served-model-name", "m", "--port", "0", "--sim-speedup", "20", "--max-model-len", "1024")
        cls.addClassCleanup(cls.engine.close)
        cls.stator = Stator("serve", str(MODEL_DIR), "--engine", cls.dialect, "--url", cls.engine.url, "--host", "127.0.0.1", "--port", "0",
                            "--model-name", "m", "--engine-poll-interval", "100ms")
        cls.addClassCleanup(cls.stator.close)
        cls.stator_url, cls.engine_url = cls.stator.url, cls.engine.url
        eventually(lambda: Http(cls.stator.port).request("GET", "/health")[0] == 200, "healthy")


class Vllm(Fake, unittest.TestCase):
    dialect = "vllm"


class Sglang(Fake, unittest.TestCase):
    dialect = "sglang"


class Trtllm(Fake, unittest.TestCase):
    dialect = "trtllm"


class Llamacpp(Fake, unittest.TestCase):
    dialect = "llamacpp"


class Openai(Fake, unittest.TestCase):
    dialect = "openai"


if __name__ == "__main__":
    unittest.main()
