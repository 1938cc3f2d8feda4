"""Whom this machine trusts: for the gateway's own connections, and as a bundle for programs inside."""

from __future__ import annotations

import os
import ssl

# Where distributions keep all roots in one file, for a Python whose OpenSSL was built to look elsewhere.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def host_context() -> ssl.SSLContext:
    """Verifies servers as any program on this machine would; `SSL_CERT_FILE` moves the roots, as everywhere."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not os.environ.get("SSL_CERT_FILE"):
        for bundle in _BUNDLES:
            if os.path.exists(bundle):
                context.load_verify_locations(bundle)
                break
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def bundle(context: ssl.SSLContext) -> bytes:
    """The roots of a context as PEM."""
    return "".join(ssl.DER_cert_to_PEM_cert(root) for root in context.get_ca_certs(binary_form=True)).encode()
