#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The broken manifests of tests/e2e/operator_refusals_test.py, given to a real API server: each is refused, and the field is named."""

import re
import unittest

import yaml

from control_plane import ApiError, missing
from rig import ClusterTest

from operator_refusals_test import CASES, broken


class Refusals(ClusterTest):
    def test_each_broken_one_is_refused_by_name(self):
        for manifest, path, value, field, _ in CASES:
            document = yaml.safe_load(broken(manifest, path, value))
            with self.subTest(kind=manifest["kind"], path=path, value=str(value)[:60]):
                if path in ("apiVersion", "kind"):
                    continue  # there is no such path to write it to
                with self.assertRaises(ApiError) as refused:
                    kind, version = document["kind"], document["apiVersion"].rsplit("/", 1)[-1]
                    self.api.request("POST", self.api.path(kind, self.space, version=version), document)
                self.assertIn(refused.exception.status, (400, 403, 422))
                # What the schema refuses is said in the API server's words: the last part of the name is there in both.
                last = re.split(r"[.\[\]]", field.rstrip("]"))[-1]
                self.assertIn(last, refused.exception.message)
                self.assertNotIn("failed calling webhook", refused.exception.message)


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        raise SystemExit(77)
    unittest.main()
