"""The certificate authority of one sandbox. Only programs in it trust it, and its key never leaves this process."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fumehood.policy.hosts import is_address

_VALID = timedelta(days=30)
# Clocks differ a little.
_BACKDATED = timedelta(hours=1)
_MOST_CONTEXTS = 256


class CertificateAuthority:
    """Makes a certificate for a name when it is first needed and keeps it. Not thread-safe."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fumehood sandbox gateway")])
        self._certificate = self._make_root()
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pem(self) -> bytes:
        """The root, for programs inside to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """What the gateway shows to a client that wants this host."""
        if (context := self._contexts.get(host)) is None:
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.pop(next(iter(self._contexts)))
            context = self._contexts[host] = self._make_context(host)
        return context

    def identity(self, host: str) -> bytes:
        """A certificate for the host with all that it rests on, and its key, as PEM."""
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._make_leaf(host).public_bytes(serialization.Encoding.PEM) + self.pem + key

    def _make_context(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_RENEGOTIATION
        # The standard library takes keys from files only; this one has no name and lives in memory.
        descriptor = os.memfd_create("fumehood", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(self.identity(host))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return context

    def _make_root(self) -> x509.Certificate:
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _make_leaf(self, host: str) -> x509.Certificate:
        name = x509.IPAddress(ip_address(host)) if is_address(host) else x509.DNSName(host)
        # Subjects are short and clients ignore them; they check the alternative name.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            self._builder(subject, self._leaf_key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + _VALID)
        )
