"""The Python `openai` package against the real binary and the real model.

Run by `cargo xtask ci`. FULCRUM_BIN names the binary; the model is the catalogue's default,
already in the cache.
"""

import os
import re
import subprocess
import threading
import time
import unittest
import urllib.request

import openai

MODEL = "smollm2-135m"
KEY = "a key of the tests"


class Server:
    """One `fulcrum serve` on a free port."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [os.environ["FULCRUM_BIN"], "serve", "--port", "0", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.words = []
        self.address = None
        found = threading.Event()

        def read():
            for line in self.process.stderr:
                self.words.append(line)
                match = re.search(r"http://127\.0\.0\.1:\d+", line)
                if match and self.address is None:
                    self.address = match.group(0)
                    found.set()
            found.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        found.wait(60)
        assert self.address, "no address announced:\n" + "".join(self.words)
        wait_until(self.is_ready, 60, "the server to be ready")

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.address + "/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def metric(self, name):
        request = urllib.request.Request(self.address + "/metrics", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            text = answer.read().decode()
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name + "{")]
        assert rows, f"no metric {name}"
        return sum(float(value) for _, value in rows)

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def wait_until(condition, limit_s, what):
    """Polls a condition; the limit only bounds a failure."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", KEY)
        cls.client = openai.OpenAI(base_url=cls.server.address + "/v1", api_key=KEY, max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}:\n" + "".join(cls.server.words)

    def ask(self, **changes):
        body = dict(
            model=MODEL,
            messages=[{"role": "user", "content": "Name three colours."}],
            max_tokens=24,
            temperature=0,
        )
        body.update(changes)
        return self.client.chat.completions.create(**body)

    def test_models_are_listed(self):
        names = [model.id for model in self.client.models.list()]
        self.assertEqual(names, [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    def test_an_answer_has_text_a_reason_and_usage(self):
        answer = self.ask()
        self.assertTrue(answer.choices[0].message.content.strip())
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertLessEqual(answer.usage.completion_tokens, 24)

    def test_a_stream_says_the_same_as_one_piece(self):
        whole = self.ask()
        chunks = list(self.ask(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual([reason for reason in reasons if reason], [whole.choices[0].finish_reason])
        self.assertIsNotNone(reasons[-1])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_no_usage_is_sent_unasked(self):
        self.assertTrue(all(chunk.usage is None and chunk.choices for chunk in self.ask(stream=True)))

    def test_a_repeated_prompt_is_found_in_the_cache(self):
        messages = [{"role": "user", "content": "Count: " + " ".join(str(number) for number in range(100))}]
        first = self.ask(messages=messages, max_tokens=4)
        second = self.ask(messages=messages, max_tokens=4)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)

    def test_completions_take_text_lists_and_token_ids(self):
        text = self.client.completions.create(model=MODEL, prompt="One two three", max_tokens=4, temperature=0)
        several = self.client.completions.create(
            model=MODEL, prompt=["One two three", "Red green"], max_tokens=4, temperature=0
        )
        self.assertEqual(several.choices[0].text, text.choices[0].text)
        self.assertEqual([choice.index for choice in several.choices], [0, 1])
        request = urllib.request.Request(
            self.server.address + "/tokenize",
            data=b'{"prompt": "One two three"}',
            headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            import json

            ids = json.load(answer)["tokens"]
        by_ids = self.client.completions.create(model=MODEL, prompt=ids, max_tokens=4, temperature=0)
        self.assertEqual(by_ids.choices[0].text, text.choices[0].text)

    def test_logprobs_are_the_same_streamed_and_in_one_piece(self):
        whole = self.ask(logprobs=True, top_logprobs=3)
        tokens = whole.choices[0].logprobs.content
        self.assertEqual(len(tokens), whole.usage.completion_tokens)
        self.assertTrue(all(len(token.top_logprobs) == 3 for token in tokens))
        for token in tokens:
            # Greedy: the likeliest token is the one that was chosen.
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertAlmostEqual(token.top_logprobs[0].logprob, token.logprob, places=5)
            self.assertLessEqual(token.logprob, 0)
        text = b"".join(bytes(token.bytes) for token in tokens).decode()
        self.assertTrue(text.startswith(whole.choices[0].message.content))
        streamed = []
        for chunk in self.ask(logprobs=True, top_logprobs=3, stream=True):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        self.assertEqual(streamed, tokens)

    def test_embeddings_come_by_index_and_have_length_one(self):
        texts = ["The cat sleeps.", "A dog barks.", "The cat sleeps."]
        # Unasked, the client asks for Base64 and decodes it.
        told = self.client.embeddings.create(model=MODEL, input=texts)
        self.assertEqual([entry.index for entry in told.data], [0, 1, 2])
        one, two, three = (entry.embedding for entry in told.data)
        self.assertEqual(len(one), 576)
        self.assertEqual(one, three)
        self.assertNotEqual(one, two)
        self.assertAlmostEqual(sum(value * value for value in one), 1, places=5)
        self.assertEqual(told.usage.total_tokens, told.usage.prompt_tokens)
        self.assertGreater(told.usage.prompt_tokens, 9)
        floats = self.client.embeddings.create(model=MODEL, input=texts[0], encoding_format="float")
        for decoded, written in zip(one, floats.data[0].embedding, strict=True):
            self.assertAlmostEqual(decoded, written, places=6)
        cut = self.client.embeddings.create(model=MODEL, input=texts[0], dimensions=64)
        self.assertEqual(len(cut.data[0].embedding), 64)
        self.assertAlmostEqual(sum(value * value for value in cut.data[0].embedding), 1, places=5)
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model=MODEL, input="")

    def test_several_answers_come_by_index(self):
        asked = dict(n=3, temperature=1.0, seed=7, max_tokens=12)
        whole = self.ask(**asked)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2])
        texts = [choice.message.content for choice in whole.choices]
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(whole.usage.prompt_tokens, self.ask(max_tokens=1).usage.prompt_tokens)
        streamed = ["", "", ""]
        for chunk in self.ask(stream=True, **asked):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, texts)

    def test_prompts_are_scored_as_evaluation_harnesses_do_it(self):
        prompts = ["The capital of France is Paris.", "One two three four five"]

        def scores(prompt, **more):
            answer = self.client.completions.create(
                model=MODEL, prompt=prompt, echo=True, logprobs=1, temperature=0, seed=1234, **more
            )
            return [choice.logprobs for choice in sorted(answer.choices, key=lambda choice: choice.index)]

        together = scores(prompts, max_tokens=1)
        for prompt, told in zip(prompts, together):
            alone = scores(prompt, max_tokens=0)[0]
            # The token that had to be generated comes last and is left out.
            self.assertEqual(told.token_logprobs[:-1], alone.token_logprobs)
            self.assertIsNone(alone.token_logprobs[0])
            self.assertTrue(all(logprob <= 0 for logprob in alone.token_logprobs[1:]))
            self.assertEqual("".join(alone.tokens), prompt)
            self.assertEqual(alone.text_offset[0], 0)
            for logprob, top in zip(alone.token_logprobs[1:], alone.top_logprobs[1:]):
                self.assertGreaterEqual(max(top.values()), logprob)

    def test_the_best_answers_are_the_likeliest(self):
        asked = dict(model=MODEL, prompt="Once upon a time", max_tokens=8, temperature=1.0, seed=3)
        every = self.client.completions.create(n=4, logprobs=0, **asked)
        best = self.client.completions.create(best_of=4, **asked)

        def mean(choice):
            return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

        self.assertEqual(best.choices[0].text, max(every.choices, key=mean).text)

    def test_errors_are_typed(self):
        with self.assertRaises(openai.NotFoundError) as unknown:
            self.ask(model="nobody")
        self.assertEqual(unknown.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as too_hot:
            self.ask(temperature=9)
        self.assertEqual(too_hot.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as too_long:
            self.ask(messages=[{"role": "user", "content": "word " * 20000}], stream=True)
        self.assertEqual(too_long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as not_built:
            self.ask(modalities=["text", "audio"])
        self.assertEqual(not_built.exception.param, "modalities")
        with self.assertRaises(openai.BadRequestError) as too_many:
            self.ask(n=129)
        self.assertEqual(too_many.exception.param, "n")
        stranger = openai.OpenAI(base_url=self.server.address + "/v1", api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            stranger.models.list()

    def test_a_stream_that_is_left_stops_its_work(self):
        stream = self.ask(
            messages=[{"role": "user", "content": "Tell a very long story."}],
            max_tokens=4000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        stream.close()
        wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0, 30, "the work to stop")
        self.assertLess(self.server.metric("vllm:kv_cache_usage_perc"), 0.001)

    def test_the_same_seed_gives_the_same_text_in_company(self):
        def seeded():
            return self.ask(temperature=1.0, seed=42, max_tokens=16).choices[0].message.content

        alone = seeded()
        texts = []
        threads = [threading.Thread(target=lambda: texts.append(seeded())) for _ in range(6)]
        threads += [threading.Thread(target=lambda: self.ask(temperature=1.0, max_tokens=16)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(texts), {alone})


if __name__ == "__main__":
    unittest.main()
