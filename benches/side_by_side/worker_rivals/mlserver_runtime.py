"""ONNX Runtime in MLServer, which has no runtime of its own for it."""
import os

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class OnnxModel(MLModel):
    async def load(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as in Forebay's worker
        self.session = ort.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload):
        inputs = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        (output,) = self.session.run(None, inputs)
        encoded = NumpyCodec.encode_output("sentence_embedding", output)
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[encoded])
