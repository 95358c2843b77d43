"""The email server of the benchmarks, on the Python SDK: one tool, the same that `examples/email` has in Rust."""

from agentenv_protocol import AgentEnvEnvironment, DataPart, add_data, environment_card, get_data, reset_data, tool


@environment_card(name="email")
class Email(AgentEnvEnvironment):
    def __init__(self):
        self.mails = []

    @reset_data
    async def empty(self):
        self.mails = []

    @add_data
    async def load(self, parts: list):
        for part in parts:
            if isinstance(part, DataPart):
                self.mails += part.data["inbox"]

    @get_data
    async def dump(self) -> list:
        return [DataPart(data={"inbox": self.mails})]

    @tool(name="{environment_name}_search")
    async def find(self, query: str) -> dict:
        """Mails with the query in their subject or body."""
        wanted = query.lower()
        return {"emails": [mail for mail in self.mails if wanted in f"{mail['subject']} {mail['body']}".lower()]}


if __name__ == "__main__":
    Email().serve()
