"""The official openai client and the limits of its tenant: usage FILE BASE_URL RIGHT_KEY SLOW_KEY FULL_KEY."""

import sys
import time

import openai

base, right, slow, full = sys.argv[1:]
messages = [{"role": "user", "content": "one two three"}]


def client(key, retries=0):
    return openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=retries, timeout=10)


def ask(of):
    return of.chat.completions.create(model="m", messages=messages, max_tokens=2)


def the_right_key_is_let_in():
    assert ask(client(right)).choices[0].message.content == "one two"


def a_wrong_key_is_an_authentication_error():
    try:
        ask(client("fb_wrong", retries=2))
    except openai.AuthenticationError as error:
        assert error.code == "unauthorized", error
    else:
        raise AssertionError("no error")


def a_model_of_others_is_a_permission_error():
    try:
        client(right).chat.completions.create(model="n", messages=messages)
    except openai.PermissionDeniedError as error:
        assert error.code == "forbidden", error
    else:
        raise AssertionError("no error")


def a_retry_comes_when_it_was_told_to_and_passes():
    # 60 a minute: the 61st has to wait for a second.
    quick = client(slow)
    began = time.monotonic()
    try:
        for _ in range(500):
            ask(quick)
    except openai.RateLimitError as error:
        assert error.response.headers["retry-after"] == "1", error.response.headers
    else:
        raise AssertionError("no error within %s s" % (time.monotonic() - began))
    began = time.monotonic()
    ask(client(slow, retries=2))
    assert time.monotonic() - began >= 0.9, "it came back too early"


def retries_in_vain_end_in_a_rate_limit_error():
    # The only place is taken as long as this stream is open.
    held = client(full).chat.completions.create(model="m", messages=messages, max_tokens=10_000, stream=True)
    next(iter(held))
    began = time.monotonic()
    try:
        ask(client(full, retries=1))
    except openai.RateLimitError as error:
        assert error.code == "rate_limited", error
        assert time.monotonic() - began >= 0.9, "it came back too early"
    else:
        raise AssertionError("no error")
    finally:
        held.close()


for check in (
    the_right_key_is_let_in,
    a_wrong_key_is_an_authentication_error,
    a_model_of_others_is_a_permission_error,
    a_retry_comes_when_it_was_told_to_and_passes,
    retries_in_vain_end_in_a_rate_limit_error,
):
    check()
    print("ok", check.__name__)
