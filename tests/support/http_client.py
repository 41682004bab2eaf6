"""A client of the HTTP API: raw sockets below, the contract's calls above.

Each call opens a connection of its own, so that no test depends on what another one left on a connection.
"""
import base64
import calendar
import hashlib
import http.client
import json
import re
import socket
import time
import urllib.parse

from tests.support.client import Answer, Broken, Execution, Lease, Rule, checked_lease, known

_TIME = re.compile(r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{1,9})Z\Z")
_DIGEST = re.compile(r"\Asha-256=:([A-Za-z0-9+/]{43}=):\Z")


class Response:
    """A whole HTTP answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body.decode("utf-8"))

    def __repr__(self):
        return "<%d %.300r>" % (self.status, self.body)


def connect(address, timeout=60):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout)


def read_response(connection, method="GET"):
    """Reads one answer from a connected socket. Broken if it ends early or is no HTTP."""
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ConnectionError, ValueError) as error:
        raise Broken(repr(error)) from error
    return Response(response.status, response.headers, body)


def send_raw(address, data, half_close=False, timeout=60, method="GET"):
    """Sends bytes as they are and reads one answer."""
    try:
        opened = connect(address, timeout)
    except ConnectionError as error:
        raise Broken(repr(error)) from error
    with opened as connection:
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # refused before it had read all: the answer is there all the same
        return read_response(connection, method)


def head(method, target, headers):
    """Request line and headers, as bytes."""
    lines = ["%s %s HTTP/1.1" % (method, target)] + ["%s: %s" % pair for pair in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def digest_header(content):
    return "sha-256=:%s:" % base64.b64encode(hashlib.sha256(content).digest()).decode("ascii")


def parse_time(text):
    found = _TIME.match(text)
    if not found:
        raise Rule("time %r is not RFC 3339 UTC with a fraction" % text)
    seconds = calendar.timegm(time.strptime(found.group(1), "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000000000 + int(found.group(2).ljust(9, "0"))


def parse_lease(record):
    expected = {"id", "pool", "status", "createdAt", "expiresAt", "lastUsedAt"}
    if not isinstance(record, dict) or set(record) != expected:
        raise Rule("Lease record %r" % (record,))
    return checked_lease(Lease(record["id"], record["pool"], record["status"], parse_time(record["createdAt"]),
                               parse_time(record["expiresAt"]), parse_time(record["lastUsedAt"])))


def check_error(response):
    """Every error, of any layer, has this shape. Returns (code, message)."""
    if response.headers.get_content_type() != "application/json":
        raise Rule("error of type %r: %r" % (response.headers.get("Content-Type"), response))
    body = response.json()
    error = body.get("error") if isinstance(body, dict) else None
    if set(body) != {"error"} or set(error) != {"code", "message", "requestId"}:
        raise Rule("error body %r" % (body,))
    if error["requestId"] != response.headers.get("X-Request-Id"):
        raise Rule("requestId %r, X-Request-Id %r" % (error["requestId"], response.headers.get("X-Request-Id")))
    reason = known(error["code"])
    if response.status != reason.status:
        raise Rule("%s came with status %d" % (error["code"], response.status))
    if response.status == 429 or (response.status == 503 and reason.retryable):
        if not re.match(r"\A[1-9]\d*\Z", response.headers.get("Retry-After", "")):
            raise Rule("%s came with Retry-After %r" % (error["code"], response.headers.get("Retry-After")))
    return error["code"], error["message"]


class HttpClient:
    """The calls of one Subject. Every method returns an Answer; Broken means that none came."""

    protocol = "http"

    def __init__(self, address, authorization, timeout=60):
        """authorization: the header's whole value, or None to send none; or a function that gives it."""
        self.address = address
        self._authorization = authorization
        self.timeout = timeout

    def authorization(self):
        return self._authorization() if callable(self._authorization) else self._authorization

    def headers(self, body=None, extra=()):
        found = [("Host", self.address)]
        if self.authorization() is not None:
            found.append(("Authorization", self.authorization()))
        if body is not None:
            found.append(("Content-Length", str(len(body))))
        return found + list(extra)

    def send(self, method, target, body=None, extra=(), timeout=None):
        """One request; returns the Response."""
        data = head(method, target, self.headers(body, extra)) + (body or b"")
        return send_raw(self.address, data, timeout=timeout or self.timeout, method=method)

    def call(self, method, target, request=None, extra=(), timeout=None):
        """One JSON request; returns (Answer without its value, the parsed body of a success)."""
        body = None if request is None else json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if body is not None:
            extra = list(extra) + [("Content-Type", "application/json")]
        return self.settle(self.send(method, target, body, extra, timeout))

    @staticmethod
    def settle(response):
        if response.status >= 400:
            code, message = check_error(response)
            raw = json.dumps([response.status, {"code": code, "message": message}]).encode("utf-8")
            return Answer(code, message, raw=raw, detail=response), None
        if response.status == 204:
            if response.body:
                raise Rule("204 with a body")
            return Answer(raw=b"", detail=response), {}
        if response.headers.get_content_type() != "application/json":
            raise Rule("answer of type %r" % response.headers.get("Content-Type"))
        return Answer(raw=response.body, detail=response), response.json()

    @staticmethod
    def path(lease_id, rest=""):
        return "/v1/leases/" + urllib.parse.quote(lease_id, safe="") + rest

    def acquire(self, pool, key, ttl=None, timeout=None):
        request = {"pool": pool}
        if ttl is not None:
            request["ttlSeconds"] = ttl
        extra = [] if key is None else [("Idempotency-Key", key)]
        answer, body = self.call("POST", "/v1/leases", request, extra, timeout)
        if body is not None:
            if answer.detail.status != 201 or set(body) != {"lease", "replayed"} or not isinstance(body["replayed"], bool):
                raise Rule("acquire answered %r" % (answer.detail,))
            answer.value = {"lease": parse_lease(body["lease"]), "replayed": body["replayed"]}
        return answer

    def get(self, lease_id):
        return self._lease(*self.call("GET", self.path(lease_id)))

    def release(self, lease_id):
        return self._lease(*self.call("POST", self.path(lease_id, "/release")))

    @staticmethod
    def _lease(answer, body):
        if body is not None:
            if answer.detail.status != 200 or set(body) != {"lease"}:
                raise Rule("answer %r" % (answer.detail,))
            answer.value = {"lease": parse_lease(body["lease"])}
        return answer

    def delete(self, lease_id):
        answer, body = self.call("DELETE", self.path(lease_id))
        if body is not None and answer.detail.status != 204:
            raise Rule("delete answered %r" % (answer.detail,))
        return answer

    def list(self, pool=None, limit=None, cursor=None):
        query = [(name, value) for name, value in (("pool", pool), ("limit", limit), ("cursor", cursor))
                 if value is not None]
        answer, body = self.call("GET", "/v1/leases" + ("?" + urllib.parse.urlencode(query) if query else ""))
        if body is not None:
            if answer.detail.status != 200 or set(body) != {"leases", "nextCursor"}:
                raise Rule("list answered %r" % (answer.detail,))
            if body["nextCursor"] is not None and not (isinstance(body["nextCursor"], str) and body["nextCursor"]):
                raise Rule("nextCursor %r" % (body["nextCursor"],))
            answer.value = {"leases": [parse_lease(record) for record in body["leases"]], "cursor": body["nextCursor"]}
        return answer

    def exec(self, lease_id, command, cwd=None, env=None, timeout_seconds=None, timeout=None):
        request = {"command": command}
        for name, value in (("cwd", cwd), ("env", env), ("timeoutSeconds", timeout_seconds)):
            if value is not None:
                request[name] = value
        answer, body = self.call("POST", self.path(lease_id, "/exec"), request, timeout=timeout)
        if body is not None:
            if answer.detail.status != 200 or set(body) != {"stdout", "stderr", "code"}:
                raise Rule("exec answered %r" % (answer.detail,))
            answer.value = {"execution": Execution(body["stdout"], body["stderr"], body["code"])}
        return answer

    def read(self, lease_id, path):
        answer, body = self.call("POST", self.path(lease_id, "/files/read"), {"path": path, "encoding": "base64"})
        if body is not None:
            if answer.detail.status != 200 or set(body) != {"path", "content", "encoding"} \
                    or body["path"] != path or body["encoding"] != "base64":
                raise Rule("read answered %r" % (answer.detail,))
            answer.value = {"content": base64.b64decode(body["content"], validate=True)}
        return answer

    def write(self, lease_id, path, content):
        request = {"path": path, "content": base64.b64encode(content).decode("ascii"), "encoding": "base64"}
        answer, body = self.call("POST", self.path(lease_id, "/files/write"), request)
        if body is not None and (answer.detail.status != 200 or body != {"path": path}):
            raise Rule("write answered %r" % (answer.detail,))
        return answer

    @staticmethod
    def content_path(lease_id, path):
        return HttpClient.path(lease_id, "/files/content?path=" + urllib.parse.quote(path, safe=""))

    def download(self, lease_id, path, timeout=None):
        response = self.send("GET", self.content_path(lease_id, path), timeout=timeout)
        if response.status != 200:
            return self.settle(response)[0]
        digest = _DIGEST.match(response.headers.get("Content-Digest", ""))
        if response.headers.get("Content-Type") != "application/octet-stream" or not digest \
                or response.headers.get("Content-Length") != str(len(response.body)):
            raise Rule("download's headers %r" % (response.headers.items(),))
        if base64.b64decode(digest.group(1)) != hashlib.sha256(response.body).digest():
            raise Rule("download differs from its Content-Digest")
        return Answer(value={"content": response.body}, raw=response.body, detail=response)

    def upload(self, lease_id, path, content, digest=None, size=None, timeout=None):
        """digest: 32 bytes to claim instead of the true ones; size: a length to claim."""
        claimed = hashlib.sha256(content).digest() if digest is None else digest
        extra = [("Content-Type", "application/octet-stream"),
                 ("Content-Digest", "sha-256=:%s:" % base64.b64encode(claimed).decode("ascii"))]
        length = ("Content-Length", str(len(content) if size is None else size))
        data = head("PUT", self.content_path(lease_id, path), self.headers(None, extra + [length])) + content
        response = send_raw(self.address, data, half_close=size is not None and size > len(content),
                            timeout=timeout or self.timeout, method="PUT")
        answer, body = self.settle(response)
        if body is not None and response.status != 204:
            raise Rule("upload answered %r" % (response,))
        return answer
