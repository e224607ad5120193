"""Requests as a node signs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def signature(key: Path) -> dict[str, str]:
    """The headers that prove a private key, now."""
    private: Any = load_ssh_private_key(key.read_bytes(), None)
    request = httpx.Request("POST", "https://localhost/")
    before = set(request.headers)
    context = ProtobufRequestContext("", None, request)  # pyright: ignore[reportArgumentType]
    NodeAuthHttpInterceptor(private, private.public_key()).intercept(
        context, lambda _: httpx.Response(200)
    )
    return {name: value for name, value in request.headers.items() if name not in before}
