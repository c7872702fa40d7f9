// Streamed answers of the AI SDK, with one tool.
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: "none" });
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
for (let i = 0; i < 60; i++) {
  const answer = streamText({
    model: openai.chat("tiny"),
    prompt: "How is the weather in Vienna?",
    tools: { weather },
    stopWhen: stepCountIs(3),
  });
  for await (const _ of answer.textStream);
}
