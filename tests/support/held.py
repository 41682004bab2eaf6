"""Transfers that were begun and are kept open, over either protocol."""
import hashlib
import socket
import threading

import grpc

from tests.support import grpc_client, http_client
from tests.support.client import Broken
from tests.support.platform import PATIENCE
from tests.support.stubs import lease_pb2

MIB = 1048576


class Held:
    """A transfer that was begun and is kept open."""

    def __init__(self, case, client, lease):
        self.case, self.client, self.lease = case, client, lease

    def upload(self, size=MIB, sent=b"begin"):
        """Once more than what fits into buffers on the way has been sent, the transfer surely stands."""
        if self.client.protocol == "http":
            headers = self.client.headers(None, [("Content-Type", "application/octet-stream"), ("Content-Length", str(size)),
                                                 ("Content-Digest", http_client.digest_header(b"x" * size))])
            self.connection = http_client.connect(self.client.address)
            self.connection.sendall(http_client.head("PUT", self.client.content_path(self.lease.id, "held"), headers) + sent)
            return self
        self.gate, self.all_taken = threading.Event(), threading.Event()

        def requests():
            yield self.client.upload_info(self.lease.id, "held", size, hashlib.sha256(b"x" * size).digest())
            for start in range(0, len(sent), MIB):
                yield lease_pb2.UploadFileRequest(data=sent[start:start + MIB])
            self.all_taken.set()
            self.gate.wait()
        self.connection = self.client.stub.UploadFile.future(requests(), metadata=self.client.metadata())
        self.all_taken.wait(60 * PATIENCE)
        return self

    def download(self, path):
        """Reads the beginning, so that the transfer surely stands, and no more."""
        if self.client.protocol == "http":
            self.connection = socket.socket()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, _, port = self.client.address.rpartition(":")
            self.connection.connect((host, int(port)))
            self.connection.sendall(http_client.head("GET", self.client.content_path(self.lease.id, path), self.client.headers()))
            self.case.assertEqual(self.connection.recv(12), b"HTTP/1.1 200")
            return self
        request = lease_pb2.DownloadFileRequest(lease_id=self.lease.id, path=path)
        self.connection = self.client.stub.DownloadFile(request, metadata=self.client.metadata())
        self.case.assertEqual(next(self.connection).WhichOneof("response"), "info")
        return self

    def vanish(self):
        if self.client.protocol == "http":
            self.connection.close()
        else:
            if hasattr(self, "gate"):
                self.gate.set()
            self.connection.cancel()

    def answer(self):
        """How an upload ended; None if the connection was cut."""
        if self.client.protocol == "http":
            try:
                return self.client.settle(http_client.read_response(self.connection, "PUT"))[0]
            except Broken:
                return None
            finally:
                self.connection.close()
        try:
            self.connection.result(60 * PATIENCE)
            return None
        except grpc.RpcError as error:
            return grpc_client.failure(error)
        finally:
            self.gate.set()

    def cut(self):
        """Whether a download ends early: never with all bytes, never with an error's JSON behind them."""
        if self.client.protocol == "http":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
            self.connection.settimeout(60 * PATIENCE)
            received = b""
            try:
                chunk = self.connection.recv(MIB)
                while chunk:
                    received = received[-200:] + chunk
                    chunk = self.connection.recv(MIB)
            except ConnectionError:
                pass
            self.connection.close()
            return b'"error"' not in received
        try:
            for _ in self.connection:
                pass
            return False
        except grpc.RpcError as error:
            self.case.assertEqual(grpc_client.failure(error).reason, "ABORTED")
            return True
