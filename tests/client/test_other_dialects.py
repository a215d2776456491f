"""The Responses API of the `openai` package, and the `anthropic` package, against the real
binary and the real model."""

import unittest

import anthropic
import openai
from test_openai_client import KEY, MODEL, Server, wait_until


class Dialect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", KEY)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}:\n" + "".join(cls.server.words)


class OpenAiResponses(Dialect):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.address + "/v1", api_key=KEY, max_retries=0, timeout=120)

    def create(self, **changes):
        body = dict(model=MODEL, input="Name three colours.", max_output_tokens=24, temperature=0)
        body.update(changes)
        return self.client.responses.create(**body)

    def test_a_response_has_text_and_usage(self):
        response = self.create(instructions="Be brief.")
        self.assertTrue(response.output_text.strip())
        self.assertIn(response.status, ("completed", "incomplete"))
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
        self.assertEqual(response.usage.output_tokens_details.reasoning_tokens, 0)

    def test_a_response_says_what_chat_says(self):
        chat = self.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Name three colours."}],
            max_completion_tokens=24,
            temperature=0,
        )
        self.assertEqual(self.create().output_text, chat.choices[0].message.content)

    def test_the_stream_helper_puts_the_response_together(self):
        whole = self.create()
        with self.client.responses.stream(
            model=MODEL, input="Name three colours.", max_output_tokens=24, temperature=0
        ) as stream:
            events = list(stream)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        done = [event.type for event in events if event.type.endswith(".done")]
        self.assertEqual(
            done, ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
        )
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual(events[-1].response.output_text, whole.output_text)

    def test_a_response_is_kept_continued_and_deleted(self):
        first = self.create()
        again = self.client.responses.retrieve(first.id)
        self.assertEqual(again.output_text, first.output_text)
        second = self.create(input="And one more?", previous_response_id=first.id)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens + first.usage.output_tokens - 2)
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)
        items = self.client.responses.input_items.list(first.id)
        self.assertEqual([item.content[0].text for item in items], ["Name three colours."])
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)
        with self.assertRaises(openai.BadRequestError) as gone:
            self.create(previous_response_id=first.id)
        self.assertEqual(gone.exception.param, "previous_response_id")

    def test_a_background_response_is_polled_and_cancelled(self):
        begun = self.create(background=True)
        self.assertEqual(begun.status, "queued")
        wait_until(
            lambda: self.client.responses.retrieve(begun.id).status in ("completed", "incomplete"),
            60,
            "the response",
        )
        self.assertEqual(self.client.responses.retrieve(begun.id).output_text, self.create().output_text)
        endless = self.create(background=True, max_output_tokens=4000, extra_body={"ignore_eos": True})
        self.assertEqual(self.client.responses.cancel(endless.id).status, "cancelled")
        wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0, 30, "the work to stop")

    def test_errors_name_the_field(self):
        for changes, param in [
            (dict(temperature=9), "temperature"),
            (dict(truncation="auto"), "truncation"),
            (dict(tools=[{"type": "web_search"}]), "tools[0].type"),
            (dict(input="word " * 20000), "input"),
        ]:
            with self.assertRaises(openai.BadRequestError) as refused:
                self.create(**changes)
            self.assertEqual(refused.exception.param, param)


class Anthropic(Dialect):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.address, api_key=KEY, max_retries=0, timeout=120)

    BODY = dict(
        model=MODEL,
        messages=[{"role": "user", "content": "Name three colours."}],
        max_tokens=24,
        # The package has no argument for it, its servers do.
        extra_body={"temperature": 0},
    )

    def create(self, **changes):
        return self.client.messages.create(**{**self.BODY, **changes})

    def test_a_message_has_text_a_reason_and_usage(self):
        message = self.create(system="Be brief.")
        self.assertEqual(message.content[0].type, "text")
        self.assertTrue(message.content[0].text.strip())
        self.assertIn(message.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(message.usage.output_tokens, 0)
        self.assertTrue(message._request_id)

    def test_the_stream_helper_puts_the_message_together(self):
        whole = self.create()
        with self.client.messages.stream(**self.BODY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, whole.content[0].text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_a_stop_sequence_is_named(self):
        text = self.create().content[0].text
        middle = text[len(text) // 2 :][:4]
        message = self.create(stop_sequences=[middle])
        self.assertEqual(message.stop_reason, "stop_sequence")
        self.assertEqual(message.stop_sequence, middle)
        self.assertNotIn(middle, message.content[0].text)

    def test_counted_tokens_are_those_of_the_message(self):
        body = {key: self.BODY[key] for key in ("model", "messages")}
        count = self.client.messages.count_tokens(**body)
        usage = self.create().usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_are_typed(self):
        with self.assertRaises(anthropic.BadRequestError) as too_hot:
            self.create(extra_body={"temperature": 1.5})
        self.assertEqual(too_hot.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError) as unknown:
            self.create(model="nobody")
        self.assertEqual(unknown.exception.body["error"]["type"], "not_found_error")
        self.assertTrue(unknown.exception.request_id)
        with self.assertRaises(anthropic.RequestTooLargeError) as too_large:
            self.create(messages=[{"role": "user", "content": "x" * 9_000_000}])
        self.assertEqual(too_large.exception.body["error"]["type"], "request_too_large")
        stranger = anthropic.Anthropic(base_url=self.server.address, api_key="wrong", max_retries=0)
        with self.assertRaises(anthropic.AuthenticationError):
            stranger.messages.create(**self.BODY)


if __name__ == "__main__":
    unittest.main()
