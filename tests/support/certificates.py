"""A certificate for a TLS server on loopback, signed by a private authority that nobody trusts unless told to."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificate:
    """The PEM files of a server's certificate, its key and its authority's certificate."""

    certificate: Path
    key: Path
    authority: Path
    """The bundle of a client that trusts it."""

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def certificate(directory: Path, *names: str) -> Certificate:
    """Make an authority, and a certificate of it for host names and addresses."""
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    made = Certificate(directory / "certificate.pem", directory / "key.pem", directory / "authority.pem")
    issued.cert_chain_pems[0].write_to_path(made.certificate)
    issued.private_key_pem.write_to_path(made.key)
    authority.cert_pem.write_to_path(made.authority)
    return made
