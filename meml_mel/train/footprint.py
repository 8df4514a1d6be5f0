"""What a model's config.json alone tells: its context, its parameters, and a rough memory need per device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Sharding = Literal["none", "zero1", "zero2", "full"]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2, None: 4}
TILE = (4096, 32768)  # tokens x vocabulary that TRL's fused head projects at once (trl/kernels)
# (in, out) features of a decoder layer's linear maps, by the names that PEFT targets.
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class ModelFacts:
    """Sizes from a config.json of a Llama-like decoder; None where the file does not say."""

    source: str  # where they were read, or why they are not known
    context: int | None = None  # max_position_embeddings, tokens
    hidden: int | None = None
    layers: int | None = None
    vocabulary: int | None = None
    intermediate: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    tied: bool = False
    attention_bias: bool = False
    qk_norm: bool = False

    @property
    def complete(self) -> bool:
        needed = (self.hidden, self.layers, self.vocabulary, self.intermediate, self.heads)
        return all(value is not None for value in needed)

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer. Needs `complete`."""
        hidden, inter, query = self.hidden or 0, self.intermediate or 0, self._dim * (self.heads or 0)
        key = self._dim * (self.kv_heads or self.heads or 0)
        shapes = [(hidden, query), (hidden, key), (hidden, key), (query, hidden)]
        shapes += [(hidden, inter), (hidden, inter), (inter, hidden)]
        return dict(zip(LINEAR, shapes, strict=True))

    @property
    def _dim(self) -> int:
        return self.head_dim or (self.hidden or 0) // (self.heads or 1)

    def parameters(self) -> int | None:
        """Parameters of a dense decoder with a gated MLP and RMS norms; None where the file is not enough."""
        if not self.complete:
            return None
        shapes = self.linear_shapes()
        layer = sum(i * o for i, o in shapes.values()) + 2 * (self.hidden or 0)
        if self.attention_bias:
            layer += sum(shapes[name][1] for name in ("q_proj", "k_proj", "v_proj"))
        if self.qk_norm:
            layer += 2 * self._dim
        embeddings = (self.vocabulary or 0) * (self.hidden or 0) * (1 if self.tied else 2)
        return embeddings + (self.layers or 0) * layer + (self.hidden or 0)

    def kv_bytes_per_token(self, width: int) -> int:
        """Key and value cache of one token over all layers, `width` bytes a number. Needs `complete`."""
        return 2 * (self.layers or 0) * self._dim * (self.kv_heads or self.heads or 0) * width


def facts_from_config(config: Mapping[str, Any], source: str) -> ModelFacts:
    """Read a parsed config.json; a multimodal model's `text_config` is what counts."""
    text = {**config, **config.get("text_config", {})}
    kind = str(text.get("model_type", ""))
    return ModelFacts(
        source=source,
        context=text.get("max_position_embeddings"),
        hidden=text.get("hidden_size"),
        layers=text.get("num_hidden_layers"),
        vocabulary=text.get("vocab_size"),
        intermediate=text.get("intermediate_size"),
        heads=text.get("num_attention_heads"),
        kv_heads=text.get("num_key_value_heads"),
        head_dim=text.get("head_dim"),
        tied=bool(text.get("tie_word_embeddings", True)),  # transformers' own default
        attention_bias=bool(text.get("attention_bias", kind == "qwen2")),
        qk_norm=kind in ("qwen3", "gemma3_text"),
    )


def model_facts(name: str | None, revision: str | None = None) -> ModelFacts:
    """From a local folder, else from the Hub's cache on this disk, else unknown. Never asks the network."""
    if not name:
        return ModelFacts("no model is named")
    file: Path | None = Path(name) / "config.json"
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        return ModelFacts(f"no config.json in {name}")
    source = "the local folder"
    if not Path(name).is_dir():
        file, source = _cached(name, revision), "the Hub's cache"
    if file is None:
        return ModelFacts(f"{name} is not on this disk; its context and size are not known before a download")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return ModelFacts(f"config.json of {name} can't be read: {error}")
    return facts_from_config(config, source)


