"""The far side of the RAG service apart from the model: guard model, pgvector, reranker, order system."""

import asyncio
import functools

from overrun.sample_traces.app.incident import Incident, dice, lognormal

# Median and sigma in seconds of each stand-in. A healthy turn must fit the usual 2.5 s budget with room to spare
# (retrieval 300 ms of it), so that an incident is what breaks it.
DELAYS = {
    "guard": (0.020, 0.30),
    "embed": (0.018, 0.25),
    "search": (0.045, 0.35),
    "rerank": (0.035, 0.30),
    "order": (0.060, 0.40),
    "format": (0.012, 0.30),
}
SLOW_SEARCH_SHARE = 0.35
SLOW_SEARCH = (2.5, 0.25)

# Handbook sizes in tokens (4 characters each): a long shared prompt head is what prefix caches exist for.
HANDBOOK_TOKENS = {
    "bikes": 5_000,
    "phones": 6_500,
    "ovens": 8_000,
    "insurance": 10_000,
    "leasing": 12_000,
}
SENTENCES = (
    "Refunds are paid within nine days after the parcel was scanned at the depot. ",
    "A repair under guarantee needs the serial number and the date of purchase. ",
    "Spare parts are kept in stock for ten years after the last unit was sold. ",
    "A change of address is possible until the parcel has left the warehouse. ",
)


@functools.cache
def handbook(product: str) -> str:
    """The fixed reference text of one product, about HANDBOOK_TOKENS[product] tokens long."""
    length = HANDBOOK_TOKENS[product] * 4
    text = "".join(SENTENCES)
    return f"Handbook for {product}. " + (text * (length // len(text) + 1))[:length]


class Backends:
    """Services that answer after a seeded delay: the same question and seed take equally long in every run."""

    def __init__(self, seed: int, incident: Incident) -> None:
        self.seed = seed
        self.incident = incident

    async def is_allowed(self, question: str) -> bool:
        """The verdict of the input guardrail."""
        await self._answer_after("guard", question)
        return "ignore all previous instructions" not in question.lower()

    async def embed(self, text: str) -> list[float]:
        """A vector of the text."""
        await self._answer_after("embed", text)
        generator = dice(self.seed, "vector", text)
        return [generator.uniform(-1, 1) for _ in range(8)]

    async def search(self, vector: list[float], limit: int) -> list[str]:
        """The `limit` passages nearest to the vector."""
        key = repr(vector)
        await asyncio.sleep(self.search_delay_s(key))
        generator = dice(self.seed, "passages", key)
        return [generator.choice(SENTENCES) * generator.randint(3, 18) for _ in range(limit)]

    async def rerank(self, question: str, passages: list[str], limit: int) -> list[str]:
        """The best `limit` passages, best first."""
        await self._answer_after("rerank", question)
        return dice(self.seed, "order of passages", question).sample(passages, limit)

    async def order_status(self, order: str) -> str:
        """Where an order is."""
        await self._answer_after("order", order)
        return f"Order {order} left the warehouse."

    async def format(self, answer: str) -> str:
        """The answer as it is stored and shown."""
        await self._answer_after("format", answer)
        return answer.strip()

    def search_delay_s(self, key: str) -> float:
        """How long one vector search takes now: a share of them is seconds slower during `slow-retrieval`."""
        generator = dice(self.seed, "search", key)
        delay_s = lognormal(generator, *DELAYS["search"])
        if self.incident.active("slow-retrieval") and generator.random() < SLOW_SEARCH_SHARE:
            delay_s += lognormal(generator, *SLOW_SEARCH)
        return delay_s

    async def _answer_after(self, stage: str, key: str) -> None:
        await asyncio.sleep(lognormal(dice(self.seed, stage, key), *DELAYS[stage]))
