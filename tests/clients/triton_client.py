"""tritonclient's HTTP infer with JSON tensors through the proxy: usage FILE BASE_URL."""

import sys

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1].removeprefix("http://"))
sent = numpy.array([[1.5, 2.5, -3.0, 0.0]], dtype=numpy.float32)


def infer(model):
    tensor = triton.InferInput("INPUT0", list(sent.shape), "FP32")
    tensor.set_data_from_numpy(sent, binary_data=False)
    wanted = triton.InferRequestedOutput("OUTPUT0", binary_data=False)
    return client.infer(model, [tensor], outputs=[wanted], request_id="7")


def json_tensors_come_back():
    answer = infer("m")
    assert (answer.as_numpy("OUTPUT0") == sent).all(), answer.get_response()
    assert answer.get_response()["id"] == "7"


def the_server_lives_and_is_ready():
    assert client.is_server_live() and client.is_server_ready()


def the_model_is_known():
    assert client.is_model_ready("m")
    assert client.get_model_metadata("m")["inputs"][0]["name"] == "INPUT0"


def an_unknown_model_is_the_clients_own_error():
    try:
        infer("mm")
    except InferenceServerException as error:
        assert error.status() == "404", error
    else:
        raise AssertionError("no error")


for check in (
    json_tensors_come_back,
    the_server_lives_and_is_ready,
    the_model_is_known,
    an_unknown_model_is_the_clients_own_error,
):
    check()
    print("ok", check.__name__)
