"""A small OpenID Connect provider on a real socket: discovery, sign-in page, tokens signed with a real RSA key.

`provider.claims` says who signs in.

Source: OpenID Connect Core 1.0, authorization code flow; Discovery 1.0; RFC 7636 for the challenge.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "roofwatch-dashboard", "a secret of the test only"
_KEY_ID = "1"


@dataclass
class Provider:
    issuer: str
    claims: Mapping[str, object]
    """Who signs in next."""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """Request parameters by authorization code."""
    refusals: list[str] = field(default_factory=list)

    def authorize(self, query: Mapping[str, str]) -> str:
        """Where the browser goes after signing in."""
        code = token_urlsafe()
        self.asked[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: Mapping[str, str], client: tuple[str, str]) -> dict[str, Any] | None:
        """The tokens for a code, once; None where it, the client or the challenge's answer is wrong."""
        query = self.asked.pop(form.get("code", ""), None)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if query is None or client != (CLIENT_ID, CLIENT_SECRET):
            self.refusals.append("code or client")
            return None
        if base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() != query.get("code_challenge"):
            self.refusals.append("challenge")
            return None
        now = int(time.time())
        identity = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 600, "nonce": query["nonce"]}
        token = jwt.encode({**identity, **self.claims}, self.key, algorithm="RS256", headers={"kid": _KEY_ID})
        return {"access_token": token_urlsafe(), "token_type": "Bearer", "expires_in": 600, "id_token": token}

    @property
    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
        }

    @property
    def keys(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}


@contextmanager
def providing() -> Iterator[Provider]:
    """Serve until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    provider = Provider(f"http://127.0.0.1:{server.server_port}", claims={})
    server.provider = provider  # type: ignore[attr-defined]  # the handler's way to it
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Answers(BaseHTTPRequestHandler):
    @property
    def provider(self) -> Provider:
        found: Provider = self.server.provider  # type: ignore[attr-defined]  # put there by `providing`
        return found

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            self.send_response(302)
            self.send_header("Location", self.provider.authorize(query))
            self.end_headers()
        elif url.path == "/.well-known/openid-configuration":
            self._answer(200, self.provider.discovery)
        elif url.path == "/keys":
            self._answer(200, self.provider.keys)
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        sent = self.headers.get("Authorization", "Basic ").split(" ", 1)[1]
        user, _, password = unquote_plus(base64.b64decode(sent).decode()).partition(":")
        tokens = self.provider.exchange(form, (user, password))
        self._answer(400 if tokens is None else 200, tokens or {"error": "invalid_grant"})

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test says what matters."""
