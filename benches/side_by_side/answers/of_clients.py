"""Through tritonclient, which reads answers more strictly than a comparison of bytes tells."""

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from calls import A, B, CALLS
from tritonclient.utils import InferenceServerException


def through(name, module, use):
    def made(side):
        client = module.InferenceServerClient(url=side.address(module is triton_grpc))
        try:
            return {"gives": use(client, module)}
        except InferenceServerException as error:
            return {"raises": error.status() or "without a status"}

    CALLS[f"tritonclient.{'grpc' if module is triton_grpc else 'http'} {name}"] = made


def given(module, name, array, kind, **more):
    one = module.InferInput(name, list(array.shape), kind)
    one.set_data_from_numpy(array, **more)
    return one


def both(client, module, binary=None, **more):
    more_of_input = {} if binary is None else {"binary_data": binary}
    inputs = [
        given(module, name, np.array([values], np.float32), "FP32", **more_of_input)
        for name, values in (("a", A), ("b", B))
    ]
    return client.infer("plus", inputs, **more).as_numpy("sum").tolist()


def words(client, module):
    inputs = [given(module, "x", np.array(["", "größer"], np.object_), "BYTES")]
    return [word.decode() for word in client.infer("BYTES", inputs).as_numpy("y")]


def halves(client, module):
    return (
        client.infer("FP16", [given(module, "x", np.array([1.5, np.inf], np.float16), "FP16")]).as_numpy("y").tolist()
    )


def top(client, module):
    inputs = [given(module, "x", np.array([[0.1, 0.7, 0.2]], np.float32), "FP32")]
    answer = client.infer("scores", inputs, outputs=[module.InferRequestedOutput("scores", class_count=2)])
    return [text.decode() for text in answer.as_numpy("scores")[0]]


for module in (triton_http, triton_grpc):
    through("is_server_live", module, lambda client, module: client.is_server_live())
    through("is_server_ready", module, lambda client, module: client.is_server_ready())
    through("is_model_ready", module, lambda client, module: client.is_model_ready("plus"))
    through("is_model_ready, no such model", module, lambda client, module: client.is_model_ready("minus"))
    through("is_model_ready, no such version", module, lambda client, module: client.is_model_ready("plus", "7"))
    through("infer", module, both)
    through("infer, no such model", module, lambda client, module: client.infer("minus", []) and None)
    through("infer, BYTES", module, words)
    through("infer, FP16", module, halves)
    through("infer, classification", module, top)
    through("load_model, no such model", module, lambda client, module: client.load_model("minus"))
    through(
        "get_model_metadata, no such model", module, lambda client, module: client.get_model_metadata("minus") and None
    )
    through(
        "get_inference_statistics, no such model",
        module,
        lambda client, module: client.get_inference_statistics("minus") and None,
    )
    through(
        "get_system_shared_memory_status", module, lambda client, module: str(client.get_system_shared_memory_status())
    )
    through(
        "update_log_settings",
        module,
        lambda client, module: client.update_log_settings({"log_verbose_level": 0}) and None,
    )
    through("get_trace_settings", module, lambda client, module: client.get_trace_settings("plus") and None)
through("infer, JSON", triton_http, lambda client, module: both(client, module, binary=False))
through(
    "infer, gzip",
    triton_http,
    lambda client, module: both(
        client, module, request_compression_algorithm="gzip", response_compression_algorithm="gzip"
    ),
)
through("infer, gzip", triton_grpc, lambda client, module: both(client, module, compression_algorithm="gzip"))
