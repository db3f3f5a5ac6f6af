#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a container image without a daemon: an OCI layout with one layer that has the program, its libraries, the certificates of
authorities and the demo model, and nothing else: no shell, no package manager. It runs as user 65532.

usage: deploy/image/make_image.py --binary build/release/bin/stator --version 0.1.0 --out DIR    writes the layout and DIR.tar
       deploy/image/make_image.py --check DIR [--unpack ROOT]      digests, size below 80 MB, user; unpacks the layer

`podman load -i DIR.tar`, `docker load -i DIR.tar` (25 or newer) and `skopeo copy oci:DIR …` take it.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import libraries  # noqa: E402

USER = 65532
BYTES_MAX = 80_000_000
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# Name service of the C library: looked up at run time, so that ldd does not show it.
NAME_SERVICE = ("libnss_files.so.2", "libnss_dns.so.2")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer:
    """A tar of files that are the same whoever packs them."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.PAX_FORMAT)
        self._folders: set[str] = set()

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        parts = path.strip("/").split("/")
        for i in range(1, len(parts) + 1):
            name = "/".join(parts[:i])
            if name not in self._folders:
                self._folders.add(name)
                entry = tarfile.TarInfo(name)
                entry.type = tarfile.DIRTYPE
                last = i == len(parts)
                entry.mode, entry.uid, entry.gid = (mode, owner, owner) if last else (0o755, 0, 0)
                self._tar.addfile(entry)

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        if "/" in path:
            self.folder(path.rsplit("/", 1)[0])
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(data), mode
        self._tar.addfile(entry, io.BytesIO(data))

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


def make_layer(binary: pathlib.Path) -> bytes:
    layer = Layer()
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch) / "stator"
        libraries.stripped(binary, program)
        layer.file("usr/bin/stator", program.read_bytes(), 0o755)
        found = libraries.needed(binary)
        libc = found["libc.so.6"].parent
        for name in NAME_SERVICE:
            if (libc / name).exists():
                found[name] = libc / name
        for name, path in sorted(found.items()):
            target = str(path).lstrip("/") if name.startswith("ld-linux") else f"usr/lib/{os.uname().machine}-linux-gnu/{name}"
            data = path.read_bytes()
            layer.file(target, data, 0o755)
    if CERTIFICATES.exists():
        layer.file(str(CERTIFICATES).lstrip("/"), CERTIFICATES.read_bytes())
    for path in sorted((ROOT / "models/demo").rglob("*")):
        if path.is_file():
            layer.file(f"usr/share/stator/models/demo/{path.relative_to(ROOT / 'models/demo')}", path.read_bytes())
    layer.file("etc/passwd", f"root:x:0:0::/:\nstator:x:{USER}:{USER}::/var/lib/stator:\n".encode())
    layer.file("etc/group", f"root:x:0:\nstator:x:{USER}:\n".encode())
    layer.file("etc/nsswitch.conf", b"hosts: files dns\n")
    layer.folder("tmp", 0o1777)
    layer.folder("var/lib/stator", 0o700, USER)
    return layer.bytes()


def write_blob(out: pathlib.Path, data: bytes, media_type: str) -> dict:
    digest = hashlib.sha256(data).hexdigest()
    (out / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (out / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def make(binary: pathlib.Path, version: str, out: pathlib.Path) -> None:
    layer = make_layer(binary)
    packed = gzip.compress(layer, 6, mtime=0)
    config = {
        "created": "2026-01-01T00:00:00Z", "architecture": ARCHITECTURES[os.uname().machine], "os": "linux",
        "config": {"User": f"{USER}:{USER}", "Entrypoint": ["/usr/bin/stator"], "Cmd": ["serve", "/usr/share/stator/models/demo"],
                   "WorkingDir": "/var/lib/stator", "ExposedPorts": {"8000/tcp": {}}, "Env": ["HOME=/var/lib/stator", "PATH=/usr/bin"],
                   "Labels": {"org.opencontainers.image.title": "stator", "org.opencontainers.image.version": version,
                              "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "deploy/image/make_image.py"}]}
    out.mkdir(parents=True, exist_ok=True)
    for stale in (out / "blobs/sha256").glob("*"):
        stale.unlink()
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": write_blob(out, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
                "layers": [write_blob(out, packed, "application/vnd.oci.image.layer.v1.tar+gzip")]}
    entry = write_blob(out, json.dumps(manifest).encode(), manifest["mediaType"])
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"stator:{version}"}
    (out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (out / "index.json").write_text(json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}))
    with tarfile.open(f"{out}.tar", "w") as archive:
        for path in sorted(out.rglob("*")):
            archive.add(path, path.relative_to(out), recursive=False)


def read_blob(layout: pathlib.Path, entry: dict) -> bytes:
    kind, digest = entry["digest"].split(":")
    data = (layout / "blobs" / kind / digest).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest or len(data) != entry["size"]:
        raise SystemExit(f"{digest} is not what it says")
    return data


def check(layout: pathlib.Path, unpack: pathlib.Path | None) -> None:
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(read_blob(layout, index["manifests"][0]))
    config = json.loads(read_blob(layout, manifest["config"]))
    total = 0
    for entry, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = gzip.decompress(read_blob(layout, entry))
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != diff_id:
            raise SystemExit("the layer is not the one of the configuration")
        total += len(data)
        if unpack is not None:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(unpack, filter="fully_trusted" if os.getuid() == 0 else "tar")
    if config["config"]["User"].split(":")[0] in ("", "0", "root"):
        raise SystemExit("the image runs as root")
    if total > BYTES_MAX:
        raise SystemExit(f"the image has {total} bytes unpacked, more than {BYTES_MAX}")
    print(f"{layout}: {total / 1e6:.1f} MB unpacked, user {config['config']['User']}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path)
    parser.add_argument("--version", default="0")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--unpack", type=pathlib.Path)
    options = parser.parse_args()
    if options.check:
        check(options.check, options.unpack)
    else:
        make(options.binary, options.version, options.out)


if __name__ == "__main__":
    main()
