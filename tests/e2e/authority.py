# SPDX-License-Identifier: Apache-2.0
"""Real certificates for tests of mutual TLS, made by openssl."""

import pathlib
import subprocess


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: pathlib.Path, name: str):
        self.folder = folder
        self.name = name
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key",
                     "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}")

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def options(self, name: str, *san: str, days: int = 2) -> list[str]:
        """What a process with these names is told."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out",
                     f"{name}.csr", "-subj", f"/CN={name}")
        (self.folder / f"{name}.san").write_text("subjectAltName=" + ",".join(san))
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key", "-CAcreateserial",
                     "-out", f"{name}.pem", "-days", str(days), "-extfile", f"{name}.san")
        return ["--rpc-tls-cert-path", str(self.folder / f"{name}.pem"), "--rpc-tls-key-path", str(self.folder / f"{name}.key"),
                "--rpc-tls-ca-cert-path", str(self.folder / f"{self.name}.pem")]
