"""schemathesis against the served OpenAPI document: whatever it makes up along the schemas, the
server answers with a status, a type and a body that the document names, and never with 500."""

import collections
import unittest

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_openai_client import KEY, Server, wait_until

# Bounded: a few requests an operation, the same ones every time, with short answers.
SETTINGS = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# Answers are bounded in the request, wherever a request can say so.
LIMITS = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
}


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", KEY)
        cls.schema = schemathesis.openapi.from_url(
            cls.server.address + "/openapi.json", headers={"Authorization": f"Bearer {KEY}"}
        )

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}:\n" + "".join(cls.server.words)

    def test_made_up_requests_get_answers_that_the_document_names(self):
        self.answered = collections.Counter()
        operations = [result.ok() for result in self.schema.get_all_operations()]
        self.assertGreater(len(operations), 20)
        for operation in operations:
            with self.subTest(f"{operation.method} {operation.path}"):
                self.drive(operation)
        # Made-up requests that are all refused would show nothing.
        for path in LIMITS:
            self.assertGreater(self.answered[path], 0, path)
        wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0, 30, "the work to stop")

    def drive(self, operation):
        @SETTINGS
        @given(case=operation.as_strategy())
        def call(case):
            for limit in LIMITS.get(operation.path, ()):
                if isinstance(case.body, dict) and case.body.get(limit) is not None:
                    case.body[limit] = 2
                elif isinstance(case.body, dict):
                    case.body.setdefault(limit, 2)
            if isinstance(case.body, dict):
                for several in ("n", "best_of", "min_tokens"):
                    case.body.pop(several, None)
            response = case.call(headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
            self.answered[operation.path] += response.status_code == 200
            # Unavailable is an answer like any other: the document names 503.
            if response.status_code != 503:
                case.validate_response(response, checks=CHECKS)

        call()


if __name__ == "__main__":
    unittest.main()
