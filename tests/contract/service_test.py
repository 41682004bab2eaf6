"""gRPC as a protocol: health, reflection, deadlines, messages that are malformed or too large."""
import threading

import grpc

from tests.support import cases, grpc_client, paths
from tests.support.cases import POOL, Cases, over
from tests.support.stubs import (health_pb2, health_pb2_grpc, lease_pb2, reflection_alpha_pb2, reflection_alpha_pb2_grpc, reflection_pb2,
                                 reflection_pb2_grpc)

SERVICE = "sandbox.lease.v1.LeaseService"
SERVING = health_pb2.HealthCheckResponse.SERVING


def setUpModule():
    cases.start_platform()


def tearDownModule():
    cases.stop_platform()


@over("grpc")
class Health(Cases):
    def setUp(self):
        super().setUp()
        self.health = health_pb2_grpc.HealthStub(self.client.channel)

    def test_check_needs_no_token_and_knows_the_service(self):
        for service in ("", SERVICE):
            self.assertEqual(self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status, SERVING)

    def test_an_unknown_service_is_not_found(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.health.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=10)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_watch_tells_at_once_and_stays_open(self):
        watch = self.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
        self.assertEqual(next(watch).status, SERVING)
        self.assertTrue(watch.is_active())
        watch.cancel()
        unknown = self.health.Watch(health_pb2.HealthCheckRequest(service="nothing"), timeout=60)
        self.assertEqual(next(unknown).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        unknown.cancel()


class Reflection(Cases):
    messages = None
    stub = None
    service = None

    def ask(self, *requests):
        stub = self.stub(self.client.channel)
        replies = stub.ServerReflectionInfo(iter([self.messages.ServerReflectionRequest(**request) for request in requests]), timeout=10)
        return list(replies)

    def test_it_lists_every_service(self):
        reply, = self.ask({"list_services": ""})
        found = {service.name for service in reply.list_services_response.service}
        self.assertEqual(found, {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                 "grpc.reflection.v1alpha.ServerReflection"})

    def descriptors(self, reply):
        from google.protobuf import descriptor_pb2
        return [descriptor_pb2.FileDescriptorProto.FromString(data) for data in reply.file_descriptor_response.file_descriptor_proto]

    def test_it_describes_symbols_files_and_what_they_import(self):
        for request in ({"file_containing_symbol": SERVICE}, {"file_containing_symbol": SERVICE + ".Exec"},
                        {"file_containing_symbol": "sandbox.lease.v1.Lease"}, {"file_containing_symbol": "sandbox.lease.v1.Lease.id"},
                        {"file_containing_symbol": "sandbox.lease.v1.LEASE_STATUS_ACTIVE"},
                        {"file_by_filename": "sandbox/lease/v1/lease.proto"}):
            with self.subTest(request=request):
                reply, = self.ask(request)
                self.assertIn("sandbox/lease/v1/lease.proto", [file.name for file in self.descriptors(reply)])
        reply, = self.ask({"file_by_filename": "google/protobuf/timestamp.proto"})
        self.assertEqual([file.package for file in self.descriptors(reply)], ["google.protobuf"])

    def test_it_gives_the_very_descriptors_of_the_build(self):
        from google.protobuf import descriptor_pb2
        with open(paths.built("proto/lease.descriptors.pb"), "rb") as descriptors:
            built = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read()).file}
        reply, = self.ask({"file_containing_symbol": SERVICE})
        for file in self.descriptors(reply):
            self.assertEqual(file, built[file.name])

    def test_what_does_not_exist_is_an_error_of_the_answer(self):
        for request in ({"file_containing_symbol": "no.such.Symbol"}, {"file_by_filename": "nothing.proto"}, {"file_containing_symbol": ""},
                        {"file_containing_symbol": "x" * 100000}):
            reply, = self.ask(request)
            self.assertEqual(reply.error_response.error_code, grpc.StatusCode.NOT_FOUND.value[0])

    def test_several_questions_on_one_stream_are_answered_in_order(self):
        replies = self.ask({"list_services": ""}, {"file_by_filename": "nothing"}, {"file_containing_symbol": SERVICE})
        self.assertEqual([reply.WhichOneof("message_response") for reply in replies],
                         ["list_services_response", "error_response", "file_descriptor_response"])


@over("grpc")
class ReflectionV1(Reflection):
    messages, stub = reflection_pb2, staticmethod(reflection_pb2_grpc.ServerReflectionStub)


@over("grpc")
class ReflectionV1alpha(Reflection):
    messages, stub = reflection_alpha_pb2, staticmethod(reflection_alpha_pb2_grpc.ServerReflectionStub)


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def field(number, kind, payload):
    data = varint(number << 3 | kind)
    return data + (varint(len(payload)) + payload if kind == 2 else payload)


