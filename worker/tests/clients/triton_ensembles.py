"""tritonclient's calls for an ensemble, against a worker that serves `sentiment` of docs/worker.md: usage FILE http:ADDR or
FILE grpc:ADDR."""

import importlib
import sys

import numpy as np
from tritonclient.utils import InferenceServerException

front, address = sys.argv[1].split(":", 1)
triton = importlib.import_module(f"tritonclient.{front}")
client = triton.InferenceServerClient(url=address)
as_json = {"as_json": True} if front == "grpc" else {}
MEMBERS = ["tokens", "scorer", "softmax", "best", "names"]


def given(texts):
    array = np.array([[text] for text in texts], dtype=np.object_)
    tensor = triton.InferInput("TEXT", list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array)
    return [tensor]


def labels(texts, **wanted):
    answer = client.infer("sentiment", given(texts), **wanted)
    return [row[0].decode() for row in answer.as_numpy("label")], answer


def refused(call, *words):
    try:
        call()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("expected a refusal")


both, answer = labels(["hello", "world world"])
assert both == ["trust", "trust"], both
assert answer.as_numpy("score").shape == (2, 1) and (answer.as_numpy("score") > 0.25).all()
alone, answer = labels(["cat"], outputs=[triton.InferRequestedOutput("label")])
assert alone == ["anger"] and answer.as_numpy("score") is None, alone
refused(lambda: client.infer("sentiment", given(["a", "b"]), outputs=[triton.InferRequestedOutput("logits")]), "logits")

described = client.get_model_metadata("sentiment", **as_json)
assert described["platform"] == "ensemble", described
assert described["inputs"][0]["datatype"] == "BYTES", described
assert [int(size) for size in described["inputs"][0]["shape"]] == [-1, 1], described
config = client.get_model_config("sentiment", **as_json)
config = config.get("config", config)
assert config["platform"] == "ensemble" and not config.get("backend"), config
steps = config["ensemble_scheduling"]["step"]
assert [step["model_name"] for step in steps] == MEMBERS, config
assert steps[0]["input_map"] == {"TEXT": "TEXT"}, config

stats = client.get_inference_statistics(**as_json)["model_stats"]
counts = {one["name"]: int(one["inference_stats"]["success"]["count"]) for one in stats}
assert counts["sentiment"] == counts["tokens"] == counts["names"] > 0, counts

client.unload_model("sentiment", unload_dependents=True)
assert not any(client.is_model_ready(model) for model in ["sentiment", *MEMBERS])
client.load_model("sentiment")
assert all(client.is_model_ready(model) for model in ["sentiment", *MEMBERS])
client.unload_model("sentiment")
assert not client.is_model_ready("sentiment") and client.is_model_ready("scorer")
client.load_model("sentiment")
assert labels(["cat"])[0] == ["anger"]
print("ok")
