"""The OpenAI API over an engine: completions, chat, models, and what operators ask for."""
