# SPDX-License-Identifier: MIT
"""Certificates for servers of the tests' own."""
import os
import shutil
import subprocess
import sys


def need_openssl():
    if not shutil.which("openssl"):
        print("there is no openssl")
        sys.exit(77)


def make_certificates(directory):
    """An authority, and a certificate of it for 127.0.0.1, which it lacks for any other name."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca",
            "-days", "2")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    with open(os.path.join(directory, "names"), "w", encoding="utf-8") as file:
        file.write("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "server.crt", "-days", "2", "-extfile", "names")


def tls_options(directory, port):
    """Options of a server that uses the certificates in a directory."""
    return ["--tls-port", str(port), "--tls-cert-file", os.path.join(directory, "server.crt"), "--tls-key-file",
            os.path.join(directory, "server.key"), "--tls-ca-cert-file", os.path.join(directory, "ca.crt"),
            "--tls-auth-clients", "no"]
