"""Runs a command in a Pod by WebSocket, protocol v5.channel.k8s.io: what tests compare the platform's own client with.

Each message begins with a channel's number: 0 stdin, 1 stdout, 2 stderr, 3 the status at the end, 255 closes the
channel whose number follows.
"""

import base64
import http.client
import json
import os
import struct
from urllib.parse import urlencode

from lib import api

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
PROTOCOL = "v5.channel.k8s.io"


class Session:
    """One command and its streams."""

    def __init__(self, cluster, namespace, pod, command):
        query = urlencode([("command", word) for word in command] + [("stdin", "1"), ("stdout", "1"), ("stderr", "1")])
        self.connection = api.connect(cluster)
        self.connection.request(
            "GET",
            f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{query}",
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
                "Sec-WebSocket-Protocol": PROTOCOL,
            },
        )
        # Kept, as its end would close the stream.
        self.response = http.client.HTTPResponse(self.connection.sock, method="GET")
        self.response.begin()
        self.stream = self.response.fp
        if self.response.status != 101 or self.response.getheader("Sec-WebSocket-Protocol") != PROTOCOL:
            raise OSError(f"the API server answered {self.response.status}: {self.response.read()!r}")

    def send(self, channel, content):
        """Sends one message; a client's are masked."""
        payload = bytes([channel]) + content
        header = b"\x82"
        if len(payload) < 126:
            header += bytes([0x80 | len(payload)])
        elif len(payload) < 65536:
            header += b"\xfe" + struct.pack(">H", len(payload))
        else:
            header += b"\xff" + struct.pack(">Q", len(payload))
        # A mask of zeros changes nothing, which is allowed.
        self.connection.sock.sendall(header + bytes(4) + payload)

    def end_stdin(self):
        """The command reads end of file."""
        self.send(CLOSE, bytes([STDIN]))

    def _read(self, count):
        content = self.stream.read(count)
        if len(content) != count:
            raise OSError("the connection ended in the middle of a message")
        return content

    def receive(self):
        """The next message, whole: (channel, content), or None when the connection was closed in order."""
        content = b""
        while True:
            first, second = self._read(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack(">H", self._read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self._read(8))[0]
            payload = self._read(length)
            if first & 0x0F == 8:
                return None
            if first & 0x0F in (9, 10):
                continue
            content += payload
            if first & 0x80:
                return content[0], content[1:]

    def finish(self):
        """Reads to the end: (stdout, stderr, the status as a document)."""
        streams = {STDOUT: b"", STDERR: b"", STATUS: b""}
        while True:
            message = self.receive()
            if message is None:
                break
            channel, content = message
            if channel in streams:
                streams[channel] += content
        self.connection.close()
        return streams[STDOUT], streams[STDERR], json.loads(streams[STATUS])
