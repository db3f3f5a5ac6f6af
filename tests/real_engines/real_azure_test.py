#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV blocks in Azure's own emulator of its Blob service (scripts/test_azure.sh starts Azurite): the tests of a real S3 server, over Shared Key."""

import base64
import hashlib
import hmac
import os
import time
import unittest
import urllib.request
from email.utils import formatdate

import real_s3_test
from stator_process import Serve, clean_environment

ACCOUNT, KEY, ENDPOINT = (os.environ[name] for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "STATOR_AZURE_ENDPOINT"))


def make_container(name: str) -> None:
    date = formatdate(time.time(), usegmt=True)
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(f"{ENDPOINT}/{name}?restype=container", method="PUT", headers={
        "x-ms-date": date, "x-ms-version": "2021-08-06", "Authorization": f"SharedKey {ACCOUNT}:{signature}"})
    urllib.request.urlopen(request, timeout=10).close()


class RealAzure(real_s3_test.RealS3):
    def serve(self, bucket: str = "stator-kv", AWS_SECRET_ACCESS_KEY: str = "") -> Serve:  # noqa: N803: what the other server's test calls it
        key = base64.b64encode(b"wrong").decode() if AWS_SECRET_ACCESS_KEY else KEY
        server = Serve("--workers", "1", "--kv-object", f"az://{bucket}/prefix/a b", "--kv-object-endpoint", ENDPOINT, engine="cpu",
                       env=clean_environment(AZURE_STORAGE_ACCOUNT=ACCOUNT, AZURE_STORAGE_KEY=key))
        self.addCleanup(server.close)
        return server


if __name__ == "__main__":
    make_container("stator-kv")
    unittest.main()
