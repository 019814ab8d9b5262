"""The official openai client's own retries against refusals: usage FILE BASE_URL SLOW_KEY OPEN_KEY.

The client repeats 408, 409, 429 and 5xx twice, after Retry-After when that is at most a minute, and never when
x-should-retry says false (openai/_base_client.py, _should_retry and _calculate_retry_timeout).
"""

import sys
import time

import openai

base, slow, open_key = sys.argv[1:]
messages = [{"role": "user", "content": "one two three"}]


def ask(key, model="m", **more):
    client = openai.OpenAI(base_url=base + "/v1", api_key=key, timeout=30)
    return client.chat.completions.create(model=model, messages=messages, max_tokens=2, **more)


def refused(kind, *arguments, **more):
    began = time.monotonic()
    try:
        ask(*arguments, **more)
    except kind as error:
        return error, time.monotonic() - began
    raise AssertionError("no error")


# A limit by the minute: the client comes back when it was told to, and is served.
spans = []
while not spans or spans[-1] < 0.5:
    assert len(spans) < 500, "it never had to wait"
    began = time.monotonic()
    assert ask(slow).choices[0].message.content == "one two"
    spans.append(time.monotonic() - began)

# What no repetition helps is asked once.
error, took = refused(openai.NotFoundError, open_key, "n")
assert error.code == "model_not_found", error
error, took = refused(openai.InternalServerError, open_key, "silent", extra_headers={"x-forebay-deadline": "200ms"})
assert error.code == "deadline", error

# What may help later is asked three times, each time after a second or two.
error, took = refused(openai.InternalServerError, open_key, "down")
assert error.code == "no_worker" and took >= 2, (error, took)
print("ok")
