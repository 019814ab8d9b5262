"""The `websockets` client through the proxy, in front of a worker that says everything again: usage FILE BASE_URL."""

import sys

from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

base = sys.argv[1].replace("http://", "ws://")

with connect(base + "/v1/realtime?model=m", open_timeout=10, close_timeout=10) as socket:
    for message in ("text", "ü" * 100_000, b"\x00\xff" * 50_000):
        socket.send(message)
        assert socket.recv(timeout=10) == message
    assert socket.ping().wait(10)
print("ok a session")

try:
    connect(base + "/v1/realtime?model=unknown", open_timeout=10)
except InvalidStatus as refused:
    assert refused.response.status_code == 404, refused
else:
    raise AssertionError("a model that nobody serves was taken")
print("ok a refusal")
