"""Sound through the official openai client and the proxy, in front of a scripted worker: usage FILE BASE_URL."""

import sys
import warnings

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="of-the-client", max_retries=0, timeout=10)
sound = ("speech.wav", bytes(range(256)) * 4096, "audio/wav")

heard = client.audio.transcriptions.create(model="m", file=sound, language="en")
assert heard.text == "heard", heard
with warnings.catch_warnings(action="ignore"):
    heard = client.audio.translations.create(model="m", file=sound)
assert heard.text == "heard", heard
try:
    client.audio.transcriptions.create(model="unknown", file=sound)
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error
else:
    raise AssertionError("a model that nobody serves was taken")
print("ok sound")
