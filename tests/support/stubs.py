"""The generated Python messages and clients of //proto:lease_py.

The generated packages google.rpc and grpc.health share their first names with packages of the machine, so their folders
are appended to those packages' search paths instead of standing on sys.path alone.
"""
import os
import sys

import google
import grpc

from tests.support import paths

_generated = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    paths.built("proto/sandbox/lease/v1/lease_pb2.py")))))
if _generated not in sys.path:
    sys.path.append(_generated)
for _package in (google, grpc):
    _folder = os.path.join(_generated, _package.__name__)
    if _folder not in list(_package.__path__):
        _package.__path__.append(_folder)

# pylint: disable=wrong-import-position
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc.reflection.v1 import reflection_pb2, reflection_pb2_grpc  # noqa: E402
from grpc.reflection.v1alpha import reflection_pb2 as reflection_alpha_pb2  # noqa: E402
from grpc.reflection.v1alpha import reflection_pb2_grpc as reflection_alpha_pb2_grpc  # noqa: E402
from sandbox.lease.v1 import lease_pb2, lease_pb2_grpc  # noqa: E402

__all__ = ["error_details_pb2", "status_pb2", "health_pb2", "health_pb2_grpc", "reflection_pb2", "reflection_pb2_grpc",
           "reflection_alpha_pb2", "reflection_alpha_pb2_grpc", "lease_pb2", "lease_pb2_grpc"]
