# SPDX-License-Identifier: Apache-2.0
"""What an operator says about the tiers: an engine's extra configuration, then the environment (STATOR_KV_*, DYN_KVBM_*, AWS_*, AZURE_*)."""

from __future__ import annotations

import hashlib
import logging
import os
import pathlib

from stator_kv import _discover
from stator_kv._library import parse_bytes

KEYS = {
    "host_bytes": "host memory for blocks: 4GiB", "disk": "folder of this engine alone", "disk_bytes": "how much of it",
    "disk_write_bytes_per_day": "spares the SSD", "store": "HOST:PORT of a `stator store`, or discover:file:DIR, discover:etcd://HOST:PORT", "object": "s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER",
    "object_endpoint": "of another S3 server, or another Azure", "object_region": "", "object_access_key": "", "object_secret_key": "",
    "object_session_token": "", "salt": "engines with another one share nothing", "model": "name of the model, else the engine's",
    "revision": "of the weights, else a digest of a local folder's files", "load": "async (between steps) or sync (before the forward pass)",
    "load_timeout_ms": "how long a request waits for tiers below host memory", "flush_ms": "how long an ending engine waits for blocks to go down",
    "save_decode": "whether blocks of generated tokens are kept, too", "metrics_port": "serves /metrics on 127.0.0.1", "staging": "",
    "wipe_foreign": "empty a disk folder of another namespace", "trust_host": "no checksum over host memory", "library": "path of libstator_kv",
    "backend_name": "", "module_path": "", "class_name": "", "interface_v1": "", "prefetch_threshold": "",
    "prefetch_timeout_base": "", "prefetch_timeout_per_ki_token": "", "hicache_storage_pass_prefix_keys": "",
}
_CACHE = ("disk", "store", "object", "object_endpoint", "object_region", "object_access_key", "object_secret_key", "object_session_token", "salt")
_ENVIRONMENT = {
    "object_endpoint": ("AWS_ENDPOINT_URL",), "object_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "object_access_key": ("AWS_ACCESS_KEY_ID",), "object_secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "object_session_token": ("AWS_SESSION_TOKEN",), "disk": ("DYN_KVBM_DISK_CACHE_DIR",),
    "metrics_port": ("DYN_KVBM_METRICS_PORT",),
}
_AZURE = {"object_access_key": "AZURE_STORAGE_ACCOUNT", "object_secret_key": "AZURE_STORAGE_KEY",
          "object_session_token": "AZURE_STORAGE_SAS_TOKEN"}
_GIGABYTES = {"host_bytes": "DYN_KVBM_CPU_CACHE_GB", "disk_bytes": "DYN_KVBM_DISK_CACHE_GB"}
_DISK_DEFAULT = "/var/lib/stator/kv"


def read(extra: dict, environ=os.environ) -> dict:
    """Extra configuration first, then STATOR_KV_NAME, then Dynamo's and AWS's variables. Unknown keys are refused by name."""
    if unknown := sorted(set(extra) - set(KEYS)):
        raise ValueError(f"unknown settings {unknown}: known are {sorted(k for k, v in KEYS.items() if v)}")
    out = {}
    for key in KEYS:
        value = extra.get(key, environ.get(f"STATOR_KV_{key.upper()}"))
        for name in _ENVIRONMENT.get(key, ()):
            value = environ.get(name) if value is None else value
        if str(out.get("object", "")).startswith("az://") and key in _AZURE and key not in extra:
            value = environ.get(_AZURE[key], value)
        if value is None and key in _GIGABYTES and environ.get(_GIGABYTES[key]):
            value = int(float(environ[_GIGABYTES[key]]) * 1e9)
        if value is not None:
            out[key] = value
    if out.get("disk_bytes") and not out.get("disk"):
        out["disk"] = _DISK_DEFAULT
    if isinstance(out.get("store"), str):
        out["store"] = out["store"].removeprefix("store://")
        if out["store"].startswith("discover:"):
            try:
                out["store"] = _discover.find(out["store"].removeprefix("discover:"))
            except (LookupError, OSError) as error:  # serving goes on without it
                logging.getLogger("stator_kv").error("%s", error)
                del out["store"]
    for key in ("wipe_foreign", "trust_host", "save_decode", "staging"):
        if isinstance(out.get(key), str):
            out[key] = out[key].lower() in ("1", "true", "yes", "on")
    if not any(out.get(key) for key in ("host_bytes", "disk", "object")) and not extra.get("store") and not environ.get("STATOR_KV_STORE"):
        raise ValueError("no tier is configured: set host_bytes, disk with disk_bytes, store or object")
    return out


def cache_options(settings: dict, rank: int = 0) -> dict:
    """Those of stator_kv.Cache. Each rank of an engine has a disk folder of its own."""
    out = {key: settings[key] for key in _CACHE if key in settings}
    if "disk" in out:
        out["disk"] = str(pathlib.Path(out["disk"]) / f"rank-{rank}")
    for key in ("host_bytes", "disk_bytes", "disk_write_bytes_per_day"):
        if key in settings:
            out[key] = parse_bytes(settings[key])
    for key in ("wipe_foreign", "trust_host", "library"):
        if key in settings:
            out[key] = settings[key]
    return out


def revision_of(model: str) -> str:
    """Digest of a local model's files: names, sizes and samples of their bytes. Empty for a name in a hub."""
    folder = pathlib.Path(model)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name == "config.json" or path.suffix in (".safetensors", ".bin", ".gguf", ".pt"):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size};".encode())
            with path.open("rb") as file:
                for i in range(16):
                    file.seek(size * i // 16)
                    digest.update(file.read(65_536))
    return digest.hexdigest()[:32]
