"""A stream that its worker cuts is an exception in the official openai client: usage FILE BASE_URL."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="of-the-client", max_retries=0, timeout=10)
stream = client.chat.completions.create(
    model="m", messages=[{"role": "user", "content": "one two"}], max_tokens=9, stream=True
)
said = []
try:
    for chunk in stream:
        said.append(chunk.choices[0].delta.content or "")
except openai.APIError as error:
    assert error.code == "worker_failed", error
    print("ok", "".join(said), "and then", error.code)
else:
    raise AssertionError("a cut stream looked whole")
