"""tritonclient's calls over gRPC against a worker that serves `plus`, `scores`, `BYTES`, `FP16`, `FP32` and `log`: usage
FILE ADDRESS."""

import sys

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1)])
stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)


def given(name, array, datatype):
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def refused(call, code, *words):
    try:
        call()
    except (InferenceServerException, grpc.RpcError) as error:
        status = error.status() if isinstance(error, InferenceServerException) else str(error.code())
        said = str(error) if isinstance(error, InferenceServerException) else error.details()
        assert status == f"StatusCode.{code}", (status, said)
        assert all(word in said for word in words), said
    else:
        raise AssertionError(f"expected {code}")


a = np.array([[1, 2]], dtype=np.float32)
b = np.array([[10, 20]], dtype=np.float32)

assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("plus") and client.is_model_ready("plus", "1")
assert not client.is_model_ready("minus") and not client.is_model_ready("plus", "7")
server = client.get_server_metadata()
assert server.name == "forebay-worker" and "binary_tensor_data" in server.extensions, server
model = client.get_model_metadata("plus")
assert list(model.versions) == ["1"] and list(model.inputs[0].shape) == [-1, 2], model
refused(lambda: client.get_model_metadata("minus"), "NOT_FOUND", "minus")
config = client.get_model_config("scores").config
assert config.max_batch_size == 4 and config.output[0].label_filename == "labels.txt", config
assert config.output[0].data_type == 11 and list(config.input[0].dims) == [3], config

index = client.get_model_repository_index()
assert {model.state for model in index.models} == {"READY"}, index
client.unload_model("plus")
assert not client.is_model_ready("plus")
gone = [model for model in client.get_model_repository_index().models if model.name == "plus"]
assert gone[0].state == "UNAVAILABLE" and gone[0].reason == "unloaded", gone
client.load_model("plus")
assert client.is_model_ready("plus")
refused(lambda: client.load_model("minus"), "NOT_FOUND", "minus")
refused(lambda: client.load_model("plus", config="{}"), "INVALID_ARGUMENT", "`config`")

for packed in (None, "gzip", "deflate"):
    for outputs in (None, [triton.InferRequestedOutput("sum")]):
        answer = client.infer(
            "plus",
            [given("b", b, "FP32"), given("a", a, "FP32")],
            outputs=outputs,
            request_id="r7",
            priority=1,
            timeout=30_000_000,
            compression_algorithm=packed,
            parameters={"mine": "yes", "step": 3, "last": True},
        )
        assert np.array_equal(answer.as_numpy("sum"), a + b), packed
        shown = answer.get_response()
        assert shown.id == "r7" and shown.model_version == "1", shown
        own = {name: value.WhichOneof("parameter_choice") for name, value in shown.parameters.items()}
        assert own == {"mine": "string_param", "step": "int64_param", "last": "bool_param"}, own

best = triton.InferRequestedOutput("scores", class_count=2)
scores = np.array([[0.1, 0.7, 0.2]], dtype=np.float32)
answer = client.infer("scores", [given("x", scores, "FP32")], outputs=[best])
assert list(answer.as_numpy("scores")[0]) == [b"0.700000:1:dog", b"0.200000:2"]

words = np.array(["", "größer"], dtype=np.object_)
assert [word.decode() for word in client.infer("BYTES", [given("x", words, "BYTES")]).as_numpy("y")] == ["", "größer"]
halves = np.array([1.5, np.inf], dtype=np.float16)
assert np.array_equal(client.infer("FP16", [given("x", halves, "FP16")]).as_numpy("y"), halves)
exact = client.infer("log", [given("x", np.array([0, -1], dtype=np.float32), "FP32")]).as_numpy("y")
assert np.isneginf(exact[0]) and np.isnan(exact[1]), exact


# Typed contents, which tritonclient itself never sends.
def typed(model, datatype, field, values):
    request = messages.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[len(values)])
    getattr(tensor.contents, field).extend(values)
    return request


