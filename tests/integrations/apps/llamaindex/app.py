"""Retrieval from three documents, then an answer that the model streams."""

from llama_index.core import Document, Settings, SummaryIndex
from llama_index.llms.openai_like import OpenAILike

Settings.llm = OpenAILike(
    model="tiny", is_chat_model=True, additional_kwargs={"stream_options": {"include_usage": True}}
)
index = SummaryIndex.from_documents([Document(text=f"Parcel {n} is on its way.") for n in range(3)])
engine = index.as_query_engine(streaming=True, response_mode="compact")
for _ in range(60):
    print(engine.query("Where is parcel 2?"))
