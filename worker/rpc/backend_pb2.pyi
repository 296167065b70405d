from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HealthMessage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Result(_message.Message):
    __slots__ = ("message", "success")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    message: str
    success: bool
    def __init__(self, message: _Optional[str] = ..., success: _Optional[bool] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("message", "tokens", "prompt_tokens", "timing_prompt_processing", "timing_token_generation", "audio", "logprobs", "chat_deltas")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMING_PROMPT_PROCESSING_FIELD_NUMBER: _ClassVar[int]
    TIMING_TOKEN_GENERATION_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CHAT_DELTAS_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    tokens: int
    prompt_tokens: int
    timing_prompt_processing: float
    timing_token_generation: float
    audio: bytes
    logprobs: bytes
    chat_deltas: _containers.RepeatedCompositeFieldContainer[ChatDelta]
    def __init__(self, message: _Optional[bytes] = ..., tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., timing_prompt_processing: _Optional[float] = ..., timing_token_generation: _Optional[float] = ..., audio: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., chat_deltas: _Optional[_Iterable[_Union[ChatDelta, _Mapping]]] = ...) -> None: ...

class ChatDelta(_message.Message):
    __slots__ = ("content", "reasoning_content", "tool_calls")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REASONING_CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    content: str
    reasoning_content: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCallDelta]
    def __init__(self, content: _Optional[str] = ..., reasoning_content: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCallDelta, _Mapping]]] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "id", "name", "arguments")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("state", "memory")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNINITIALIZED: _ClassVar[StatusResponse.State]
        BUSY: _ClassVar[StatusResponse.State]
        READY: _ClassVar[StatusResponse.State]
        ERROR: _ClassVar[StatusResponse.State]
    UNINITIALIZED: StatusResponse.State
    BUSY: StatusResponse.State
    READY: StatusResponse.State
    ERROR: StatusResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    state: StatusResponse.State
    memory: MemoryUsageData
    def __init__(self, state: _Optional[_Union[StatusResponse.State, str]] = ..., memory: _Optional[_Union[MemoryUsageData, _Mapping]] = ...) -> None: ...

class MemoryUsageData(_message.Message):
    __slots__ = ("total", "breakdown")
    class BreakdownEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    BREAKDOWN_FIELD_NUMBER: _ClassVar[int]
    total: int
    breakdown: _containers.ScalarMap[str, int]
    def __init__(self, total: _Optional[int] = ..., breakdown: _Optional[_Mapping[str, int]] = ...) -> None: ...

class EmbeddingResult(_message.Message):
    __slots__ = ("embeddings", "tokens", "dim", "prompt_tokens", "layout")
    class Layout(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[EmbeddingResult.Layout]
        FINAL: _ClassVar[EmbeddingResult.Layout]
        PER_TOKEN: _ClassVar[EmbeddingResult.Layout]
    UNSPECIFIED: EmbeddingResult.Layout
    FINAL: EmbeddingResult.Layout
    PER_TOKEN: EmbeddingResult.Layout
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    embeddings: _containers.RepeatedScalarFieldContainer[float]
    tokens: int
    dim: int
    prompt_tokens: int
    layout: EmbeddingResult.Layout
    def __init__(self, embeddings: _Optional[_Iterable[float]] = ..., tokens: _Optional[int] = ..., dim: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., layout: _Optional[_Union[EmbeddingResult.Layout, str]] = ...) -> None: ...

class TokenizationResponse(_message.Message):
    __slots__ = ("length", "tokens")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    length: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, length: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "content", "name", "tool_call_id", "reasoning_content", "tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    REASONING_CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    name: str
    tool_call_id: str
    reasoning_content: str
    tool_calls: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., name: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., reasoning_content: _Optional[str] = ..., tool_calls: _Optional[str] = ...) -> None: ...

class GrammarTrigger(_message.Message):
    __slots__ = ("word",)
    WORD_FIELD_NUMBER: _ClassVar[int]
    word: str
    def __init__(self, word: _Optional[str] = ...) -> None: ...

