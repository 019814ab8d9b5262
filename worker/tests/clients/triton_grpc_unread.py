"""Messages that are no protobuf, in a call and in a stream, against a worker that serves `plus`: usage FILE ADDRESS."""

import sys

import grpc

channel = grpc.insecure_channel(sys.argv[1])
SERVICE = "/inference.GRPCInferenceService/"


def code_of(call):
    try:
        call()
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


call = channel.unary_unary(SERVICE + "ModelInfer")
stream = channel.stream_stream(SERVICE + "ModelStreamInfer")
assert code_of(lambda: call(b"\xff\xff", timeout=30)) == "INVALID_ARGUMENT"
assert code_of(lambda: list(stream(iter([b"\xff\xff"]), timeout=30))) == "INVALID_ARGUMENT"
