"""600 damaged infer requests over gRPC, the same in every run, against a worker that serves `plus`: usage FILE ADDRESS.
Every tenth is left whole: the control."""

import random
import sys

import grpc
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(sys.argv[1]))
chance = random.Random(7)
ONE_TWO = b"\0\0\x80\x3f\0\0\0\x40"


def whole():
    request = messages.ModelInferRequest(model_name="plus", raw_input_contents=[ONE_TWO, ONE_TWO])
    for name in ("a", "b"):
        request.inputs.add(name=name, datatype="FP32", shape=[1, 2])
    request.outputs.add(name="sum")
    return request


def number():
    return chance.choice([0, -1, 1, 3, 2**31, 2**62, -(2**63), 2**63 - 1])


def damage(request):
    tensor = chance.choice(request.inputs)
    kind = chance.randrange(10)
    if kind == 0:
        tensor.shape[:] = [number() for _ in range(chance.randrange(4))]
    elif kind == 1:
        tensor.datatype = chance.choice(["", "BOOL", "BYTES", "FP16", "FP64", "INT8", "fp32"])
    elif kind == 2:
        tensor.name = chance.choice(["", "a", "b", "c"])
    elif kind == 3:
        request.raw_input_contents[:1] = [chance.randbytes(chance.randrange(20))]
    elif kind == 4:
        del request.raw_input_contents[chance.randrange(2) :]
    elif kind == 5:
        tensor.contents.fp32_contents.extend([1.0] * chance.randrange(4))
    elif kind == 6:
        request.outputs[0].parameters["classification"].int64_param = number()
    elif kind == 7:
        request.parameters[chance.choice(["timeout", "priority", "sequence_id"])].int64_param = number()
    elif kind == 8:
        request.outputs[0].name = chance.choice(["", "difference", "product"])
    else:
        request.model_version = chance.choice(["1", "2", "01", "x", "-1"])


codes = {}
for round in range(600):
    request = whole()
    for _ in range(0 if round % 10 == 0 else chance.randint(1, 3)):
        damage(request)
    try:
        answer = stub.ModelInfer(request, timeout=30)
        code = "OK"
    except grpc.RpcError as error:
        code = error.code().name
        assert code in ("INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE"), (code, error.details(), request)
    if round % 10 == 0:
        assert code == "OK" and answer.raw_output_contents[0] == b"\0\0\0\x40\0\0\x80\x40", (round, code)
    codes[code] = codes.get(code, 0) + 1
assert codes["OK"] >= 60 and codes["INVALID_ARGUMENT"] >= 200, codes
print("ok")
