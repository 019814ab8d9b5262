"""tritonclient's repository calls against a worker that serves `plus`: usage FILE ADDRESS."""

import sys

import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])

assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("plus") and client.is_model_ready("plus", "1")
assert client.get_model_metadata("plus")["versions"] == ["1"]
config = client.get_model_config("plus")
assert config["max_batch_size"] == 4 and config["input"][0]["dims"] == [2], config
assert config["dynamic_batching"]["preferred_batch_size"] == [2], config
assert client.get_model_repository_index() == [{"name": "plus", "version": "1", "state": "READY"}]
client.unload_model("plus")
assert not client.is_model_ready("plus")
assert client.get_model_repository_index()[0]["state"] == "UNAVAILABLE"
client.load_model("plus")
assert client.is_model_ready("plus")
try:
    client.load_model("minus")
except InferenceServerException as error:
    assert error.status() == "404", error
else:
    raise AssertionError("a model that does not exist was loaded")
print("ok")
