"""What tutorials show: FastAPI and one session with its default options, in a plain function that runs on its threads."""
import os

import numpy as np
import onnxruntime as ort
from fastapi import FastAPI
from pydantic import BaseModel

session = ort.InferenceSession(os.environ["MODEL"], providers=["CPUExecutionProvider"])
app = FastAPI()


class Texts(BaseModel):
    input_ids: list[list[int]]
    attention_mask: list[list[int]]


@app.post("/predict")
def predict(texts: Texts):
    ids, mask = np.array(texts.input_ids, np.int64), np.array(texts.attention_mask, np.int64)
    (output,) = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0})
    return {"embedding": output.tolist()}
