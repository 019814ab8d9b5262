"""The official anthropic client through the proxy, in front of a scripted worker: usage FILE BASE_URL."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="of-the-client", max_retries=0, timeout=10)
messages = [{"role": "user", "content": "one two three"}]


def in_one_piece():
    answer = client.messages.create(model="m", messages=messages, max_tokens=4)
    assert answer.content[0].text == "one two three one", answer
    assert answer.usage.output_tokens == 4, answer


def streamed():
    with client.messages.stream(model="m", messages=messages, max_tokens=4) as stream:
        assert "".join(stream.text_stream) == "one two three one"


def an_unknown_model_is_the_clients_own_error():
    try:
        client.messages.create(model="mm", messages=messages, max_tokens=4)
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error", error
    else:
        raise AssertionError("no error")


for check in (in_one_piece, streamed, an_unknown_model_is_the_clients_own_error):
    check()
    print("ok", check.__name__)
