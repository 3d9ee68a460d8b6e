#!/bin/bash
# our server
exec vllm serve Qwen/Qwen3-8B \
  --max-model-len 8192 \
  --gpu-memory-utilization=0.9  # keep
