"""An executor that runs Hugging Face checkpoints with PyTorch: real tensors behind every block id (extra ``torch``).

load_engine(folder, ...)  ->  EngineCore(Scheduler, TorchExecutor)

TorchExecutor   one thread that runs steps in order; what it needs of the request table it copies when a step begins
ModelRunner     a plan -> a flattened batch -> logits -> tokens
BlockBatch      which positions and blocks the step's rows read and write, per KV-cache group
KVTensors       the blocks themselves
RequestRows     tokens and sampling of every slot
Sampler         logits -> tokens; drafts that equal them are accepted
"""
