"""The same by gRPC's messages, raw and typed."""

import struct

from calls import A, B, BOTH, CALLS
from tritonclient.grpc import service_pb2 as pb


def ask(name, method, message=None):
    CALLS[f"gRPC {name}"] = lambda side: side.grpc(method, message() if message else None)


def named(kind, name="plus", version=""):
    return lambda: kind(name=name, version=version)


def request(model="plus", contents=(), raw=(), inputs=None, **fields):
    """Two inputs by raw bytes unless told otherwise."""

    def make():
        message = pb.ModelInferRequest(model_name=model, **fields)
        for name, kind, shape in inputs if inputs is not None else [("a", "FP32", [1, 2]), ("b", "FP32", [1, 2])]:
            message.inputs.add(name=name, datatype=kind, shape=shape)
        for place, (field, values) in enumerate(contents):
            getattr(message.inputs[place].contents, field).extend(values)
        message.raw_input_contents.extend(raw or ([] if contents else [BOTH[:8], BOTH[8:]]))
        return message

    return make


def grpc_infer(name, **more):
    ask(f"infer{name}", "ModelInfer", request(**more))


def changed(make, change):
    def made():
        message = make()
        change(message)
        return message

    return made


ask("server live", "ServerLive")
ask("server ready", "ServerReady")
ask("server metadata", "ServerMetadata")
for title, model, version in (
    ("", "plus", ""),
    (", version", "plus", "1"),
    (", no such model", "minus", ""),
    (", no such version", "plus", "7"),
    (", no version", "plus", "x"),
):
    ask(f"model ready{title}", "ModelReady", named(pb.ModelReadyRequest, model, version))
    ask(f"model metadata{title}", "ModelMetadata", named(pb.ModelMetadataRequest, model, version))
    ask(f"statistics{title}", "ModelStatistics", named(pb.ModelStatisticsRequest, model, version))
