"""Between text and token ids: a model's tokenizer, output piece by piece, stop strings, chat templates."""
