# SPDX-License-Identifier: Apache-2.0
"""Stator from Python: start a server, talk to it.

    import stator
    with stator.serve() as server:                   # the demo model, on a free port, until the block ends
        print(server.chat("What is a KV cache?"))
        for piece in server.stream("And a token?"):
            print(piece, end="")
        openai.OpenAI(base_url=server.base_url, api_key="-")   # or any other client

Needs nothing but the standard library. The binary and its libraries are inside the package.
"""

from __future__ import annotations

from ._client import Client, ServerError
from ._serve import Server, StartError, serve
from ._binary import binary_path, demo_model, environment, version

__all__ = ["Client", "Server", "ServerError", "StartError", "binary_path", "demo_model", "environment", "serve", "version"]
__version__ = version()
