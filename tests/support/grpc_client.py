"""A client of the gRPC API, on the generated stubs of //proto:lease_py."""
import hashlib
import threading

import grpc

from tests.support.client import Answer, Broken, Execution, Lease, Rule, checked_lease, known
from tests.support.stubs import error_details_pb2, lease_pb2, lease_pb2_grpc, status_pb2

DOMAIN = "sandbox.lease.v1"
MESSAGE_BYTES = 64 * 1024 * 1024
CHUNK = 128 * 1024

_STATUS = {lease_pb2.LEASE_STATUS_ACTIVE: "active", lease_pb2.LEASE_STATUS_RELEASED: "released",
           lease_pb2.LEASE_STATUS_EXPIRED: "expired"}


def channel(address, credentials=None):
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES),
               ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100),
               ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 300)]
    if credentials:
        return grpc.secure_channel(address, credentials, options=options)
    return grpc.insecure_channel(address, options=options)


def parse_lease(message):
    def nanoseconds(time):
        return time.seconds * 1000000000 + time.nanos
    return checked_lease(Lease(message.id, message.pool, _STATUS.get(message.status, "unspecified"),
                               nanoseconds(message.created_at), nanoseconds(message.expires_at),
                               nanoseconds(message.last_used_at)))


def failure(error):
    """Answer of a failed call. Broken if the failure is the connection's, not the platform's: then there is no detail."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if details is None:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise Broken(repr(error)) from error
        raise Rule("%s came without ErrorInfo: %s" % (error.code(), error.details()))
    status = status_pb2.Status.FromString(details)
    if status.code != error.code().value[0] or status.message != error.details():
        raise Rule("status %r differs from %s %r" % (status, error.code(), error.details()))
    found = [error_details_pb2.ErrorInfo.FromString(any_.value) for any_ in status.details
             if any_.type_url == "type.googleapis.com/google.rpc.ErrorInfo"]
    if len(found) != 1 or found[0].domain != DOMAIN:
        raise Rule("ErrorInfo %r" % (found,))
    reason = known(found[0].reason)
    if error.code().name != reason.code:
        raise Rule("%s came with status %s" % (reason.name, error.code().name))
    return Answer(reason.name, status.message, raw=details, detail=status)


class GrpcClient:
    """The calls of one Subject. Every method returns an Answer; Broken means that none came."""

    protocol = "grpc"

    def __init__(self, over, authorization, timeout=60):
        """over: a channel, or a function that gives the one to use now; authorization: the metadata's whole value, None, or
        a function that gives it."""
        self._over = over
        self._authorization = authorization
        self.timeout = timeout

    @property
    def channel(self):
        return self._over() if callable(self._over) else self._over

    @property
    def stub(self):
        return lease_pb2_grpc.LeaseServiceStub(self.channel)

    def metadata(self):
        value = self._authorization() if callable(self._authorization) else self._authorization
        return () if value is None else (("authorization", value),)

    def call(self, method, request, timeout=None):
        """(Answer without its value, the reply or None)."""
        try:
            reply = method(request, metadata=self.metadata(), timeout=timeout or self.timeout)
        except grpc.RpcError as error:
            return failure(error), None
        return Answer(raw=reply.SerializeToString(deterministic=True), detail=reply), reply

    def acquire(self, pool, key, ttl=None, timeout=None):
        request = lease_pb2.AcquireLeaseRequest(pool=pool or "", ttl_seconds=ttl, idempotency_key=key or "")
        answer, reply = self.call(self.stub.AcquireLease, request, timeout)
        if reply is not None:
            answer.value = {"lease": parse_lease(reply.lease), "replayed": reply.replayed}
        return answer

    def get(self, lease_id):
        return self._lease(*self.call(self.stub.GetLease, lease_pb2.GetLeaseRequest(lease_id=lease_id)))

    def release(self, lease_id):
        return self._lease(*self.call(self.stub.ReleaseLease, lease_pb2.ReleaseLeaseRequest(lease_id=lease_id)))

    @staticmethod
    def _lease(answer, reply):
        if reply is not None:
            answer.value = {"lease": parse_lease(reply.lease)}
        return answer

    def delete(self, lease_id):
        return self.call(self.stub.DeleteLease, lease_pb2.DeleteLeaseRequest(lease_id=lease_id))[0]

    def list(self, pool=None, limit=None, cursor=None):
        request = lease_pb2.ListLeasesRequest(pool=pool, limit=limit, cursor=cursor)
        answer, reply = self.call(self.stub.ListLeases, request)
        if reply is not None:
            if reply.HasField("next_cursor") and not reply.next_cursor:
                raise Rule("an empty next_cursor")
            answer.value = {"leases": [parse_lease(lease) for lease in reply.leases],
                            "cursor": reply.next_cursor if reply.HasField("next_cursor") else None}
        return answer

    @staticmethod
    def command(command, cwd=None, env=None, timeout_seconds=None):
        return lease_pb2.Command(command=command, cwd=cwd or "", env=env or {}, timeout_seconds=timeout_seconds)

    def exec(self, lease_id, command, cwd=None, env=None, timeout_seconds=None, timeout=None):
        request = lease_pb2.ExecRequest(lease_id=lease_id, command=self.command(command, cwd, env, timeout_seconds))
        answer, reply = self.call(self.stub.Exec, request, timeout)
        if reply is not None:
            if reply.ended_by not in (lease_pb2.ENDED_BY_EXITED, lease_pb2.ENDED_BY_SIGNALLED,
                                      lease_pb2.ENDED_BY_OUT_OF_MEMORY):
                raise Rule("Exec ended by %d" % reply.ended_by)
            answer.value = {"execution": Execution(reply.stdout.decode("utf-8", "replace"),
                                                   reply.stderr.decode("utf-8", "replace"), reply.exit_code)}
        return answer

    def read(self, lease_id, path):
        answer, reply = self.call(self.stub.ReadFile, lease_pb2.ReadFileRequest(lease_id=lease_id, path=path))
        if reply is not None:
            answer.value = {"content": reply.content}
        return answer

    def write(self, lease_id, path, content):
        request = lease_pb2.WriteFileRequest(lease_id=lease_id, path=path, content=content)
        return self.call(self.stub.WriteFile, request)[0]

    def download(self, lease_id, path, timeout=None):
        request = lease_pb2.DownloadFileRequest(lease_id=lease_id, path=path)
        try:
            replies = list(self.stub.DownloadFile(request, metadata=self.metadata(), timeout=timeout or self.timeout))
        except grpc.RpcError as error:
            return failure(error)
        kinds = [reply.WhichOneof("response") for reply in replies]
        if not kinds or kinds[0] != "info" or set(kinds[1:]) - {"data"}:
            raise Rule("download's messages %r" % kinds)
        content = b"".join(reply.data for reply in replies[1:])
        info = replies[0].info
        if info.size_bytes != len(content) or info.sha256 != hashlib.sha256(content).digest():
            raise Rule("download differs from its info: %d of %d bytes" % (len(content), info.size_bytes))
        return Answer(value={"content": content}, raw=content)

    @staticmethod
    def upload_info(lease_id, path, size, digest):
        return lease_pb2.UploadFileRequest(info=lease_pb2.UploadFileInfo(
            lease_id=lease_id, path=path, file=lease_pb2.FileInfo(size_bytes=size, sha256=digest)))

    def upload(self, lease_id, path, content, digest=None, size=None, timeout=None):
        def requests():
            yield self.upload_info(lease_id, path, len(content) if size is None else size,
                                   hashlib.sha256(content).digest() if digest is None else digest)
            for start in range(0, len(content), CHUNK):
                yield lease_pb2.UploadFileRequest(data=content[start:start + CHUNK])
        return self.call(self.stub.UploadFile, requests(), timeout)[0]


class Stream:
    """One StreamExec call: messages are sent when told, answers are read when asked for."""

    def __init__(self, client, lease_id, command, stdin=False, timeout=60, first=None, **options):
        self._changed = threading.Condition()
        self._queue = [first or lease_pb2.StreamExecRequest(start=lease_pb2.StreamExecStart(
            lease_id=lease_id, command=client.command(command, **options), stdin=stdin))]
        self._closed = False
        self.call = client.stub.StreamExec(self._requests(), metadata=client.metadata(), timeout=timeout)
        self.offsets = {lease_pb2.OUTPUT_STREAM_STDOUT: 0, lease_pb2.OUTPUT_STREAM_STDERR: 0}
        self.ended = None

    def _requests(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                request = self._queue.pop(0)
            yield request

    def send(self, request):
        with self._changed:
            self._queue.append(request)
            self._changed.notify_all()

    def stdin(self, data):
        self.send(lease_pb2.StreamExecRequest(stdin=data))

    def stdin_end(self):
        self.send(lease_pb2.StreamExecRequest(stdin_end=lease_pb2.StdinEnd()))

    def signal(self, number):
        self.send(lease_pb2.StreamExecRequest(signal=lease_pb2.Signal(number=number)))

    def half_close(self):
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self):
        """The next answer, checked against the rules of the stream; None at its end."""
        try:
            reply = next(self.call)
        except StopIteration:
            self.half_close()
            return None
        except grpc.RpcError:
            self.half_close()
            raise
        if self.ended is not None:
            raise Rule("an answer behind `ended`: %r" % reply)
        if reply.WhichOneof("response") == "output":
            if reply.output.offset != self.offsets[reply.output.stream] or not reply.output.data:
                raise Rule("output at %d, expected %d" % (reply.output.offset, self.offsets[reply.output.stream]))
            self.offsets[reply.output.stream] += len(reply.output.data)
        if reply.WhichOneof("response") == "ended":
            self.ended = reply.ended
            if [reply.ended.stdout_bytes, reply.ended.stderr_bytes] != list(self.offsets.values()):
                raise Rule("ended with %r after %r bytes" % (reply.ended, self.offsets))
        return reply

    def finish(self):
        """Reads to the end; returns (stdout, stderr, CommandEnd)."""
        output = {lease_pb2.OUTPUT_STREAM_STDOUT: [], lease_pb2.OUTPUT_STREAM_STDERR: []}
        reply = self.next()
        while reply is not None:
            if reply.WhichOneof("response") == "output":
                output[reply.output.stream].append(reply.output.data)
            reply = self.next()
        if self.ended is None:
            raise Rule("the stream ended without `ended`")
        return b"".join(output[lease_pb2.OUTPUT_STREAM_STDOUT]), b"".join(output[lease_pb2.OUTPUT_STREAM_STDERR]), self.ended

    def cancel(self):
        self.half_close()
        self.call.cancel()