class ProxyOptions(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelOptions(_message.Message):
    __slots__ = ("Model", "ContextSize", "Seed", "NBatch", "F16Memory", "MLock", "MMap", "VocabOnly", "LowVRAM", "Embeddings", "NUMA", "NGPULayers", "MainGPU", "TensorSplit", "Threads", "RopeFreqBase", "RopeFreqScale", "RMSNormEps", "NGQA", "ModelFile", "PipelineType", "SchedulerType", "CUDA", "CFGScale", "IMG2IMG", "CLIPModel", "CLIPSubfolder", "CLIPSkip", "Tokenizer", "LoraBase", "LoraAdapter", "NoMulMatQ", "AudioPath", "DraftModel", "Quantization", "MMProj", "LoraScale", "RopeScaling", "YarnExtFactor", "YarnAttnFactor", "YarnBetaFast", "YarnBetaSlow", "ControlNet", "Type", "GPUMemoryUtilization", "TrustRemoteCode", "EnforceEager", "SwapSpace", "MaxModelLen", "TensorParallelSize", "FlashAttention", "NoKVOffload", "LoadFormat", "ModelPath", "LoraAdapters", "LoraScales", "Options", "CacheTypeKey", "CacheTypeValue", "GrammarTriggers", "DisableLogStatus", "DType", "LimitImagePerPrompt", "LimitVideoPerPrompt", "LimitAudioPerPrompt", "Reranking", "Overrides", "EngineArgs", "Proxy", "EnableScore")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXTSIZE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NBATCH_FIELD_NUMBER: _ClassVar[int]
    F16MEMORY_FIELD_NUMBER: _ClassVar[int]
    MLOCK_FIELD_NUMBER: _ClassVar[int]
    MMAP_FIELD_NUMBER: _ClassVar[int]
    VOCABONLY_FIELD_NUMBER: _ClassVar[int]
    LOWVRAM_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    NGPULAYERS_FIELD_NUMBER: _ClassVar[int]
    MAINGPU_FIELD_NUMBER: _ClassVar[int]
    TENSORSPLIT_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    ROPEFREQBASE_FIELD_NUMBER: _ClassVar[int]
    ROPEFREQSCALE_FIELD_NUMBER: _ClassVar[int]
    RMSNORMEPS_FIELD_NUMBER: _ClassVar[int]
    NGQA_FIELD_NUMBER: _ClassVar[int]
    MODELFILE_FIELD_NUMBER: _ClassVar[int]
    PIPELINETYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULERTYPE_FIELD_NUMBER: _ClassVar[int]
    CUDA_FIELD_NUMBER: _ClassVar[int]
    CFGSCALE_FIELD_NUMBER: _ClassVar[int]
    IMG2IMG_FIELD_NUMBER: _ClassVar[int]
    CLIPMODEL_FIELD_NUMBER: _ClassVar[int]
    CLIPSUBFOLDER_FIELD_NUMBER: _ClassVar[int]
    CLIPSKIP_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    LORABASE_FIELD_NUMBER: _ClassVar[int]
    LORAADAPTER_FIELD_NUMBER: _ClassVar[int]
    NOMULMATQ_FIELD_NUMBER: _ClassVar[int]
    AUDIOPATH_FIELD_NUMBER: _ClassVar[int]
    DRAFTMODEL_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    MMPROJ_FIELD_NUMBER: _ClassVar[int]
    LORASCALE_FIELD_NUMBER: _ClassVar[int]
    ROPESCALING_FIELD_NUMBER: _ClassVar[int]
    YARNEXTFACTOR_FIELD_NUMBER: _ClassVar[int]
    YARNATTNFACTOR_FIELD_NUMBER: _ClassVar[int]
    YARNBETAFAST_FIELD_NUMBER: _ClassVar[int]
    YARNBETASLOW_FIELD_NUMBER: _ClassVar[int]
    CONTROLNET_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GPUMEMORYUTILIZATION_FIELD_NUMBER: _ClassVar[int]
    TRUSTREMOTECODE_FIELD_NUMBER: _ClassVar[int]
    ENFORCEEAGER_FIELD_NUMBER: _ClassVar[int]
    SWAPSPACE_FIELD_NUMBER: _ClassVar[int]
    MAXMODELLEN_FIELD_NUMBER: _ClassVar[int]
    TENSORPARALLELSIZE_FIELD_NUMBER: _ClassVar[int]
    FLASHATTENTION_FIELD_NUMBER: _ClassVar[int]
    NOKVOFFLOAD_FIELD_NUMBER: _ClassVar[int]
    LOADFORMAT_FIELD_NUMBER: _ClassVar[int]
    MODELPATH_FIELD_NUMBER: _ClassVar[int]
    LORAADAPTERS_FIELD_NUMBER: _ClassVar[int]
    LORASCALES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CACHETYPEKEY_FIELD_NUMBER: _ClassVar[int]
    CACHETYPEVALUE_FIELD_NUMBER: _ClassVar[int]
    GRAMMARTRIGGERS_FIELD_NUMBER: _ClassVar[int]
    DISABLELOGSTATUS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LIMITIMAGEPERPROMPT_FIELD_NUMBER: _ClassVar[int]
    LIMITVIDEOPERPROMPT_FIELD_NUMBER: _ClassVar[int]
    LIMITAUDIOPERPROMPT_FIELD_NUMBER: _ClassVar[int]
    RERANKING_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    ENGINEARGS_FIELD_NUMBER: _ClassVar[int]
    PROXY_FIELD_NUMBER: _ClassVar[int]
    ENABLESCORE_FIELD_NUMBER: _ClassVar[int]
    Model: str
    ContextSize: int
    Seed: int
    NBatch: int
    F16Memory: bool
    MLock: bool
    MMap: bool
    VocabOnly: bool
    LowVRAM: bool
    Embeddings: bool
    NUMA: bool
    NGPULayers: int
    MainGPU: str
    TensorSplit: str
    Threads: int
    RopeFreqBase: float
    RopeFreqScale: float
    RMSNormEps: float
    NGQA: int
    ModelFile: str
    PipelineType: str
    SchedulerType: str
    CUDA: bool
    CFGScale: float
    IMG2IMG: bool
    CLIPModel: str
    CLIPSubfolder: str
    CLIPSkip: int
    Tokenizer: str
    LoraBase: str
    LoraAdapter: str
    NoMulMatQ: bool
    AudioPath: str
    DraftModel: str
    Quantization: str
    MMProj: str
    LoraScale: float
    RopeScaling: str
    YarnExtFactor: float
    YarnAttnFactor: float
    YarnBetaFast: float
    YarnBetaSlow: float
    ControlNet: str
    Type: str
    GPUMemoryUtilization: float
    TrustRemoteCode: bool
    EnforceEager: bool
    SwapSpace: int
    MaxModelLen: int
    TensorParallelSize: int
    FlashAttention: str
    NoKVOffload: bool
    LoadFormat: str
    ModelPath: str
    LoraAdapters: _containers.RepeatedScalarFieldContainer[str]
    LoraScales: _containers.RepeatedScalarFieldContainer[float]
    Options: _containers.RepeatedScalarFieldContainer[str]
    CacheTypeKey: str
    CacheTypeValue: str
    GrammarTriggers: _containers.RepeatedCompositeFieldContainer[GrammarTrigger]
    DisableLogStatus: bool
    DType: str
    LimitImagePerPrompt: int
    LimitVideoPerPrompt: int
    LimitAudioPerPrompt: int
    Reranking: bool
    Overrides: _containers.RepeatedScalarFieldContainer[str]
    EngineArgs: str
    Proxy: ProxyOptions
    EnableScore: bool
    def __init__(self, Model: _Optional[str] = ..., ContextSize: _Optional[int] = ..., Seed: _Optional[int] = ..., NBatch: _Optional[int] = ..., F16Memory: _Optional[bool] = ..., MLock: _Optional[bool] = ..., MMap: _Optional[bool] = ..., VocabOnly: _Optional[bool] = ..., LowVRAM: _Optional[bool] = ..., Embeddings: _Optional[bool] = ..., NUMA: _Optional[bool] = ..., NGPULayers: _Optional[int] = ..., MainGPU: _Optional[str] = ..., TensorSplit: _Optional[str] = ..., Threads: _Optional[int] = ..., RopeFreqBase: _Optional[float] = ..., RopeFreqScale: _Optional[float] = ..., RMSNormEps: _Optional[float] = ..., NGQA: _Optional[int] = ..., ModelFile: _Optional[str] = ..., PipelineType: _Optional[str] = ..., SchedulerType: _Optional[str] = ..., CUDA: _Optional[bool] = ..., CFGScale: _Optional[float] = ..., IMG2IMG: _Optional[bool] = ..., CLIPModel: _Optional[str] = ..., CLIPSubfolder: _Optional[str] = ..., CLIPSkip: _Optional[int] = ..., Tokenizer: _Optional[str] = ..., LoraBase: _Optional[str] = ..., LoraAdapter: _Optional[str] = ..., NoMulMatQ: _Optional[bool] = ..., AudioPath: _Optional[str] = ..., DraftModel: _Optional[str] = ..., Quantization: _Optional[str] = ..., MMProj: _Optional[str] = ..., LoraScale: _Optional[float] = ..., RopeScaling: _Optional[str] = ..., YarnExtFactor: _Optional[float] = ..., YarnAttnFactor: _Optional[float] = ..., YarnBetaFast: _Optional[float] = ..., YarnBetaSlow: _Optional[float] = ..., ControlNet: _Optional[str] = ..., Type: _Optional[str] = ..., GPUMemoryUtilization: _Optional[float] = ..., TrustRemoteCode: _Optional[bool] = ..., EnforceEager: _Optional[bool] = ..., SwapSpace: _Optional[int] = ..., MaxModelLen: _Optional[int] = ..., TensorParallelSize: _Optional[int] = ..., FlashAttention: _Optional[str] = ..., NoKVOffload: _Optional[bool] = ..., LoadFormat: _Optional[str] = ..., ModelPath: _Optional[str] = ..., LoraAdapters: _Optional[_Iterable[str]] = ..., LoraScales: _Optional[_Iterable[float]] = ..., Options: _Optional[_Iterable[str]] = ..., CacheTypeKey: _Optional[str] = ..., CacheTypeValue: _Optional[str] = ..., GrammarTriggers: _Optional[_Iterable[_Union[GrammarTrigger, _Mapping]]] = ..., DisableLogStatus: _Optional[bool] = ..., DType: _Optional[str] = ..., LimitImagePerPrompt: _Optional[int] = ..., LimitVideoPerPrompt: _Optional[int] = ..., LimitAudioPerPrompt: _Optional[int] = ..., Reranking: _Optional[bool] = ..., Overrides: _Optional[_Iterable[str]] = ..., EngineArgs: _Optional[str] = ..., Proxy: _Optional[_Union[ProxyOptions, _Mapping]] = ..., EnableScore: _Optional[bool] = ...) -> None: ...

class PredictOptions(_message.Message):
    __slots__ = ("Prompt", "Seed", "Threads", "Tokens", "TopK", "Repeat", "Batch", "NKeep", "Temperature", "Penalty", "F16KV", "DebugMode", "StopPrompts", "IgnoreEOS", "TailFreeSamplingZ", "TypicalP", "FrequencyPenalty", "PresencePenalty", "Mirostat", "MirostatETA", "MirostatTAU", "PenalizeNL", "LogitBias", "MLock", "MMap", "PromptCacheAll", "PromptCacheRO", "Grammar", "MainGPU", "TensorSplit", "TopP", "PromptCachePath", "Debug", "EmbeddingTokens", "Embeddings", "RopeFreqBase", "RopeFreqScale", "NegativePromptScale", "NegativePrompt", "NDraft", "Images", "UseTokenizerTemplate", "Messages", "Videos", "Audios", "CorrelationId", "Tools", "ToolChoice", "Logprobs", "TopLogprobs", "Metadata", "MinP", "ModelIdentity")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOPK_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NKEEP_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    F16KV_FIELD_NUMBER: _ClassVar[int]
    DEBUGMODE_FIELD_NUMBER: _ClassVar[int]
    STOPPROMPTS_FIELD_NUMBER: _ClassVar[int]
    IGNOREEOS_FIELD_NUMBER: _ClassVar[int]
    TAILFREESAMPLINGZ_FIELD_NUMBER: _ClassVar[int]
    TYPICALP_FIELD_NUMBER: _ClassVar[int]
    FREQUENCYPENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCEPENALTY_FIELD_NUMBER: _ClassVar[int]
    MIROSTAT_FIELD_NUMBER: _ClassVar[int]
    MIROSTATETA_FIELD_NUMBER: _ClassVar[int]
    MIROSTATTAU_FIELD_NUMBER: _ClassVar[int]
    PENALIZENL_FIELD_NUMBER: _ClassVar[int]
    LOGITBIAS_FIELD_NUMBER: _ClassVar[int]
    MLOCK_FIELD_NUMBER: _ClassVar[int]
    MMAP_FIELD_NUMBER: _ClassVar[int]
    PROMPTCACHEALL_FIELD_NUMBER: _ClassVar[int]
    PROMPTCACHERO_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    MAINGPU_FIELD_NUMBER: _ClassVar[int]
    TENSORSPLIT_FIELD_NUMBER: _ClassVar[int]
    TOPP_FIELD_NUMBER: _ClassVar[int]
    PROMPTCACHEPATH_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGTOKENS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    ROPEFREQBASE_FIELD_NUMBER: _ClassVar[int]
    ROPEFREQSCALE_FIELD_NUMBER: _ClassVar[int]
    NEGATIVEPROMPTSCALE_FIELD_NUMBER: _ClassVar[int]
    NEGATIVEPROMPT_FIELD_NUMBER: _ClassVar[int]
    NDRAFT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    USETOKENIZERTEMPLATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    VIDEOS_FIELD_NUMBER: _ClassVar[int]
    AUDIOS_FIELD_NUMBER: _ClassVar[int]
    CORRELATIONID_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOLCHOICE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOPLOGPROBS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MINP_FIELD_NUMBER: _ClassVar[int]
    MODELIDENTITY_FIELD_NUMBER: _ClassVar[int]
    Prompt: str
    Seed: int
    Threads: int
    Tokens: int
    TopK: int
    Repeat: int
    Batch: int
    NKeep: int
    Temperature: float
    Penalty: float
    F16KV: bool
    DebugMode: bool
    StopPrompts: _containers.RepeatedScalarFieldContainer[str]
    IgnoreEOS: bool
    TailFreeSamplingZ: float
    TypicalP: float
    FrequencyPenalty: float
    PresencePenalty: float
    Mirostat: int
    MirostatETA: float
    MirostatTAU: float
    PenalizeNL: bool
    LogitBias: str
    MLock: bool
    MMap: bool
    PromptCacheAll: bool
    PromptCacheRO: bool
    Grammar: str
    MainGPU: str
    TensorSplit: str
    TopP: float
    PromptCachePath: str
    Debug: bool
    EmbeddingTokens: _containers.RepeatedScalarFieldContainer[int]
    Embeddings: str
    RopeFreqBase: float
    RopeFreqScale: float
    NegativePromptScale: float
    NegativePrompt: str
    NDraft: int
    Images: _containers.RepeatedScalarFieldContainer[str]
    UseTokenizerTemplate: bool
    Messages: _containers.RepeatedCompositeFieldContainer[Message]
    Videos: _containers.RepeatedScalarFieldContainer[str]
    Audios: _containers.RepeatedScalarFieldContainer[str]
    CorrelationId: str
    Tools: str
    ToolChoice: str
    Logprobs: int
    TopLogprobs: int
    Metadata: _containers.ScalarMap[str, str]
    MinP: float
    ModelIdentity: str
    def __init__(self, Prompt: _Optional[str] = ..., Seed: _Optional[int] = ..., Threads: _Optional[int] = ..., Tokens: _Optional[int] = ..., TopK: _Optional[int] = ..., Repeat: _Optional[int] = ..., Batch: _Optional[int] = ..., NKeep: _Optional[int] = ..., Temperature: _Optional[float] = ..., Penalty: _Optional[float] = ..., F16KV: _Optional[bool] = ..., DebugMode: _Optional[bool] = ..., StopPrompts: _Optional[_Iterable[str]] = ..., IgnoreEOS: _Optional[bool] = ..., TailFreeSamplingZ: _Optional[float] = ..., TypicalP: _Optional[float] = ..., FrequencyPenalty: _Optional[float] = ..., PresencePenalty: _Optional[float] = ..., Mirostat: _Optional[int] = ..., MirostatETA: _Optional[float] = ..., MirostatTAU: _Optional[float] = ..., PenalizeNL: _Optional[bool] = ..., LogitBias: _Optional[str] = ..., MLock: _Optional[bool] = ..., MMap: _Optional[bool] = ..., PromptCacheAll: _Optional[bool] = ..., PromptCacheRO: _Optional[bool] = ..., Grammar: _Optional[str] = ..., MainGPU: _Optional[str] = ..., TensorSplit: _Optional[str] = ..., TopP: _Optional[float] = ..., PromptCachePath: _Optional[str] = ..., Debug: _Optional[bool] = ..., EmbeddingTokens: _Optional[_Iterable[int]] = ..., Embeddings: _Optional[str] = ..., RopeFreqBase: _Optional[float] = ..., RopeFreqScale: _Optional[float] = ..., NegativePromptScale: _Optional[float] = ..., NegativePrompt: _Optional[str] = ..., NDraft: _Optional[int] = ..., Images: _Optional[_Iterable[str]] = ..., UseTokenizerTemplate: _Optional[bool] = ..., Messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., Videos: _Optional[_Iterable[str]] = ..., Audios: _Optional[_Iterable[str]] = ..., CorrelationId: _Optional[str] = ..., Tools: _Optional[str] = ..., ToolChoice: _Optional[str] = ..., Logprobs: _Optional[int] = ..., TopLogprobs: _Optional[int] = ..., Metadata: _Optional[_Mapping[str, str]] = ..., MinP: _Optional[float] = ..., ModelIdentity: _Optional[str] = ...) -> None: ...
