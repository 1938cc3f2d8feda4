"""Certificates of a cluster: every member shows one of the cluster's own authority, and trusts no other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fumehood.errors import UsageError
from fumehood.policy.hosts import is_address

_AUTHORITY_VALID = timedelta(days=3650)
MEMBER_VALID = timedelta(days=365)
# Clocks differ a little.
_BACKDATED = timedelta(hours=1)


def make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


def make_request(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    """A certificate signing request: the key itself stays where it was made."""
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


class ClusterCertificates:
    """The authority: its certificate, and the key that signs others."""

    def __init__(self, certificate_pem: str, signing_key_pem: str) -> None:
        self.pem = certificate_pem
        self._certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        key = serialization.load_pem_private_key(signing_key_pem.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UsageError("the key of the cluster's certificate authority is not of the kind that was made for it")
        self._key = key

    @classmethod
    def generate(cls) -> tuple[ClusterCertificates, str]:
        """A new authority, and its key as PEM."""
        key = make_key()
        certificate = (
            _builder(_name("Fumehood cluster"), _name("Fumehood cluster"), key.public_key(), _AUTHORITY_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        return cls(pem, key_pem(key)), key_pem(key)

    def issue(
        self,
        public: ec.EllipticCurvePublicKey,
        name: str,
        *,
        hosts: Sequence[str] = (),
        valid: timedelta = MEMBER_VALID,
    ) -> str:
        """A certificate for a member; with `hosts`, for the NATS server that members reach by these names."""
        use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_name(name), self._certificate.subject, public, valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(authority, critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def issue_for(self, request_pem: str, name: str) -> str:
        """For a signing request; of what that says only the key counts. UsageError if it is not a valid one."""
        try:
            request = x509.load_pem_x509_csr(request_pem.encode())
            public = request.public_key()
            is_valid = request.is_signature_valid and isinstance(public, ec.EllipticCurvePublicKey)
        except (ValueError, InvalidSignature):
            raise UsageError("the signing request is not valid") from None
        if not is_valid or not isinstance(public, ec.EllipticCurvePublicKey):
            raise UsageError("the signing request is not valid: its key is not of the kind that the cluster uses")
        return self.issue(public, name)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + valid)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        decipher_only=False,
        **unused,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if is_address(host) else x509.DNSName(host)
