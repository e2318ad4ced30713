"""A small OpenID Connect provider on a real socket: discovery, sign-in page, tokens signed with a
real RSA key.

`provider.claims` says who signs in.

Source: OpenID Connect Core 1.0, authorization code flow; Discovery 1.0.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi import Depends, FastAPI, Form, HTTPException
from fastapi.responses import RedirectResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials

CLIENT_ID, CLIENT_SECRET = "roofwatch-dashboard", "a-secret-of-the-test-only"
_KEY_ID = "1"


@dataclass
class Provider:
    issuer: str
    claims: Mapping[str, object] = field(default_factory=dict)
    """Who signs in next."""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))
    nonces: dict[str, str] = field(default_factory=dict)
    """By authorization code that was not used yet."""

    def discovery(self) -> dict[str, object]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    def keys(self) -> dict[str, object]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}

    def authorize(self, redirect_uri: str, state: str, nonce: str) -> RedirectResponse:
        """Sign in, and send the browser back with a code."""
        code = token_urlsafe()
        self.nonces[code] = nonce
        return RedirectResponse(f"{redirect_uri}?{urlencode({'code': code, 'state': state})}", 302)

    def exchange(
        self,
        code: Annotated[str, Form()],
        client: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())],
    ) -> dict[str, object]:
        """Give the tokens for a code, once."""
        nonce = self.nonces.pop(code, None)
        if nonce is None or (client.username, client.password) != (CLIENT_ID, CLIENT_SECRET):
            raise HTTPException(400, "invalid_grant")
        now = int(time.time())
        identity = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 600,
            "nonce": nonce,
            **self.claims,
        }
        token = jwt.encode(identity, self.key, algorithm="RS256", headers={"kid": _KEY_ID})
        return {
            "access_token": token_urlsafe(),
            "token_type": "Bearer",
            "expires_in": 600,
            "id_token": token,
        }


@contextmanager
def providing() -> Iterator[Provider]:
    """Serve until the block ends."""
    app = FastAPI()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        provider = Provider(f"http://127.0.0.1:{listening.getsockname()[1]}")
        app.get("/.well-known/openid-configuration")(provider.discovery)
        app.get("/keys")(provider.keys)
        app.get("/authorize")(provider.authorize)
        app.post("/token")(provider.exchange)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield provider
        finally:
            server.should_exit = True
            thread.join()
