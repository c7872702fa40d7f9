"""An independent simulator of LLM applications, inference engines and providers: it knows the truth that a diagnosis has to find."""
