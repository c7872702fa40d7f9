"""A small OpenID Connect provider on loopback: discovery, keys, sign-in page, tokens and sign-out. It checks what a real one checks."""

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET, USER = "overrun-dashboard", "kept-by-the-server", "oncall@example.com"


class Provider(ThreadingHTTPServer):
    """`redirect_uri` is the only address it sends anybody back to; `issued` holds every token and code that it gave out."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.key = RSAKey.generate_key(2048, {"kid": "stub", "use": "sig", "alg": "RS256"})
        self.redirect_uri = ""
        self.codes: dict[str, dict[str, str]] = {}
        self.issued: list[str] = []
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def documents(self) -> dict[str, object]:
        """What anybody may read."""
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
                "end_session_endpoint": f"{self.url}/end",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            },
            "/jwks": {"keys": [self.key.as_dict(private=False)]},
        }

    def sign_in_page(self, asked: dict[str, str]) -> str:
        """Who are you? One user, who may also say no."""
        if (asked["client_id"], asked["redirect_uri"], asked["response_type"]) != (
            CLIENT,
            self.redirect_uri,
            "code",
        ):
            raise ValueError("unknown client or address")
        code = secrets.token_urlsafe(24)
        self.codes[code] = asked
        self.issued.append(code)
        yes, no = (
            {"code": code, "state": asked["state"]},
            {"error": "access_denied", "state": asked["state"]},
        )
        ways = {
            f"Continue as {USER}": f"{self.redirect_uri}?{urlencode(yes)}",
            "No": f"{self.redirect_uri}?{urlencode(no)}",
        }
        links = [f'<a href="{html.escape(to)}">{name}</a>' for name, to in ways.items()]
        return f"<title>sign in</title>{' '.join(links)}"

    def tokens(self, sent: dict[str, str], authorization: str) -> dict[str, object]:
        """Tokens for a code, once, to the client that knows the secret and the verifier."""
        wanted = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(sent.get("code", ""), {})
        challenge = (
            base64.urlsafe_b64encode(
                hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
            )
            .rstrip(b"=")
            .decode()
        )
        if (
            authorization != wanted
            or not asked
            or asked.get("code_challenge") != challenge
            or sent.get("redirect_uri") != self.redirect_uri
        ):
            raise ValueError("invalid_grant")
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "u1",
            "email": USER,
            "nonce": asked["nonce"],
            "iat": now,
            "exp": now + 600,
        }
        id_token, access_token = (
            jwt.encode({"alg": "RS256", "kid": "stub"}, claims, self.key),
            secrets.token_urlsafe(24),
        )
        self.issued += [id_token, access_token]
        return {
            "id_token": id_token,
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": 600,
        }


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        if parts.path in (documents := self.server.documents()):
            self._answer(200, json.dumps(documents[parts.path]), "application/json")
        elif parts.path == "/authorize":
            self._checked(lambda: self.server.sign_in_page(asked), "text/html")
        elif (
            parts.path == "/end"
            and asked.get("post_logout_redirect_uri") == self.server.redirect_uri
        ):
            self._answer(302, "", "text/plain", location=self.server.redirect_uri)
        else:
            self._answer(204, "", "text/plain")

    def do_POST(self) -> None:
        sent = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        self._checked(
            lambda: json.dumps(self.server.tokens(sent, self.headers.get("authorization", ""))),
            "application/json",
        )

    def _checked(self, make, kind: str) -> None:
        try:
            self._answer(200, make(), kind)
        except (ValueError, KeyError) as error:
            self.server.refused.append(str(error))
            self._answer(400, json.dumps({"error": str(error)}), "application/json")

    def _answer(self, status: int, body: str, kind: str, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def provider() -> Iterator[Provider]:
    """A running provider."""
    with Provider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
