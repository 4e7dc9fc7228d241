"""Software passkey: a device that signs what it is asked, as `navigator.credentials` returns it in JSON."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from flask.testing import FlaskClient
from webauthn.helpers import bytes_to_base64url

#: Bits of authenticator data: a person was there, it is him, and a new key follows (WebAuthn, section 6.1).
_PRESENT, _VERIFIED, _NEW_KEY = 1, 4, 64


@dataclass
class SoftwarePasskey:
    """A key of P-256 for one origin. ``id``: its credential id."""

    origin: str
    host: str
    id: bytes = b"a passkey of the tests"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    uses: int = 0

    def made(self, challenge: str) -> Mapping[str, object]:
        """Return the answer to the question for a new passkey."""
        numbers = self.key.public_key().public_numbers()
        public = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        key = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + cbor2.dumps(public)
        attested = {"fmt": "none", "attStmt": {}, "authData": self._data(_NEW_KEY) + key}
        return self._credential("webauthn.create", challenge, {"attestationObject": cbor2.dumps(attested)})

    def signed(self, challenge: str) -> Mapping[str, object]:
        """Return the answer to the question for a sign-in."""
        self.uses += 1
        data = self._data(0)
        signed = data + hashlib.sha256(self._client_data("webauthn.get", challenge)).digest()
        signature = self.key.sign(signed, ec.ECDSA(hashes.SHA256()))
        return self._credential("webauthn.get", challenge, {"authenticatorData": data, "signature": signature})

    def sign_in(self, browser: FlaskClient) -> tuple[int, dict[str, object]]:
        """Sign in; return the status and the answer."""
        asked = browser.post("/v1/sign-in/passkey/question", json={}).json
        body = {"ticket": asked["ticket"], "credential": self.signed(asked["options"]["challenge"])}
        answer = browser.post("/v1/sign-in/passkey", json=body)
        return answer.status_code, answer.json

    def register(self, browser: FlaskClient, user: str) -> None:
        """Become a passkey of a user who is signed in."""
        asked = browser.post(f"/v1/users/{user}/passkeys/question", json={}).json
        answer = {"ticket": asked["ticket"], "credential": self.made(asked["options"]["challenge"]), "name": "soft"}
        assert browser.post(f"/v1/users/{user}/passkeys", json=answer).status_code == 201

    def _data(self, more: int) -> bytes:
        flags = _PRESENT | _VERIFIED | more
        return hashlib.sha256(self.host.encode()).digest() + bytes([flags]) + self.uses.to_bytes(4, "big")

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _credential(self, kind: str, challenge: str, parts: Mapping[str, bytes]) -> Mapping[str, object]:
        response = {"clientDataJSON": self._client_data(kind, challenge), **parts}
        encoded = {name: bytes_to_base64url(part) for name, part in response.items()}
        id = bytes_to_base64url(self.id)
        return {"id": id, "rawId": id, "type": "public-key", "response": encoded}
