"""Signatures of cache entries: Ed25519 (RFC 8032) by the `cryptography` package, keys as PEM files.

A signature is of an entry's name and of its bytes, so that a signed entry cannot take the place of another. Whom this
machine trusts is kept in the user's configuration, not in the cache, which may be removed at any time.

| variable | meaning |
| --- | --- |
| `POLYC_TRUST` | a folder of public keys (or one file) in place of the user's |
| `POLYC_CACHE_KEY` | the file of the private key by which what this machine puts into the shared cache is signed |
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass

DOMAIN = b"polyc cache entry 1\n"
"""What every signed text starts with: a signature means nothing elsewhere."""
NAMED = 16
"""Hexadecimal digits of a key's name, which are of its SHA-256."""
PUBLIC = ".pub"


class Refused(BuildError):
    """Keys that cannot be used: nothing is trusted then."""

    code = "P312"


@dataclass(frozen=True)
class Keys:
    """The public keys that are trusted, by name, and the private one that signs (None: nothing is signed)."""

    trusted: Mapping[str, Any]
    private: Any = None

    @property
    def checks(self) -> bool:
        """Whether entries need a signature."""
        return bool(self.trusted)

    @property
    def signs(self) -> bool:
        """Whether entries get one."""
        return self.private is not None

    @property
    def own(self) -> str:
        """The name of the key that signs."""
        return name_of(self.private.public_key())

    def sign(self, name: str, raw: bytes) -> bytes:
        """The signature of an entry."""
        return bytes(self.private.sign(_text(name, raw)))

    def holds(self, key: str, name: str, raw: bytes, signature: bytes) -> bool:
        """Whether a trusted key has signed this entry under this name."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.trusted[key].verify(signature, _text(name, raw))
        except InvalidSignature:
            return False
        return True


def _text(name: str, raw: bytes) -> bytes:
    return DOMAIN + name.encode() + b"\n" + hashlib.sha256(raw).digest()


def trust_folder() -> Path:
    """`$POLYC_TRUST`, else in the user's configuration."""
    if chosen := os.environ.get("POLYC_TRUST"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_config_dir("polyc")) / "trusted"


def keys_here() -> Keys:
    """The keys of this machine.

    Raises:
        Refused: keys are asked for and cannot be read, or `cryptography` is not installed.
    """
    place = trust_folder()
    files = sorted(place.glob(f"*{PUBLIC}")) if place.is_dir() else [place] if place.is_file() else []
    if os.environ.get("POLYC_TRUST") and not files:
        raise Refused(f"POLYC_TRUST is {place}, and there is no public key")
    own = os.environ.get("POLYC_CACHE_KEY")
    if not files and not own:
        return Keys({})
    found = [public_key(path) for path in files]
    return Keys({name_of(key): key for key in found}, private_key(Path(own)) if own else None)


def name_of(key: Any) -> str:
    """The name of a public key."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:NAMED]


def public_key(path: Path) -> Any:
    """The public key of a PEM file. Raises `Refused`."""
    return _read(path, "public")


def private_key(path: Path) -> Any:
    """The private key of a PEM file. Raises `Refused`."""
    return _read(path, "private")


def new_key(path: Path) -> Path:
    """Make a private key, which only its owner may read, and a public one beside it; gives the file of that.

    Raises:
        Refused: there is such a file already, or it cannot be written.
    """
    serialization, ed25519 = _library()
    key = ed25519.Ed25519PrivateKey.generate()
    encodings, formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(encodings, formats, serialization.NoEncryption())
    public = key.public_key().public_bytes(encodings, serialization.PublicFormat.SubjectPublicKeyInfo)
    beside = path.with_name(path.name + PUBLIC)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private)
        beside.write_bytes(public)
    except OSError as error:
        raise Refused(f"cannot write the key {path}: {error.strerror}") from None
    return beside


def trust(path: Path) -> str:
    """Trust the public key of a file from now on; gives its name. Raises `Refused`."""
    name, place = name_of(public_key(path)), trust_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}{PUBLIC}").write_bytes(path.read_bytes())
    except OSError as error:
        raise Refused(f"cannot keep the key in {place}: {error.strerror}") from None
    return name


@functools.cache
def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Refused("signatures need the package cryptography: pip install 'polyc[signed]'") from None
    return serialization, ed25519


def _read(path: Path, kind: str) -> Any:
    serialization, ed25519 = _library()
    try:
        data = path.read_bytes()
        if kind == "public":
            key, wanted = serialization.load_pem_public_key(data), ed25519.Ed25519PublicKey
        else:
            key, wanted = serialization.load_pem_private_key(data, None), ed25519.Ed25519PrivateKey
    except OSError as error:
        raise Refused(f"cannot read the {kind} key {path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise Refused(f"{path} is no {kind} key (PEM, Ed25519, without a password)") from None
    if not isinstance(key, wanted):
        raise Refused(f"{path} is a {kind} key of another kind than Ed25519")
    return key
