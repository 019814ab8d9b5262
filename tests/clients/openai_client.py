"""The official openai client through the proxy, in front of a scripted worker: usage FILE BASE_URL."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="of-the-client", max_retries=0, timeout=10)
messages = [{"role": "user", "content": "one two three"}]


def chat_in_one_piece():
    answer = client.chat.completions.create(model="m", messages=messages, max_tokens=5)
    assert answer.choices[0].message.content == "one two three one two", answer
    assert answer.usage.completion_tokens == 5, answer


def chat_streamed():
    stream = client.chat.completions.create(
        model="m", messages=messages, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "one two three one two", said
    assert chunks[-1].usage.completion_tokens == 5, chunks[-1]


def completions():
    answer = client.completions.create(model="m", prompt="one two", max_tokens=3)
    assert answer.choices[0].text == "one two one", answer


def embeddings_in_both_encodings():
    numbers = client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
    # Unless told otherwise the client asks for base64 and unpacks it.
    packed = client.embeddings.create(model="m", input=["a", "b"])
    for left, right in zip(numbers.data, packed.data, strict=True):
        assert len(left.embedding) == 8
        assert all(abs(a - b) < 1e-6 for a, b in zip(left.embedding, right.embedding, strict=True))


def models():
    assert [model.id for model in client.models.list()] == ["m"]


def an_unknown_model_is_the_clients_own_error():
    try:
        client.chat.completions.create(model="mm", messages=messages)
    except openai.NotFoundError as error:
        assert error.code == "model_not_found", error
        assert "m" in error.message
    else:
        raise AssertionError("no error")


for check in (
    chat_in_one_piece,
    chat_streamed,
    completions,
    embeddings_in_both_encodings,
    models,
    an_unknown_model_is_the_clients_own_error,
):
    check()
    print("ok", check.__name__)