def _cached(name: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


@dataclass(frozen=True)
class Memory:
    """Bytes on one device, and the sentences that belong to the estimate."""

    parts: Mapping[str, float]
    peak: float
    notes: tuple[str, ...] = field(default=())


def estimate_memory(
    facts: ModelFacts,
    model: Mapping[str, Any],
    trl: Mapping[str, Any],
    *,
    train_tokens: int,
    kl_tokens: int = 0,
    cache_tokens: int,
    processes: int = 1,
    sharding: Sharding = "none",
) -> Memory | None:
    """A rough need per device, to tell 20 GB from 200; None where the model's sizes are not known.

    With N parameters, T trainable ones (N, or LoRA's r * (in + out) per target), w bytes a weight, a bytes an
    activation (2 with bf16 or fp16, else 4):

        weights      N * w (+ N * 2 for autocast's copies of float32 weights), a reference model N * w
        gradients    T * w
        optimizer    T * 2 * w (AdamW), T * 2 (8-bit), 0 (Adafactor, SGD)
        activations  tokens * hidden * layers * a + one layer's tokens * (10 * hidden + 4 * intermediate) * a
                     with gradient checkpointing; every layer's without. Attention scores are not kept.
        logits       one tile of TRL's fused head, 4096 tokens x 32768 entries * a; with a KL term, its target
                     tokens * vocabulary * 4 * 4 (teacher and learner, values and gradient)
        cache        tokens in generation * 2 * layers * kv heads * head size * a
        peak         weights + optimizer + max(gradients + activations + logits, cache)

    Full sharding (FSDP, ZeRO-3) divides weights, gradients and optimizer by the processes; ZeRO-2 the last two;
    ZeRO-1 the last. Fragmentation and libraries' own buffers are not in it.

    Args:
        train_tokens: tokens in one backward on one device.
        kl_tokens: target tokens of one KL example (mutual_learning with form kl); 0 without.
        cache_tokens: tokens held while generating on one device; 0 where vLLM generates.
    """
    count = facts.parameters()
    if count is None:
        return None
    peft, width = bool(model.get("use_peft")), BYTES.get(model.get("dtype"), 4)
    if model.get("load_in_4bit") or model.get("load_in_8bit"):
        width = 1
    mixed = bool(trl.get("fp16")) or trl.get("bf16") in (None, True)
    activation = 2 if mixed else 4
    trainable = _lora_parameters(facts, model) if peft else count
    trained_width = 4 if peft else width
    optimizer = str(trl.get("optim", "adamw"))
    state = (
        2 if "8bit" in optimizer else 0 if optimizer.startswith(("adafactor", "sgd")) else 2 * trained_width
    )
    share = max(1, processes)
    weights = count * width / (share if sharding == "full" else 1)
    copies = count * 2 if mixed and width == 4 and sharding != "full" else 0
    hidden, layers, vocabulary = facts.hidden or 0, facts.layers or 0, facts.vocabulary or 0
    tile = min(train_tokens, TILE[0]) * min(vocabulary, TILE[1])
    layer = (10 * hidden + 4 * (facts.intermediate or 0)) * train_tokens * activation
    kept = layers * hidden * train_tokens * activation
    parts = {
        "weights": weights + copies,
        "reference model": count * width if trl.get("beta") and not peft else 0,
        "optimizer": trainable * state / (share if sharding != "none" else 1),
        "gradients": trainable * trained_width / (share if sharding in ("zero2", "full") else 1),
        "activations": kept + layer if trl.get("gradient_checkpointing", True) else layer * layers,
        "logits": max(tile * activation, kl_tokens * vocabulary * 4 * 4),
        "generation cache": cache_tokens * facts.kv_bytes_per_token(activation),
    }
    backward = parts["gradients"] + parts["activations"] + parts["logits"]
    still = parts["weights"] + parts["reference model"] + parts["optimizer"]
    notes = []
    if trl.get("use_vllm") and trl.get("vllm_mode") == "colocate":
        notes.append(f"vLLM beside it takes {trl['vllm_gpu_memory_utilization']:.0%} of the device's memory")
    if peft:
        notes.append(f"LoRA trains about {trainable / 1e6:.1f}M parameters")
    return Memory(parts, still + max(backward, parts["generation cache"]), tuple(notes))


def _lora_parameters(facts: ModelFacts, model: Mapping[str, Any]) -> int:
    targets = model.get("lora_target_modules") or ["q_proj", "v_proj"]  # PEFT's default for these families
    names = [targets] if isinstance(targets, str) else list(targets)
    shapes = facts.linear_shapes()
    chosen = shapes.values() if "all-linear" in names else [shapes[n] for n in names if n in shapes]
    return int(model.get("lora_r", 16)) * (facts.layers or 0) * sum(i + o for i, o in chosen)
