"""Settings of a deployment by name.

Made by scripts/generate_keywords.py: change it there. Only type checkers and editors load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

Text: TypeAlias = str | float | PathLike[str] | Mapping[str, Any] | Sequence[Any]
"""A text, or what becomes one: a number, a path, JSON."""


class DeploymentKeywords(TypedDict, total=False):
    """Our settings, and the flags of vLLM."""

    acceptance: Any
    acceptance_rates: Text | None
    additional_config: Any
    aggregate_engine_logging: Any
    all2all_backend: Any
    allow_credentials: Any
    allow_deprecated_quantization: Any
    allowed_headers: Any
    allowed_local_media_path: Any
    allowed_media_domains: Any
    allowed_methods: Any
    allowed_origins: Any
    anthropic_disabled_thinking_effort: Any
    api_key: Any
    api_server_count: int | str | None
    async_scheduling: bool | None
    attention_backend: Any
    attention_config: Any
    autoscale: Text | None
    aux_output_config: Any
    block_size: int | str | None
    calculate_kv_scales: Any
    chat_template: Any
    chat_template_content_format: Any
    code_revision: Any
    cohere_format: Any
    cohere_is_reasoning_model: Any
    collect_detailed_traces: Any
    compilation_config: Any
    config_format: Any
    convert: Any
    cp_kv_cache_interleave_size: Any
    cpu_distributed_timeout_seconds: Any
    cpu_offload_gb: Any
    cpu_offload_params: Any
    cuda_graph_sizes: Any
    cudagraph_capture_sizes: Sequence[int] | str | None
    cudagraph_metrics: Any
    custom_histogram_buckets: Any
    data_parallel_address: Any
    data_parallel_backend: Any
    data_parallel_external_lb: Any
    data_parallel_hybrid_lb: Any
    data_parallel_multi_port_external_lb: Any
    data_parallel_rank: Any
    data_parallel_rpc_port: Any
    data_parallel_size: int | str | None
    data_parallel_size_local: int | str | None
    data_parallel_start_rank: Any
    data_parallel_supervisor_port: Any
    dbo_decode_token_threshold: Any
    dbo_prefill_token_threshold: Any
    dcp_comm_backend: Any
    dcp_kv_cache_interleave_size: Any
    dcp_q_replicate: Any
    decode_context_parallel_size: int | str | None
    default_chat_template_kwargs: Any
    default_mm_loras: Any
    device: Any
    device_ids: Any
    diffusion_config: Any
    disable_access_log_for_endpoints: Any
    disable_cascade_attn: Any
    disable_chunked_mm_input: bool | None
    disable_custom_all_reduce: Any
    disable_fastapi_docs: Any
    disable_frontend_multiprocessing: Any
    disable_hybrid_kv_cache_manager: Any
    disable_log_stats: Any
    disable_mm_preprocessor_cache: Any
    disable_nccl_for_dp_synchronization: Any
    disable_sliding_window: Any
    disable_uvicorn_access_log: Any
    distributed_executor_backend: Text | None
    distributed_timeout_seconds: Any
    download_dir: Any
    dp: Any
    dp_supervisor_probe_failure_threshold: Any
    dp_supervisor_probe_interval_s: Any
    dp_supervisor_probe_timeout_s: Any
    dp_sync_interval: Any
    dtype: Text | None
    ec_manager_config: Any
    ec_transfer_config: Any
    elastic_ep_max_dp_size: Any
    enable_auto_tool_choice: Any
    enable_batch_sharded_sampling: Any
    enable_bf16x3_router_gemm: Any
    enable_chunked_prefill: bool | None
    enable_cumem_allocator: Any
    enable_dbo: Any
    enable_elastic_ep: Any
    enable_ep_weight_filter: Any
    enable_eplb: Any
    enable_expert_parallel: bool | None
    enable_fault_tolerance: Any
    enable_flash_late_interaction: Any
    enable_flashinfer_autotune: Any
    enable_force_include_usage: Any
    enable_hc_sp: Any
    enable_layerwise_nvtx_tracing: Any
    enable_log_deltas: Any
    enable_log_outputs: Any
    enable_log_requests: Any
    enable_logging_iteration_details: Any
    enable_lora: bool | None
    enable_mamba_cache_stochastic_rounding: Any
    enable_mamba_fine_grained_prefix_cache: Any
    enable_mamba_shared_prefix_checkpoint: Any
    enable_mfu_metrics: Any
    enable_mixed_moe_lora_format: Any
    enable_mm_embeds: Any
    enable_moe_shared_loras: Any
    enable_multimodal_encoder_data_parallel: Any
    enable_nccl_comm_suspend: Any
    enable_offline_docs: Any
    enable_per_request_metrics: Any
    enable_prefix_caching: bool | None
    enable_prompt_embeds: Any
    enable_prompt_tokens_details: Any
    enable_reasoning: Any
    enable_request_id_headers: Any
    enable_return_routed_experts: Any
    enable_scale_out: Any
    enable_server_load_tracking: Any
    enable_shm_tensor_arena: Any
    enable_sleep_mode: Any
    enable_ssl_refresh: Any
    enable_tokenizer_info_endpoint: Any
    enable_tower_connector_lora: Any
    enable_trace_replay: Any
    enforce_eager: bool | None
    engine_use_ray: Any
    engram_config: Any
    eplb_config: Any
    eviction: object
    exclude_tools_when_tool_choice_none: Any
    expert_placement_strategy: Any
    fail_on_environ_validation: Any
    fault_tolerance_config: Any
    fingerprint_mode: Any
    fingerprint_value: Any
    fully_sharded_loras: Any
    gdn_prefill_backend: Any
    generation_config: Any
    gpu: Text | None
    gpu_memory_utilization: float | str | None
    grpc: Any
    grpc_port: Any
    guided_decoding_backend: Any
    h11_max_header_count: Any
    h11_max_incomplete_event_size: Any
    headless: Any
    hf_config_path: Any
    hf_overrides: Text | None
    hf_token: Any
    host: Any
    host_speed: float | str | None
    ignore_patterns: Any
    ignore_unmodelled: bool | None
    interleave_mm_strings: Any
    io_processor_plugin: Any
    ir_op_priority: Any
    jit_monitor_mode: Any
    jit_monitor_verbose: Any
    kda_decode_backend: Any
    kda_prefill_backend: Any
    kernel_config: Any
    kv_cache_dtype: Text | None
    kv_cache_dtype_skip_layers: Any
    kv_cache_memory_bytes: int | str | None
    kv_cache_metrics: Any
    kv_cache_metrics_sample: Any
    kv_events_config: Any
    kv_offloading_backend: Text | None
    kv_offloading_size: float | str | None
    kv_sharing_fast_prefill: Any
    kv_transfer_config: Text | None
    language_model_only: bool | None
    latency: object
    limit_mm_per_prompt: Text | None
    linear_backend: Any
    load_format: Any
    log_config_file: Any
    log_error_stack: Any
    log_level: Any
    logging_config: Any
    logits_processors: Any
    logprobs_mode: Any
    long_prefill_token_threshold: int | str | None
    long_prefill_token_threshold_adaptive: Any
    lora_dtype: Any
    lora_modules: Any
    lora_target_modules: Any
    mamba_backend: Any
    mamba_block_size: Any
    mamba_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] | None
    mamba_cache_mode: Literal["none", "align", "all"] | None
    mamba_cache_philox_rounds: Any
    mamba_ssm_cache_dtype: Literal["auto", "bfloat16", "float16", "float32"] | None
    mamba_ssu_algorithm: Any
    master_addr: Any
    master_port: Any
    max_cpu_loras: int | str | None
    max_cudagraph_capture_size: int | str | None
    max_log_len: Any
    max_logprobs: Any
    max_long_partial_prefills: Any
    max_lora_cls_labels: Any
    max_lora_rank: int | str | None
    max_loras: int | str | None
    max_model_len: int | str | None
    max_num_active_seqs: Any
    max_num_batched_tokens: int | str | None
    max_num_partial_prefills: Any
    max_num_queued_reqs: Any
    max_num_queued_tokens: Any
    max_num_scheduled_tokens: Any
    max_num_seqs: int | str | None
    max_parallel_loading_workers: Any
    max_seq_len_to_capture: Any
    media_io_kwargs: Any
    method: Any
    middleware: Any
    mm_device_do_normalize: Any
    mm_encoder_attn_backend: Any
    mm_encoder_attn_dtype: Any
    mm_encoder_fp8_scale_path: Any
    mm_encoder_fp8_scale_save_margin: Any
    mm_encoder_fp8_scale_save_path: Any
    mm_encoder_only: Any
    mm_encoder_tp_mode: Literal["weights", "data"] | None
    mm_hasher_algorithm: Any
    mm_ipc_gpu_memory_gb: Any
    mm_processor_cache_gb: Any
    mm_processor_cache_type: Any
    mm_processor_device: Any
    mm_processor_kwargs: Text | None
    mm_shm_cache_max_object_size_mb: Any
    mm_tensor_ipc: Any
    model: Text | None
    model_class_overrides: Any
    model_impl: Any
    model_loader_extra_config: Any
    moe_backend: Any
    monokernel: Any
    multi_step_stream_outputs: Any
    nnodes: int | str | None
    node_rank: Any
    num_gpu_blocks: Any
    num_gpu_blocks_override: int | str | None
    num_scheduler_steps: Any
    num_speculative_tokens: int | str | None
    numa_bind: Any
    numa_bind_cpus: Any
    numa_bind_nodes: Any
    offload_backend: Any
    offload_group_size: Any
    offload_num_in_group: Any
    offload_params: Any
    offload_prefetch_step: Any
    omni: Any
    optimization_level: Any
    otlp_traces_endpoint: Any
    override_attention_dtype: Any
    override_generation_config: Any
    per_request_spec_decode_metrics: Any
    performance_mode: Literal["balanced", "interactivity", "throughput"] | None
    pipeline_parallel_size: int | str | None
    policy: Any
    pooler_config: Any
    port: Any
    pp: Any
    preemption_mode: Any
    prefill_context_parallel_size: Any
    prefill_schedule_interval: Any
    prefix_cache_retention_interval: Any
    prefix_caching_hash_algo: str | None
    prefix_match_unit: Any
    profiler_config: Any
    pt_load_map_location: Any
    quantization: Text | None
    quantization_config: Any
    ray_workers_use_nsight: Any
    reasoning_config: Any
    reasoning_effort_map: Any
    reasoning_parser: Any
    reasoning_parser_plugin: Any
    renderer_num_workers: Any
    replayssm_buffer_len: Any
    replicas: int | str | None
    response_role: Any
    return_sampling_mask: Any
    return_tokens_as_token_ids: Any
    revision: Any
    root_path: Any
    rope_scaling: Any
    rope_theta: Any
    router: object
    runner: Text | None
    running_index_drifts: bool | None
    safetensors_load_strategy: Any
    safetensors_prefetch_block_size: Any
    safetensors_prefetch_num_threads: Any
    scale_target: float | str | None
    scheduler_cls: Any
    scheduler_delay_factor: Any
    scheduler_reserve_full_isl: bool | None
    scheduling_policy: Text | None
    seed: Any
    served_model_name: Any
    show_hidden_metrics_for_version: Any
    shutdown_timeout: Any
    skip_mm_profiling: bool | None
    skip_oversized_prefill: bool | None
    skip_tokenizer_init: Any
    sleep_mode_backend: Any
    sleep_mode_offload_cudagraph: Any
    sleep_preserve_parameter_names: Any
    sparse_indexer_topk_backend: Any
    spec_method: Text | None
    spec_model: Any
    spec_tokens: int | str | None
    specialize_active_lora: Any
    speculative_config: Text | None
    speculative_method: str | None
    speculative_model: Any
    sse_keep_alive_interval: Any
    ssl_ca_certs: Any
    ssl_cert_reqs: Any
    ssl_certfile: Any
    ssl_ciphers: Any
    ssl_keyfile: Any
    startup: Text | None
    step_time_factors: Text | None
    stream_interval: Any
    structured_outputs_config: Any
    swa_bounded_replay: Any
    swap_space: Any
    task: Any
    tensor_parallel_size: int | str | None
    tokenizer: Any
    tokenizer_mode: Any
    tokenizer_revision: Any
    tokens_only: Any
    tool_call_parser: Any
    tool_parser_plugin: Any
    tool_server: Any
    tool_strict_level: Any
    tp: Any
    trust_remote_code: Any
    trust_request_chat_template: Any
    trust_request_mm_kwargs: Any
    ubatch_size: Any
    uds: Any
    use_fp64_gumbel: Any
    use_replayssm: Any
    use_tqdm_on_load: Any
    use_v2_block_manager: Any
    uvicorn_log_level: Any
    video_pruning_method: Any
    video_pruning_rate: Any
    vllm_version: Text | None
    watchdog_config: Any
    watermark: float | str | None
    watermark_config: Any
    weight_transfer_config: Any
    worker_cls: Any
    worker_extension_cls: Any
    worker_use_ray: Any