@over("grpc")
class Messages(Cases):
    def raw(self, data, method="AcquireLease", timeout=20):
        """Sends bytes as a request; returns the Answer."""
        call = self.client.channel.unary_unary("/%s/%s" % (SERVICE, method))
        try:
            call(data, metadata=self.client.metadata(), timeout=timeout)
            return None
        except grpc.RpcError as error:
            return grpc_client.failure(error)

    def refused(self, data, method="AcquireLease"):
        answer = self.raw(data, method)
        self.assertIsNotNone(answer)
        self.assertEqual(answer.reason, "INVALID_REQUEST", answer)

    def test_garbage_is_refused(self):
        for data in (b"\xff", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc", b"\x07", b"\x0b", b"\x00", b"\x08" + b"\xff" * 11,
                     b"x" * 1000, b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"):
            with self.subTest(data=data[:20]):
                self.refused(data)

    def test_text_must_be_utf8_without_nul(self):
        for text in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", b"\0", POOL.encode() + b"\0"):
            with self.subTest(text=text):
                self.refused(field(1, 2, text) + field(3, 2, b"key"))
                self.refused(field(1, 2, text), "GetLease")
                self.refused(field(1, 2, b"lease") + field(2, 2, field(1, 2, text)), "Exec")

    def test_fields_of_a_wrong_wire_type_do_no_harm(self):
        answer = self.raw(field(1, 0, varint(5)) + field(3, 2, b"key"))
        self.assertIn(answer.reason, ("INVALID_REQUEST",))

    def test_unknown_fields_are_ignored(self):
        request = lease_pb2.ListLeasesRequest().SerializeToString()
        self.assertIsNone(self.raw(request + field(1000, 2, b"x" * 100) + field(1001, 0, varint(1)), "ListLeases"))

    def test_deep_and_many_fields_are_refused_without_harm(self):
        deep = b""
        for _ in range(200000):
            deep = field(2, 2, deep) if len(deep) < 100000 else deep
        self.raw(deep, "Exec")
        self.raw(field(2, 2, field(3, 2, b"") * 200000), "Exec")
        self.raw(b"\x0b" * 100000, "Exec")
        self.raw(b"\x1a\x00" * 1000000, "ListLeases")
        self.succeeds(self.client.list())

    def test_a_variable_given_twice_is_refused(self):
        lease = self.acquire()

        def entry(value):
            return field(3, 2, field(1, 2, b"NAME") + field(2, 2, value))
        command = field(1, 2, b"true") + entry(b"first") + entry(b"last")
        self.refused(field(1, 2, lease.id.encode()) + field(2, 2, command), "Exec")

    def test_a_message_of_more_than_11_mib_is_refused(self):
        try:
            answer = self.raw(field(1, 2, b"x" * 11534337))
            self.assertIn(answer.reason, ("INVALID_REQUEST", "BODY_TOO_LARGE"))
        except AssertionError as error:  # the library's own refusal carries no ErrorInfo
            self.assertIn("RESOURCE_EXHAUSTED", str(error))
        self.succeeds(self.client.list())

    def test_an_unknown_method_is_unimplemented(self):
        for path in ("/%s/Nothing" % SERVICE, "/no.such.Service/Exec", "/", "/x"):
            with self.assertRaises(grpc.RpcError) as raised:
                self.client.channel.unary_unary(path)(b"", metadata=self.client.metadata(), timeout=10)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_a_request_that_stops_in_the_middle_of_a_stream_does_no_harm(self):
        for _ in range(20):
            gate = threading.Event()

            def nothing(gate=gate):
                gate.wait()
                yield lease_pb2.StreamExecRequest()
            call = self.client.stub.StreamExec(nothing(), metadata=self.client.metadata(), timeout=60)
            call.cancel()
            gate.set()
        self.succeeds(self.client.list())

    def test_check_access_tells_who_the_token_says(self):
        _, reply = self.client.call(self.client.stub.CheckAccess, lease_pb2.CheckAccessRequest())
        self.assertEqual((reply.consumer_id, reply.subject_id), ("alpha", self.subject))
        self.assertGreater(reply.expires_at.seconds, 0)

    def test_failures_name_the_field_where_one_is_at_fault(self):
        answer = self.client.acquire(" ", "key")
        kinds = [any_.type_url.rsplit("/", 1)[-1] for any_ in answer.detail.details]
        self.assertIn("google.rpc.ErrorInfo", kinds)


if __name__ == "__main__":
    cases.main()
