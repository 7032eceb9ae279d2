"""What the HTTP side of a simulated worker counts."""

from collections.abc import Sequence

from simworker.planning import Task


class Totals:
    """Requests by outcome. Tokens are those of finished requests only.

    `skipped_rendering` are accepted chats whose ids came with them.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0
        self.skipped_rendering = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0}
        self.prompt_tokens = 0
        self.generated_tokens = 0

    def add(self, tasks: Sequence[Task]) -> None:
        """A call was answered to its end."""
        for task in tasks:
            self.prompt_tokens += len(task.prompt_ids)
            for answer in task.answers:
                self.finished[answer.finish_reason] += 1
                self.generated_tokens += len(answer.token_ids)