ask("model ready, no name", "ModelReady")
ask("model metadata, no name", "ModelMetadata")
ask("model config", "ModelConfig", named(pb.ModelConfigRequest))
ask("model config, no such model", "ModelConfig", named(pb.ModelConfigRequest, "minus"))
ask("statistics of all", "ModelStatistics")
grpc_infer("")
grpc_infer(", id", id="r7")
grpc_infer(", typed contents", contents=[("fp32_contents", A), ("fp32_contents", B)])
grpc_infer(", typed and raw", contents=[("fp32_contents", A), ("fp32_contents", B)], raw=[BOTH[:8], BOTH[8:]])
grpc_infer(", contents of another type", contents=[("int_contents", [1, 2]), ("int_contents", [1, 2])])
grpc_infer(", too few contents", contents=[("fp32_contents", A[:1]), ("fp32_contents", B)])
grpc_infer(", too few raw", raw=[BOTH[:8]])
grpc_infer(", too many raw", raw=[BOTH[:8], BOTH[8:], BOTH])
grpc_infer(", raw too short", raw=[BOTH[:4], BOTH[8:]])
grpc_infer(
    ", no data",
    inputs=[("a", "FP32", [1, 2]), ("b", "FP32", [1, 2])],
    contents=[("fp32_contents", []), ("fp32_contents", [])],
)
grpc_infer(", no inputs", inputs=[], contents=[])
grpc_infer(", input missing", inputs=[("a", "FP32", [1, 2])], raw=[BOTH[:8]])
grpc_infer(", no such input", inputs=[("c", "FP32", [1, 2]), ("b", "FP32", [1, 2])])
grpc_infer(", wrong type", inputs=[("a", "INT32", [1, 2]), ("b", "FP32", [1, 2])])
grpc_infer(", no type of the protocol", inputs=[("a", "FLOAT", [1, 2]), ("b", "FP32", [1, 2])])
grpc_infer(", wrong width", inputs=[("a", "FP32", [2, 1]), ("b", "FP32", [1, 2])])
grpc_infer(", negative shape", inputs=[("a", "FP32", [-1, 2]), ("b", "FP32", [1, 2])])
grpc_infer(", over the batch size", inputs=[("a", "FP32", [9, 2]), ("b", "FP32", [9, 2])], raw=[bytes(72), bytes(72)])
grpc_infer(", no such model", model="minus")
grpc_infer(", no such version", model_version="7")
grpc_infer(", no version", model_version="x")
grpc_infer(", BYTES", model="BYTES", inputs=[("x", "BYTES", [2])], raw=[b"\x01\0\0\0a\0\0\0\0"])
grpc_infer(", BYTES that are no UTF-8", model="BYTES", inputs=[("x", "BYTES", [1])], raw=[b"\x02\0\0\0\xff\xfe"])
grpc_infer(", BYTES cut short", model="BYTES", inputs=[("x", "BYTES", [2])], raw=[b"\x01\0\0\0a\0\0"])
grpc_infer(", FP16", model="FP16", inputs=[("x", "FP16", [2])], raw=[struct.pack("<2e", 1.5, 2.5)])
grpc_infer(", NaN and infinity out", model="log", inputs=[("x", "FP32", [2])], raw=[struct.pack("<2f", 0, -1)])
grpc_infer(", no element", model="FP32", inputs=[("x", "FP32", [0])], raw=[b""])
grpc_infer(", ensemble", model="twice", id="e1")
grpc_infer(", one output", outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="difference")])
grpc_infer(", no such output", outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="product")])
grpc_infer(
    ", own parameters",
    parameters={
        "mine": pb.InferParameter(string_param="yes"),
        "step": pb.InferParameter(int64_param=3),
        "share": pb.InferParameter(double_param=0.5),
    },
)
grpc_infer(
    ", classification",
    model="scores",
    inputs=[("x", "FP32", [1, 3])],
    raw=[struct.pack("<3f", 0.1, 0.7, 0.2)],
    outputs=[
        pb.ModelInferRequest.InferRequestedOutputTensor(
            name="scores", parameters={"classification": pb.InferParameter(int64_param=2)}
        )
    ],
)
grpc_infer(", shared memory", model="FP32", contents=[("fp32_contents", [])], inputs=[("x", "FP32", [1])])
CALLS["gRPC infer, shared memory"] = lambda side: side.grpc(
    "ModelInfer",
    changed(
        request(model="FP32", inputs=[("x", "FP32", [1])], contents=[("fp32_contents", [])]),
        lambda message: (
            message.inputs[0].parameters["shared_memory_region"].MergeFrom(pb.InferParameter(string_param="r"))
        ),
    )(),
)
CALLS["gRPC infer, deadline passed"] = lambda side: side.grpc(
    "ModelInfer",
    request(model="slow", inputs=[("n", "INT64", [1, 1])], raw=[struct.pack("<q", side.size)])(),
    timeout=0.1,
)
grpc_infer(", 40 MiB", model="FP32", inputs=[("x", "FP32", [10 << 20])], raw=[bytes(40 << 20)])
CALLS["gRPC infer, gzip"] = lambda side: side.grpc("ModelInfer", request()(), gzip=True)
CALLS["gRPC stream"] = lambda side: side.stream([request(id="1")(), request(id="2")()])
CALLS["gRPC stream with an error inside"] = lambda side: side.stream(
    [
        request(id="1")(),
        request(id="2", model="minus")(),
        request(id="3", raw=[BOTH[:4], BOTH[8:]])(),
        request(id="4")(),
    ]
)
CALLS["gRPC stream of an ensemble"] = lambda side: side.stream([request(id="1", model="twice")()])
CALLS["gRPC stream, empty"] = lambda side: side.stream([])
ask("index", "RepositoryIndex")
ask("load", "RepositoryModelLoad", lambda: pb.RepositoryModelLoadRequest(model_name="log"))
ask("load, no such model", "RepositoryModelLoad", lambda: pb.RepositoryModelLoadRequest(model_name="minus"))
ask("load what can't be", "RepositoryModelLoad", lambda: pb.RepositoryModelLoadRequest(model_name="broken"))
ask("load, no name", "RepositoryModelLoad")
ask("unload", "RepositoryModelUnload", lambda: pb.RepositoryModelUnloadRequest(model_name="log"))
ask("model ready, unloaded", "ModelReady", named(pb.ModelReadyRequest, "log"))
ask("server ready, one unloaded", "ServerReady")
ask("model metadata, unloaded", "ModelMetadata", named(pb.ModelMetadataRequest, "log"))
grpc_infer(", unloaded", model="log", inputs=[("x", "FP32", [1])], raw=[bytes(4)])
ask("unload, no such model", "RepositoryModelUnload", lambda: pb.RepositoryModelUnloadRequest(model_name="minus"))
ask("load again", "RepositoryModelLoad", lambda: pb.RepositoryModelLoadRequest(model_name="log"))
ask("log settings", "LogSettings")
ask(
    "log settings, no such",
    "LogSettings",
    lambda: pb.LogSettingsRequest(settings={"log_nothing": pb.LogSettingsRequest.SettingValue(bool_param=True)}),
)
ask("trace settings", "TraceSetting")
ask("trace settings, no such model", "TraceSetting", lambda: pb.TraceSettingRequest(model_name="minus"))
ask(
    "trace settings, no such",
    "TraceSetting",
    lambda: pb.TraceSettingRequest(settings={"trace_nothing": pb.TraceSettingRequest.SettingValue(value=["1"])}),
)
for kind in ("System", "Cuda"):
    for verb in ("Status", "Unregister"):
        ask(f"{kind.lower()} shared memory {verb.lower()}", f"{kind}SharedMemory{verb}")