fields = [
    ("BOOL", "bool_contents", [True, False], np.bool_),
    ("INT8", "int_contents", [-128, 127], np.int8),
    ("INT16", "int_contents", [-5, 5], np.int16),
    ("INT32", "int_contents", [-5, 5], np.int32),
    ("INT64", "int64_contents", [-5, 5], np.int64),
    ("UINT8", "uint_contents", [0, 255], np.uint8),
    ("UINT16", "uint_contents", [0, 65535], np.uint16),
    ("UINT32", "uint_contents", [0, 5], np.uint32),
    ("UINT64", "uint64_contents", [0, 2**64 - 1], np.uint64),
    ("FP32", "fp32_contents", [float("nan"), 0.5], np.float32),
    ("FP64", "fp64_contents", [float("inf"), 0.5], np.float64),
]
for datatype, field, values, kind in fields:
    answer = stub.ModelInfer(typed(datatype, datatype, field, values))
    assert answer.outputs[0].datatype == datatype
    assert answer.raw_output_contents[0] == np.array(values, dtype=kind).tobytes(), datatype
answer = stub.ModelInfer(typed("BYTES", "BYTES", "bytes_contents", [b"a", b""]))
assert answer.raw_output_contents[0] == b"\x01\0\0\0a\0\0\0\0"

refused(lambda: stub.ModelInfer(typed("INT8", "INT8", "int_contents", [128])), "INVALID_ARGUMENT", "range of INT8")
refused(lambda: stub.ModelInfer(typed("FP32", "FP32", "int_contents", [1])), "INVALID_ARGUMENT", "not for FP32")
refused(lambda: stub.ModelInfer(typed("none", "FP32", "fp32_contents", [1])), "NOT_FOUND", "none")
both = typed("FP32", "FP32", "fp32_contents", [1])
both.raw_input_contents.append(b"1234")
refused(lambda: stub.ModelInfer(both), "INVALID_ARGUMENT", "beside raw_input_contents")
short = messages.ModelInferRequest(model_name="FP32", raw_input_contents=[b"1234"])
short.inputs.add(name="x", datatype="FP32", shape=[2])
refused(lambda: stub.ModelInfer(short), "INVALID_ARGUMENT", "expected 2 elements, not 1")
short.raw_input_contents.append(b"1234")
refused(lambda: stub.ModelInfer(short), "INVALID_ARGUMENT", "2 raw_input_contents")
other = triton.InferRequestedOutput("product")
refused(lambda: client.infer("plus", [given("a", a, "FP32"), given("b", b, "FP32")], outputs=[other]), "INVALID_ARGUMENT", "product")

# 8 MiB are more than gRPC's usual limit, 40 MiB more than ours.
large = np.arange(2 << 20, dtype=np.float32)
assert np.array_equal(client.infer("FP32", [given("x", large, "FP32")]).as_numpy("y"), large)
over = messages.ModelInferRequest(model_name="FP32", raw_input_contents=[bytes(40 << 20)])
refused(lambda: stub.ModelInfer(over), "OUT_OF_RANGE", "too large")
bomb = grpc.insecure_channel(sys.argv[1], compression=grpc.Compression.Gzip, options=[("grpc.max_send_message_length", -1)])
refused(lambda: service_pb2_grpc.GRPCInferenceServiceStub(bomb).ModelInfer(over), "RESOURCE_EXHAUSTED", "limit")

stats = client.get_inference_statistics("plus").model_stats
assert stats[0].inference_count >= 6 and stats[0].inference_stats.success.count == stats[0].inference_count, stats
assert stats[0].inference_stats.fail.count >= 1 and stats[0].batch_stats[0].batch_size == 1, stats
assert {one.name for one in client.get_inference_statistics().model_stats} >= {"plus", "scores", "log"}
refused(lambda: client.get_inference_statistics("minus"), "NOT_FOUND", "minus")

assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
assert list(client.update_trace_settings("plus", {"trace_level": None}).settings["trace_rate"].value) == ["1000"]
refused(lambda: client.update_trace_settings(settings={"trace_level": "TIMESTAMPS"}), "INVALID_ARGUMENT", "no traces")
refused(lambda: client.get_trace_settings("minus"), "NOT_FOUND", "minus")
level = client.update_log_settings({"log_verbose_level": 1}).settings["log_verbose_level"].uint32_param
assert level == 1 and client.get_log_settings().settings["log_verbose_level"].uint32_param == 1
refused(lambda: client.update_log_settings({"log_file": "/tmp/x"}), "INVALID_ARGUMENT", "no file")

refused(lambda: client.get_system_shared_memory_status(), "UNIMPLEMENTED", "shared memory", "behind a proxy")
refused(lambda: client.unregister_cuda_shared_memory(), "UNIMPLEMENTED", "shared memory")
print("ok")
