"""A certificate for a TLS server on loopback, signed by its own key: its own authority, made of the standard library.

ECDSA over P-256 (FIPS 186-5, with SHA-256) in a DER certificate (RFC 5280). Slow and open to whoever measures it: for
tests only.
"""

import hashlib
import ipaddress
import secrets
import ssl
from base64 import encodebytes
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
P_256 = "1.2.840.10045.3.1.7"
EC_PUBLIC_KEY = "1.2.840.10045.2.1"
ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2"
COMMON_NAME = "2.5.4.3"
SUBJECT_KEY_ID, KEY_USAGE, SUBJECT_ALT_NAME, BASIC_CONSTRAINTS = "2.5.29.14", "2.5.29.15", "2.5.29.17", "2.5.29.19"

Point = tuple[int, int] | None
"""A point of the curve; None is the one at infinity."""


@dataclass(frozen=True)
class Certificate:
    """Where a certificate and its key are, as PEM files."""

    certificate: Path
    """Also the bundle of whoever trusts it."""
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def certificate(directory: Path, *names: str) -> Certificate:
    """Make a certificate for host names and addresses, valid for a day around now."""
    secret = 1 + secrets.randbelow(ORDER - 1)
    public = b"\x04" + b"".join(_bytes(part) for part in _times(secret, BASE) or ())
    algorithm = _sequence(_oid(ECDSA_WITH_SHA256))
    name = _sequence(_der(0x31, _sequence(_oid(COMMON_NAME), _der(0x0C, b"dither's tests"))))
    now = datetime.now(UTC)
    valid = [f"{now + timedelta(hours=hours):%y%m%d%H%M%SZ}".encode() for hours in (-12, 12)]
    extensions = _sequence(
        _extension(BASIC_CONSTRAINTS, _sequence(_der(0x01, b"\xff")), critical=True),
        _extension(KEY_USAGE, _der(0x03, b"\x02\x84"), critical=True),  # signs: handshakes, and certificates
        _extension(SUBJECT_KEY_ID, _der(0x04, hashlib.sha256(public).digest()[:20])),
        _extension(SUBJECT_ALT_NAME, _sequence(*map(_alternative, names))),
    )
    signed = _sequence(
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(63)),
        algorithm,
        name,
        _sequence(*(_der(0x17, moment) for moment in valid)),
        name,
        _sequence(_sequence(_oid(EC_PUBLIC_KEY), _oid(P_256)), _bits(public)),
        _der(0xA3, extensions),
    )
    whole = _sequence(signed, algorithm, _bits(_sequence(*map(_integer, _sign(secret, signed)))))
    key = _sequence(_integer(1), _der(0x04, _bytes(secret)), _der(0xA0, _oid(P_256)), _der(0xA1, _bits(public)))
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    made.certificate.write_text(_pem("CERTIFICATE", whole), encoding="ascii")
    made.key.write_text(_pem("EC PRIVATE KEY", key), encoding="ascii")
    return made


# The curve.


def _sign(secret: int, message: bytes) -> tuple[int, int]:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = 1 + secrets.randbelow(ORDER - 1)
    point = _times(nonce, BASE)
    assert point
    r = point[0] % ORDER
    return r, pow(nonce, -1, ORDER) * (digest + r * secret) % ORDER


def _times(factor: int, point: Point) -> Point:
    product: Point = None
    for bit in f"{factor:b}":
        product = _plus(product, product)
        if bit == "1":
            product = _plus(product, point)
    return product


def _plus(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and one[1] != other[1]:
        return None
    if one == other:
        slope = 3 * (one[0] ** 2 - 1) * pow(2 * one[1], -1, P)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P)
    x = (slope**2 - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


# The encoding.


def _der(tag: int, content: bytes) -> bytes:
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return (
        bytes([tag]) + (bytes([len(content)]) if len(content) < 128 else bytes([128 | len(length)]) + length) + content
    )


def _sequence(*items: bytes) -> bytes:
    return _der(0x30, b"".join(items))


def _integer(number: int) -> bytes:
    return _der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\0" + content)


def _bytes(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        septets = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)][::-1]
        content += bytes([septet | 128 for septet in septets[:-1]] + septets[-1:])
    return _der(0x06, content)


def _extension(oid: str, value: bytes, critical: bool = False) -> bytes:
    return _sequence(_oid(oid), _der(0x01, b"\xff") if critical else b"", _der(0x04, value))


def _alternative(name: str) -> bytes:
    try:
        return _der(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _der(0x82, name.encode("ascii"))


def _pem(label: str, content: bytes) -> str:
    return f"-----BEGIN {label}-----\n{encodebytes(content).decode('ascii')}-----END {label}-----\n"
