"""What the README's grpcurl lines need of grpcurl, for machines without it: list, describe and unary calls, by the server's
own reflection, so that a wrong name or field in a line fails here as it does there.

`grpcurl.py [-plaintext] [-H HEADER]... [-d JSON] ADDRESS list | describe SYMBOL | SERVICE/METHOD`
"""
import argparse
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from tests.support.stubs import reflection_pb2, reflection_pb2_grpc


class Server:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.reflection = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        self.pool = descriptor_pool.DescriptorPool()

    def ask(self, **request):
        answer = next(self.reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)])))
        if answer.HasField("error_response"):
            sys.exit("%s: %s" % (request, answer.error_response.error_message))
        return answer

    def services(self):
        return sorted(service.name for service in self.ask(list_services="").list_services_response.service)

    def load(self, symbol):
        """Puts into the pool the files that describe `symbol`, those they import first."""
        files = {}

        def add(answer):
            for data in answer.file_descriptor_response.file_descriptor_proto:
                file = descriptor_pb2.FileDescriptorProto.FromString(data)
                if file.name not in files:
                    files[file.name] = file
                    for name in file.dependency:
                        if name not in files:
                            add(self.ask(file_by_filename=name))

        add(self.ask(file_containing_symbol=symbol))
        while files:
            name = next(name for name, file in files.items() if not set(file.dependency) & set(files))
            self.pool.Add(files.pop(name))
        return self.pool

    def describe(self, symbol):
        service = self.load(symbol).FindServiceByName(symbol)
        lines = ["  rpc %s ( .%s ) returns ( .%s );" % (method.name, method.input_type.full_name, method.output_type.full_name)
                 for method in service.methods]
        return "\n".join(["%s is a service:" % symbol] + lines)

    def call(self, name, headers, text):
        service, _, method = name.rpartition("/")
        found = self.load(service).FindServiceByName(service).methods_by_name[method]
        factory = message_factory.MessageFactory(self.pool)
        request = json_format.Parse(text or "{}", factory.GetPrototype(found.input_type)(), descriptor_pool=self.pool)
        metadata = [tuple(part.strip() for part in header.split(":", 1)) for header in headers]
        answer = self.channel.unary_unary("/" + name, request_serializer=type(request).SerializeToString,
                                          response_deserializer=factory.GetPrototype(found.output_type).FromString)(
                                              request, metadata=[(key.lower(), value) for key, value in metadata])
        return json_format.MessageToJson(answer, descriptor_pool=self.pool)


def main():
    parser = argparse.ArgumentParser(prog="grpcurl")
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    parser.add_argument("address")
    parser.add_argument("what")
    parser.add_argument("symbol", nargs="?")
    options = parser.parse_args()
    server = Server(options.address)
    try:
        if options.what == "list":
            print("\n".join(server.services()))
        elif options.what == "describe":
            print(server.describe(options.symbol))
        else:
            print(server.call(options.what, options.H, options.d))
    except grpc.RpcError as error:
        sys.exit("%s: %s" % (error.code(), error.details()))


if __name__ == "__main__":
    main()
