"""The official anthropic client and the limits of its tenant: usage FILE BASE_URL RIGHT_KEY EMPTY_KEY."""

import sys

import anthropic

base, right, empty = sys.argv[1:]
messages = [{"role": "user", "content": "one two three"}]


def ask(key, model="m"):
    client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0, timeout=10)
    return client.messages.create(model=model, messages=messages, max_tokens=2)


def refused(kind, error_type, *arguments):
    try:
        ask(*arguments)
    except kind as error:
        assert error.body["error"]["type"] == error_type, error
        return error
    raise AssertionError("no error")


assert ask(right).content[0].text == "one two"
refused(anthropic.AuthenticationError, "authentication_error", "fb_wrong")
refused(anthropic.PermissionDeniedError, "permission_error", right, "n")
ask(empty)
error = refused(anthropic.RateLimitError, "rate_limit_error", empty)
assert int(error.response.headers["retry-after"]) > 50, error.response.headers
print("ok")
