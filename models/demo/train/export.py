"""Export: a checkpoint as GGUF, with the names of HF, or as the small checkpoint to go on from.

    python export.py gguf CHECKPOINT ../firsttoken-demo.gguf     (F16, or --q8 for Q8_0)
    python export.py hf CHECKPOINT FOLDER                        (model.safetensors, config.json, tokenizer.json)
    python export.py compact CHECKPOINT ../checkpoint.pt         (half precision, without the optimiser)

GGUF wants the rows of queries and keys in another order, for its rotary positions turn neighbours where
HF turns halves; `interleaved` does that. Markers are "user defined" tokens: a reader finds them in text."""
import argparse
import json
import pathlib
import shutil

import gguf
import numpy as np
from safetensors.numpy import save_file

import tokenizer
from train import load, write

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def hf_weights(model):
    """The weights under the names of HF's Llama, F32."""
    numpy = lambda t: np.ascontiguousarray(t.detach().float().numpy())
    out = {"model.embed_tokens.weight": numpy(model.embedding.weight), "model.norm.weight": numpy(model.norm.weight)}
    for i, block in enumerate(model.blocks):
        q, k, v = block.qkv.weight.chunk(3)
        gate, up = block.gate_up.weight.chunk(2)
        parts = {"input_layernorm": block.norm1.weight, "post_attention_layernorm": block.norm2.weight, "self_attn.q_proj": q,
                 "self_attn.k_proj": k, "self_attn.v_proj": v, "self_attn.o_proj": block.out.weight,
                 "mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": block.down.weight}
        out |= {f"model.layers.{i}.{name}.weight": numpy(t) for name, t in parts.items()}
    return out


def hf(model, saved, folder):
    folder.mkdir(parents=True, exist_ok=True)
    c = model.config
    save_file({k: v.astype(np.float16) for k, v in hf_weights(model).items()}, str(folder / "model.safetensors"))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": c.width, "intermediate_size": c.hidden,
              "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.heads,
              "head_dim": c.width // c.heads, "vocab_size": c.vocabulary, "rms_norm_eps": c.epsilon, "rope_theta": c.base,
              "max_position_embeddings": c.positions, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "float16",
              "bos_token_id": tokenizer.BOS, "eos_token_id": tokenizer.EOS, "pad_token_id": tokenizer.PAD}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shutil.copy(tokenizer.PATH, folder / "tokenizer.json")


def interleaved(weight, heads):
    rows, columns = weight.shape
    return np.ascontiguousarray(weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns))


def write_vocabulary(writer):
    made = json.loads(tokenizer.PATH.read_text())["model"]
    tokens = [t for t, _ in sorted(made["vocab"].items(), key=lambda kv: kv[1])]
    control, own = len(tokenizer.CONTROL), len(tokenizer.OWN)
    kinds = [gguf.TokenType.CONTROL] * control + [gguf.TokenType.USER_DEFINED] * own
    kinds += [gguf.TokenType.NORMAL] * (len(tokens) - len(kinds))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in made["merges"]])
    writer.add_bos_token_id(tokenizer.BOS)
    writer.add_eos_token_id(tokenizer.EOS)
    writer.add_pad_token_id(tokenizer.PAD)
    writer.add_add_bos_token(True)


def to_gguf(model, path, q8):
    c = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("firsttoken-demo")
    writer.add_description("Answers questions with a sentence of the documents in its prompt; see MODEL_CARD.md.")
    writer.add_context_length(c.positions)
    writer.add_embedding_length(c.width)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.hidden)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.heads)
    writer.add_rope_dimension_count(c.width // c.heads)
    writer.add_rope_freq_base(c.base)
    writer.add_layer_norm_rms_eps(c.epsilon)
    writer.add_vocab_size(c.vocabulary)
    kind = gguf.GGMLQuantizationType.Q8_0 if q8 else gguf.GGMLQuantizationType.F16
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if q8 else gguf.LlamaFileType.MOSTLY_F16)
    write_vocabulary(writer)
    for name, weight in hf_weights(model).items():
        if name.startswith("model.layers."):
            _, _, layer, inner = name.split(".", 3)
            inner = NAMES[inner.removesuffix(".weight")]
            name = f"blk.{layer}.{inner}.weight"
            weight = interleaved(weight, c.heads) if inner in ("attn_q", "attn_k") else weight
        else:
            name = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
        if weight.ndim == 1:
            writer.add_tensor(name, weight.astype(np.float32))
        else:
            writer.add_tensor(name, gguf.quants.quantize(weight.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gguf", "hf", "compact"])
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--q8", action="store_true")
    args = parser.parse_args()
    model, saved = load(args.checkpoint)
    if args.what == "gguf":
        to_gguf(model, args.out, args.q8)
    elif args.what == "hf":
        hf(model, saved, args.out)
    else:
        write(args.out, model.half(), step=saved["step"], tokens=saved["tokens"], seed=saved["seed"])
    print(args.out, "" if args.out.is_dir() else f"{args.out.stat().st_size:,} bytes")
