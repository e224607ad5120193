"""A certificate authority of one's own, and a server's certificate signed by it.

For tests, and for a first deployment among people who can hand each other a file: participants get
``ca.pem`` and trust nobody else. The keys stay with the coordinator, readable by the owner only.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> made = make_certificates(folder.name, hosts=["coordinator.example.org"])
    >>> made.authority.name, made.key.stat().st_mode & 0o777 == 0o600
    ('ca.pem', True)
    >>> folder.cleanup()
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sfumato.core import validation
from sfumato.learning.durable import write_whole

__all__ = ["Certificates", "make_certificates"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@final
@dataclass(frozen=True)
class Certificates:
    """Files in PEM.

    Attributes:
        authority: the authority's certificate, for participants.
        certificate: the server's.
        key: the server's private key.
    """

    authority: Path
    certificate: Path
    key: Path


def make_certificates(
    folder: str | Path, *, hosts: Iterable[str] = (), days: int = 365
) -> Certificates:
    """Makes them, unless they are in the folder already.

    Args:
        folder: where they go; made if it is not there.
        hosts: names and addresses under which participants reach the server. Loopback is always
            among them: the coordinator's own processes talk to the server over it.
        days: how long they are valid.
    """
    days = validation.count("days", days)
    folder = Path(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")
    if made.authority.exists() and made.certificate.exists() and made.key.exists():
        return made
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, days)
    server = _server(server_key, authority, authority_key, [*_LOOPBACK, *hosts], days)
    write_whole(folder / "ca-key.pem", _private(authority_key))
    write_whole(made.key, _private(server_key))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return made


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _builder(
    subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = "sfumato authority"
    return (
        _builder(name, _name(name), key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: list[str],
    days: int,
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder("sfumato coordinator", authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
