#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deploy/ ships for Kubernetes: manifests and kustomizations that render, recipes as their generator writes them, a chart whose rights are
those of the plain manifests."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

from stator_process import BINARY, clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def stator_render(text: str) -> list[dict]:
    done = subprocess.run([BINARY, "operator", "render", "-"], input=text, env=clean_environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)["items"]


def patch(value: dict, steps: list[dict]) -> None:
    """A JSON patch of additions and replacements; the way to each must be there."""
    for step in steps:
        *way, last = [each.replace("~1", "/") for each in step["path"][1:].split("/")]
        at = value
        for key in way:
            at = at[int(key) if isinstance(at, list) else key]
        if isinstance(at, list) and last == "-":
            at.append(step["value"])
        else:
            if step["op"] == "replace":
                assert last in at, step
            at[last] = step["value"]


def kustomized(folder: pathlib.Path) -> list[dict]:
    """What `kubectl kustomize` makes of the parts of kustomizations that are used here."""
    config = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"resources", "components", "patches", "images", "replicas", "namespace", "apiVersion", "kind"}
    assert set(config) <= known, set(config) - known
    objects = []
    for name in config.get("resources", []):
        path = folder / name
        objects += kustomized(path) if path.is_dir() else [each for each in yaml.safe_load_all(path.read_text()) if each]
    parts = [yaml.safe_load((folder / name / "kustomization.yaml").read_text()) for name in config.get("components", [])]
    for part in (*parts, config):
        for each in part.get("patches", []):
            found = [value for value in objects if value["kind"] == each["target"]["kind"]
                     and each["target"].get("name", value["metadata"]["name"]) == value["metadata"]["name"]]
            assert found, each
            for value in found:
                patch(value, yaml.safe_load(each["patch"]))
    for value in objects:
        if "namespace" in config:
            value["metadata"]["namespace"] = config["namespace"]
        for count in config.get("replicas", []):
            if value["metadata"]["name"] == count["name"] and "replicas" in value.get("spec", {}):
                value["spec"]["replicas"] = count["count"]
    return objects


class DeployFiles(unittest.TestCase):
    def test_recipes_are_as_their_generator_writes_them_and_render(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, DEPLOY / "recipes/make_recipes.py", folder], check=True)
            made = {path.relative_to(folder): path.read_text() for path in pathlib.Path(folder).rglob("*.yaml")}
        there = {path.relative_to(DEPLOY / "recipes"): path.read_text() for path in (DEPLOY / "recipes").rglob("*.yaml")}
        self.assertEqual(made, there)
        graphs = [text for path, text in sorted(there.items()) if path.name == "deploy.yaml"]
        kinds = [each["kind"] for each in stator_render("---\n".join(graphs))]
        self.assertEqual(kinds.count("InferencePool"), len(graphs) // 3)
        self.assertGreaterEqual(kinds.count("Deployment"), 2 * len(graphs))

    def test_plain_manifests_render(self):
        for path in (DEPLOY / "kubernetes").glob("*.yaml"):
            if path.name != "kustomization.yaml":
                self.assertTrue(stator_render(path.read_text()), path)

    def test_kustomizations_render(self):
        folders = [path.parent for path in (DEPLOY / "kustomize").glob("*/kustomization.yaml")]
        self.assertGreaterEqual(len(folders), 4)
        for folder in folders:
            with self.subTest(folder=folder.name):
                self.assertTrue(stator_render(yaml.safe_dump_all(kustomized(folder))))

    def test_the_chart_grants_what_the_manifests_grant(self):
        plain = {(each["kind"], each["metadata"]["name"]): each.get("rules") for each in
                 yaml.safe_load_all((DEPLOY / "kubernetes/operator.yaml").read_text()) if "Role" in each["kind"]}
        text = re.sub(r"\{\{-? (?:if|end|else)[^}]*\}\}\n?", "", (DEPLOY / "helm/stator/templates/rbac.yaml").read_text())
        chart = {(each["kind"], each["metadata"]["name"]): each.get("rules") for each in
                 yaml.safe_load_all(text.replace("{{ .Release.Namespace }}", "stator-system")) if each and "Role" in each["kind"]}
        self.assertEqual(plain, chart)

    def test_the_charts_templates_use_values_that_there_are(self):
        values = yaml.safe_load((DEPLOY / "helm/stator/values.yaml").read_text())
        used = set()
        for path in (DEPLOY / "helm/stator/templates").glob("*.yaml"):
            text = path.read_text()
            used |= set(re.findall(r"\.Values\.([\w.]+)", text))
            opened = len(re.findall(r"\{\{-? (?:if|with|range) ", text))
            self.assertEqual(opened, len(re.findall(r"\{\{-? end ", text)), f"{path}: blocks are closed")
        for name in used:
            at = values
            for part in name.split("."):
                self.assertIn(part, at, f"values.yaml has no {name}")
                at = at[part]
        for name in values:
            self.assertTrue(any(each.split(".")[0] == name for each in used), f"{name} of values.yaml is not used")


if __name__ == "__main__":
    unittest.main()
