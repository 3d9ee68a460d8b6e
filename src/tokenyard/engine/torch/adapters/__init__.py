"""LoRA adapters: read from peft's files, applied to the rows of a step that ask for them."""
