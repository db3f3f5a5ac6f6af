# SPDX-License-Identifier: Apache-2.0
"""A small client of a Stator server, or of any other with the same API; standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any


class ServerError(RuntimeError):
    """The server answered with an error; `status` and `body` say which."""

    def __init__(self, status: int, body: str):
        self.status = status
        self.body = body
        try:
            message = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = body[:500]
        super().__init__(f"{status}: {message}")


class Client:
    """Talks to one server. Thread-safe: it holds no connection."""

    def __init__(self, url: str, api_key: str | None = None, timeout_s: float = 600.0):
        self.url = url.rstrip("/")
        self.base_url = self.url + "/v1"
        self._api_key = api_key
        self._timeout_s = timeout_s

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None):
        """The open answer; ServerError for a status of 400 and more."""
        sent = {"content-type": "application/json", **(headers or {})}
        if self._api_key:
            sent["authorization"] = f"Bearer {self._api_key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=sent, method=method)
        try:
            return urllib.request.urlopen(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            raise ServerError(error.code, error.read().decode(errors="replace")) from None

    def get_json(self, path: str) -> Any:
        with self.request("GET", path) as answer:
            return json.load(answer)

    def models(self) -> list[str]:
        return [model["id"] for model in self.get_json("/v1/models")["data"]]

    def _body(self, messages: str | list[dict], model: str | None, options: dict[str, Any]) -> dict[str, Any]:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return {"model": model or self.models()[0], "messages": messages, **options}

    def complete(self, messages: str | list[dict], model: str | None = None, **options: Any) -> dict[str, Any]:
        """A chat completion, as the server answers it."""
        with self.request("POST", "/v1/chat/completions", self._body(messages, model, options)) as answer:
            return json.load(answer)

    def chat(self, messages: str | list[dict], model: str | None = None, **options: Any) -> str:
        """The text of the answer."""
        return self.complete(messages, model, **options)["choices"][0]["message"]["content"] or ""

    def stream(self, messages: str | list[dict], model: str | None = None, **options: Any) -> Iterator[str]:
        """The text of the answer, piece by piece."""
        body = self._body(messages, model, {**options, "stream": True})
        with self.request("POST", "/v1/chat/completions", body) as answer:
            for line in answer:
                text = line.decode().rstrip("\r\n")
                if not text.startswith("data: ") or text == "data: [DONE]":
                    continue
                event = json.loads(text[6:])
                if "error" in event:
                    raise ServerError(int(event.get("code") or 500), text[6:])
                for choice in event.get("choices", []):
                    piece = choice.get("delta", {}).get("content")
                    if piece:
                        yield piece

    def explain(self, request_id: str = "last") -> dict[str, Any]:
        """Why a worker was chosen; on the operators' listener where there is one."""
        return self.get_json("/receipts/" + urllib.parse.quote(request_id))
