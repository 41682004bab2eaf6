"""A test double of lease-server, for tests of lease-gateway alone.

It knows one good token and plays the scene that the Lease id, the path or the command asks for. It keeps no Lease and
runs nothing.
"""
import hashlib
import os
import sys
import threading
from concurrent import futures

import google
import grpc

# The generated packages google.rpc and grpc.health share their first names with packages of the machine.
for _folder in list(sys.path):
    if os.path.isdir(os.path.join(_folder, "sandbox", "lease", "v1")):
        for _package in (google, grpc):
            _package.__path__.append(os.path.join(_folder, _package.__name__))

# pylint: disable=wrong-import-position
from google.protobuf import any_pb2, timestamp_pb2  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from sandbox.lease.v1 import lease_pb2, lease_pb2_grpc  # noqa: E402

TOKEN = "v1.good.token"
CODES = {code.value[0]: code for code in grpc.StatusCode}


def fail(context, reason, code, message, retry_ms=None):
    """Ends the call as lease-server does."""
    details = [any_pb2.Any(), any_pb2.Any()]
    details[0].Pack(error_details_pb2.ErrorInfo(reason=reason, domain="sandbox.lease.v1"))
    if retry_ms:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        details[1].Pack(retry)
    status = status_pb2.Status(code=code.value[0], message=message, details=details[:2 if retry_ms else 1])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def lease(id_="lease-0123456789abcdef0123456789abcdef", pool="coding", status=lease_pb2.LEASE_STATUS_ACTIVE):
    return lease_pb2.Lease(id=id_, pool=pool, status=status,
                           created_at=timestamp_pb2.Timestamp(seconds=1767323045, nanos=1),
                           expires_at=timestamp_pb2.Timestamp(seconds=1767326645, nanos=500000000),
                           last_used_at=timestamp_pb2.Timestamp(seconds=1767323045))


def noise(size):
    """Bytes of every kind, always the same."""
    return hashlib.shake_128(b"noise").digest(size)


class Service(lease_pb2_grpc.LeaseServiceServicer):
    def __init__(self):
        self.calls = []            # names of the methods that were called, in order
        self.requests = []         # the requests, in the same order
        self.cancelled = threading.Event()
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.uploaded = 0          # bytes of the running upload so far

    def _enter(self, name, request, context):
        self.calls.append(name)
        self.requests.append(request)
        if dict(context.invocation_metadata()).get("authorization") != "Bearer " + TOKEN:
            fail(context, "UNAUTHORIZED", grpc.StatusCode.UNAUTHENTICATED, "Invalid or expired subject token")

    def _scene(self, name, context):
        if name == "missing":
            fail(context, "LEASE_NOT_FOUND", grpc.StatusCode.NOT_FOUND, "Lease not found")
        if name == "quota":
            fail(context, "LEASE_QUOTA_EXCEEDED", grpc.StatusCode.RESOURCE_EXHAUSTED, "Lease quota exceeded", 2500)
        if name == "full":
            fail(context, "POOL_EXHAUSTED", grpc.StatusCode.RESOURCE_EXHAUSTED, "No sandbox is available in this pool")
        if name == "bare":
            context.abort(grpc.StatusCode.UNKNOWN, "a status without details")
        if name == "slow":
            context.add_callback(self.cancelled.set)
            self.started.set()
            self.go_on.wait(30)

    def CheckAccess(self, request, context):
        self._enter("CheckAccess", request, context)
        return lease_pb2.CheckAccessResponse(consumer_id="c", subject_id="s")

    def AcquireLease(self, request, context):
        self._enter("AcquireLease", request, context)
        self._scene(request.pool, context)
        return lease_pb2.AcquireLeaseResponse(lease=lease(pool=request.pool), replayed=request.idempotency_key == "again")

    def GetLease(self, request, context):
        self._enter("GetLease", request, context)
        self._scene(request.lease_id, context)
        return lease_pb2.GetLeaseResponse(lease=lease(request.lease_id))

    def ListLeases(self, request, context):
        self._enter("ListLeases", request, context)
        if request.HasField("cursor"):
            return lease_pb2.ListLeasesResponse(leases=[lease("b")])
        return lease_pb2.ListLeasesResponse(leases=[lease("a"), lease("b")], next_cursor="next\"page")

    def ReleaseLease(self, request, context):
        self._enter("ReleaseLease", request, context)
        return lease_pb2.ReleaseLeaseResponse(lease=lease(status=lease_pb2.LEASE_STATUS_RELEASED))

    def DeleteLease(self, request, context):
        self._enter("DeleteLease", request, context)
        return lease_pb2.DeleteLeaseResponse()

    def Exec(self, request, context):
        self._enter("Exec", request, context)
        self._scene(request.command.command, context)
        size = int(request.command.command) if request.command.command.isdigit() else 0
        return lease_pb2.ExecResponse(stdout=b"\0" * size or b"out \xff\xc3\xa9 \0\"\n", stderr=b"\xe2\x82", exit_code=137)

    def ReadFile(self, request, context):
        self._enter("ReadFile", request, context)
        self._scene(request.path, context)
        if request.path.isdigit():
            return lease_pb2.ReadFileResponse(content=noise(int(request.path)))
        return lease_pb2.ReadFileResponse(content=b"caf\xc3\xa9 \xff\0")

    def WriteFile(self, request, context):
        self._enter("WriteFile", request, context)
        return lease_pb2.WriteFileResponse()

    def DownloadFile(self, request, context):
        """path "<size>[ fail|short|long|slow]": so many bytes, then what the word says."""
        self._enter("DownloadFile", request, context)
        self._scene(request.path, context)
        if request.path == "none":
            fail(context, "FILE_NOT_FOUND", grpc.StatusCode.NOT_FOUND, "Workspace file was not found")
        size, _, word = request.path.partition(" ")
        data = bytes(i * 7 % 251 for i in range(1000)) * (int(size) // 1000 + 1)
        data = data[:int(size)]
        info = lease_pb2.FileInfo(size_bytes=len(data), sha256=hashlib.sha256(data).digest())
        yield lease_pb2.DownloadFileResponse(info=info)
        sent = data[:-1] if word == "short" else data + b"x" if word == "long" else data
        for at in range(0, len(sent), 100000):
            yield lease_pb2.DownloadFileResponse(data=sent[at:at + 100000])
            self.uploaded = at
        if word == "fail":
            fail(context, "FILE_TRANSFER_FAILED", grpc.StatusCode.UNAVAILABLE, "Workspace file transfer failed")
        if word == "slow":
            self._scene("slow", context)

    def UploadFile(self, iterator, context):
        """path "refuse": fails at once; "slow": takes nothing until told; else checks size and digest."""
        first = next(iterator)
        self._enter("UploadFile", first, context)
        self._scene(first.info.path, context)
        if first.info.path == "refuse":
            fail(context, "TRANSFER_LIMIT_REACHED", grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many file transfers at once")
        digest = hashlib.sha256()
        for message in iterator:
            self.uploaded += len(message.data)
            digest.update(message.data)
        if self.uploaded != first.info.file.size_bytes:
            fail(context, "CONTENT_LENGTH_MISMATCH", grpc.StatusCode.INVALID_ARGUMENT, "Body length differs from Content-Length")
        if digest.digest() != first.info.file.sha256:
            fail(context, "CONTENT_DIGEST_MISMATCH", grpc.StatusCode.INVALID_ARGUMENT, "Content does not match Content-Digest")
        return lease_pb2.UploadFileResponse()


class Health(health_pb2_grpc.HealthServicer):
    def __init__(self):
        self.ready = True

    def Check(self, request, context):
        if request.service != "sandbox.lease.v1.LeaseService":
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(status=1 if self.ready else 2)


class Double:
    """The running double. `address` is where it serves."""

    def __init__(self, address):
        self.address = address
        self.service, self.health = Service(), Health()
        self.server = grpc.server(futures.ThreadPoolExecutor(16), options=[
            ("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20),
            ("grpc.max_metadata_size", 32768)])
        lease_pb2_grpc.add_LeaseServiceServicer_to_server(self.service, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.server.add_insecure_port(address)
        self.server.start()

    def stop(self):
        self.service.go_on.set()
        self.server.stop(0).wait()
